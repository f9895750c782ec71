"""The page on adding a backend, followed to the letter: its one file gives a backend with ranges."""

import importlib.util
import re
from pathlib import Path

import pytest

from qtool.backends import registry
from qtool.backends.defaults import default_rows
from qtool.backends.host import host_facts
from qtool.backends.ranges import Consumer, activation_spec, weight_spec
from qtool.errors import RangeError, UsageError
from qtool.types import Granularity, Isa, Op

PAGE = Path(__file__).parents[2] / "docs/adding-a-backend.md"
CONV = Consumer(node="conv", op=Op.CONV2D)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The backend of the page, written to a file, imported and registered as the page says."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    file = tmp_path / "toy.py"
    file.write_text(blocks[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("toy", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(registry, "BACKENDS", (*registry.BACKENDS, module.BACKEND))
    return registry.backend("toy")


def test_it_is_found_by_name(toy):
    assert registry.backend_names()[-1] == "toy"
    with pytest.raises(UsageError, match="did you mean 'toy'"):
        registry.backend("toi")


@pytest.mark.parametrize(("isa", "qmax"), [(Isa.ANY, 127), (Isa.NO_VNNI, 127), (Isa.VNNI, 255)])
def test_ranges_follow_from_its_record(toy, isa, qmax):
    spec = activation_spec(toy, isa, [CONV], observer="minmax")
    assert (spec.qmin, spec.qmax, spec.reduce_range) == (0, qmax, qmax == 127)


def test_its_weights_have_one_scale(toy):
    spec = weight_spec(toy, Op.CONV2D, granularity=None, axis=0, observer="minmax")
    assert (spec.qmin, spec.qmax, spec.granularity) == (-127, 127, Granularity.TENSOR)
    with pytest.raises(UsageError, match="not possible for conv2d on toy: use 'tensor'"):
        weight_spec(toy, Op.CONV2D, granularity=Granularity.CHANNEL, axis=0, observer="minmax")


def test_what_it_does_not_support_stays_float(toy):
    with pytest.raises(RangeError, match="'scale': toy has no int8 mul; keep that node in float"):
        activation_spec(toy, Isa.ANY, [Consumer(node="scale", op=Op.MUL)], observer="minmax")
    unsupported = {row.op for row in default_rows(toy, Isa.ANY) if row.spec is None}
    assert {"conv1d", "mul", "softmax"} <= unsupported
    assert not {"conv2d", "linear", "add"} & unsupported


def test_its_cap_counts(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("qtool.backends.host.BACKENDS", (toy,))
    monkeypatch.setattr("qtool.backends.host.find_backend", lambda _: toy)
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: avx2 avx512_vnni\n", encoding="utf-8")
    assert host_facts(cpuinfo=cpuinfo, environment={}, architecture="x86_64").isa_of("toy") is Isa.VNNI
    capped = host_facts(cpuinfo=cpuinfo, environment={"TOY_MAX_ISA": "AVX2"}, architecture="x86_64")
    assert capped.isa_of("toy") is Isa.NO_VNNI
