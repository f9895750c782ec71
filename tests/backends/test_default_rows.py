"""The default ranges of every backend as text, golden: a changed rule shows as a changed line."""

import pytest

from qtool.backends.defaults import default_rows
from qtool.backends.registry import backend, backend_names
from qtool.types import Isa

HEADER = ("op", "role", "dtype", "qmin", "qmax", "granularity", "axis", "reduce_range")
WIDTHS = (27, 7, 6, 5, 5, 12, 5, 0)


def line(cells):
    return "".join(str(cell).ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def cells(row):
    if row.spec is None:
        return (row.op, row.role, "float", "", "", "", "", "")
    spec = row.spec
    axis = "" if spec.axis is None else spec.axis
    granularity, reduced = spec.granularity.value, "yes" if spec.reduce_range else "no"
    return (row.op, row.role, spec.dtype.value, spec.qmin, spec.qmax, granularity, axis, reduced)


def table(name, isa):
    return "\n".join(
        [f"isa: {isa.value}", line(HEADER), *(line(cells(row)) for row in default_rows(backend(name), isa))]
    )


@pytest.mark.parametrize("name", backend_names())
def test_case_08_default_ranges_of_a_backend(name, golden):
    golden(f"{name}.txt", "\n\n".join(table(name, isa) for isa in (Isa.ANY, Isa.VNNI)) + "\n")


@pytest.mark.parametrize("name", backend_names())
def test_any_cpu_is_planned_like_one_without_vnni(name):
    assert table(name, Isa.ANY).splitlines()[1:] == table(name, Isa.NO_VNNI).splitlines()[1:]
