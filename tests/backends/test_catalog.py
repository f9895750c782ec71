"""Every op has a row in every catalog, every row a source that can be followed."""

import ast
import importlib
import pkgutil
import re
from itertools import product
from pathlib import Path

import pytest

from qtool.backends import catalog
from qtool.backends.record import Backend, Support
from qtool.backends.registry import BACKENDS, backend, backend_names
from qtool.errors import UsageError
from qtool.types import MAC_OPS, Op

ROOT = Path(__file__).parents[2]
URL = re.compile(r"https://[\w.-]+/\S+\.\w+")


def test_every_catalog_file_is_registered():
    modules = [importlib.import_module(f"{catalog.__name__}.{m.name}") for m in pkgutil.iter_modules(catalog.__path__)]
    constants = {module.BACKEND.name for module in modules if hasattr(module, "BACKEND")}
    assert constants == set(backend_names())


@pytest.mark.parametrize(("record", "op"), [*product(BACKENDS, Op)], ids=lambda value: value.name)
def test_every_op_has_a_row_with_a_source(record, op):
    rule = record.rule(op)
    assert rule.op is op
    assert URL.fullmatch(rule.source), rule.source


@pytest.mark.parametrize("record", BACKENDS, ids=backend_names())
def test_every_record_has_sources(record):
    sources = [record.source]
    if record.isa:
        sources += [record.isa.source, *(cap.source for cap in record.isa.caps)]
    assert [source for source in sources if not URL.fullmatch(source)] == []


@pytest.mark.parametrize("record", BACKENDS, ids=backend_names())
def test_what_is_said_to_be_measured_has_a_test(record):
    files = {rule.measured for rule in record.rules if rule.measured}
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("record", [r for r in BACKENDS if r.engine], ids=lambda record: record.name)
def test_all_kernels_of_torch_engines_are_measured(record):
    assert [rule.op for rule in record.rules if not rule.measured] == [Op.LAYOUT]  # it computes nothing


@pytest.mark.parametrize("record", BACKENDS, ids=backend_names())
def test_a_backend_that_saturates_says_what_helps(record):
    conditional = {rule.op for rule in record.rules if rule.support is Support.WRONG_UNLESS} & MAC_OPS
    assert bool(conditional) == (record.isa is not None)


def test_a_catalog_file_has_data_only():
    for file in (ROOT / "qtool/backends/catalog").glob("*.py"):
        kinds = {type(statement) for statement in ast.parse(file.read_text(encoding="utf-8")).body}
        assert kinds <= {ast.Expr, ast.ImportFrom, ast.AnnAssign}, file


def test_backends_are_found_by_name():
    assert [backend(name) for name in backend_names()] == list(BACKENDS)
    assert all(isinstance(record, Backend) for record in BACKENDS)


def test_an_unknown_backend_gets_the_nearest_name():
    with pytest.raises(UsageError, match=r"'qnpack' is not known; did you mean 'qnnpack'\? Use one of: fbgemm, x86,"):
        backend("qnpack")


def test_an_unknown_backend_with_no_near_name():
    with pytest.raises(UsageError, match=r"'tpu' is not known\. Use one of: fbgemm, "):
        backend("tpu")
