"""Original weights are freed after packing; what would read them afterwards raises, and never crashes."""

import io
import json
import statistics
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import qtool
from qtool.lowering.engine_switch import packing_for
from qtool.runtime.module import RuntimeModel
from qtool.runtime.release import ReleasedMac
from qtool.runtime.store import to_bytes
from qtool.training.resident_size import growth_of
from qtool.workflows.load import read
from tests.patterns import Lambda, conv

ROOT = Path(__file__).parents[2]


def saved(model, x, backend="qnnpack", **quantize):
    """The bytes of a converted file."""
    prepared = qtool.prepare(model.eval(), x, {"target": {"backend": backend}, "quantize": quantize})
    qtool.calibrate(prepared, [x])
    return to_bytes(qtool.convert(prepared))


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    layers = conv(3, 8), nn.ReLU(), conv(8, 8, groups=8), nn.ConvTranspose2d(8, 4, 2), nn.Flatten(), nn.Linear(100, 5)
    x = torch.randn(2, 3, 8, 8)
    return (
        saved(nn.Sequential(*layers), x),
        x,
        sum(layer.weight.numel() for layer in layers if hasattr(layer, "weight")),
    )


@pytest.fixture(scope="module")
def ended(small, tmp_path_factory):
    """How each way to read a released weight ended, each in a process of its own."""
    file = tmp_path_factory.mktemp("released") / "int8.pt2"
    file.write_bytes(small[0])
    command = [sys.executable, "-W", "ignore", "-m", "tests.runtime.released_ways", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


WAYS = (
    "scale",
    "unpack",
    "state_dict",
    "torch_save",
    "torch_save_state",
    "pickle",
    "copy",
    "deepcopy",
    "script",
    "trace",
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["runtime", "container", "body"])
def test_what_would_read_a_released_weight_is_one_error_that_names_the_option(ended, target, way):
    status, message = ended[f"{target}.{way}"]
    assert status == 3, message
    assert "release_weights=False" in message


def test_nor_can_it_be_written_to_a_file(ended):
    assert ended["runtime.jit_save"][0] == 3
    assert ended["runtime.qtool_save"][0] == 2
    for target in ("container", "body"):  # torch.jit.save asks the module to save itself, and those of torch cannot
        assert ended[f"{target}.jit_save"] == [99, ended[f"{target}.jit_save"][1]]
        assert "has no attribute 'save'" in ended[f"{target}.jit_save"][1]
        assert ended[f"{target}.qtool_save"][0] == 2


def test_it_gives_back_the_int8_weights_and_computes_the_same(small):
    data, x, num_bytes = small
    released, kept = qtool.load(data), qtool.load(data, release_weights=False)
    assert (released.released_bytes, kept.released_bytes) == (num_bytes, 0)
    for inputs in (x, x * 3, x[:1], torch.randn(7, 3, 8, 8)):
        assert torch.equal(released(inputs), kept(inputs))


@pytest.mark.parametrize("engine", ["fbgemm", "onednn"])
def test_other_engines_hold_no_original_to_give_back(small, engine):
    model = qtool.load(saved(nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 8)), small[1], engine))
    assert model.engine == engine
    assert model.released_bytes == 0
    assert model.state_dict() == {}


def reachable(thing, seen):
    """Everything that attributes, buffers, submodules and containers lead to."""
    if id(thing) in seen or isinstance(thing, (str, int, float, torch.dtype)):
        return
    seen[id(thing)] = thing
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple, set)) else ()
    for part in (*parts, *getattr(thing, "__dict__", {}).values()):
        reachable(part, seen)


def packed_objects(model):
    seen = {}
    reachable(model, seen)
    return [thing for thing in seen.values() if isinstance(thing, torch.ScriptObject)]


def test_nothing_that_torch_looks_through_leads_to_a_packed_weight(small):
    assert packed_objects(qtool.load(small[0])) == []
    assert len(packed_objects(qtool.load(small[0], release_weights=False))) == 4


def test_kept_weights_can_be_traced_saved_and_unpacked(small):
    data, x, _ = small
    model = qtool.load(data, release_weights=False)
    traced = traced_by_torch(model, x)
    buffer = io.BytesIO()
    with warnings.catch_warnings(), packing_for("qnnpack"):  # torch.jit.load packs for the global engine
        warnings.simplefilter("ignore", FutureWarning)
        torch.jit.save(traced, buffer)
        buffer.seek(0)
        assert torch.equal(torch.jit.load(buffer)(x), model(x))
    assert model.state_dict() == {}
    for kernel in model.body.modules():
        if hasattr(kernel, "packed"):
            assert kernel.packed.unpack()[0].int_repr().numel() > 0


def test_several_threads_in_the_first_run(small):
    data, x, _ = small
    expected = qtool.load(data, release_weights=False)(x)
    for _ in range(5):
        model, found = qtool.load(data), []
        gate = threading.Barrier(8)

        def first_run(model=model, found=found, gate=gate):
            gate.wait()
            found.append(model(x))

        threads = [threading.Thread(target=first_run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert all(torch.equal(y, expected) for y in found)


def test_the_converted_model_that_it_came_from_is_untouched(small):
    x = small[1]
    prepared = qtool.prepare(nn.Sequential(conv(3, 8), nn.Flatten(), nn.Linear(288, 4)).eval(), x, BACKEND)
    qtool.calibrate(prepared, [x])
    converted = qtool.convert(prepared)
    before = to_bytes(converted)
    first = RuntimeModel(converted)
    assert first.released_bytes == 8 * 3 * 9 + 288 * 4
    assert to_bytes(converted) == before
    assert torch.equal(RuntimeModel(converted)(x), first(x))


BACKEND = {"target": {"backend": "qnnpack"}}


@pytest.fixture(scope="module")
def sharing():
    """One convolution called four times: on one grid twice, and on two more."""
    torch.manual_seed(0)
    model = Lambda(
        lambda m, x: m.layer(m.pool(x)) + m.layer(x) + m.layer(m.layer(x)),
        layer=conv(4, 4, padding=1),
        pool=nn.MaxPool2d(3, 1, 1),
    )
    x = torch.randn(2, 4, 9, 9)
    return saved(model, x, reduce_range="always"), x


@pytest.mark.parametrize(("engine", "num_packed"), [("fbgemm", 1), ("qnnpack", 2), ("onednn", 2)])
def test_a_weight_that_is_shared_is_packed_once_where_scale_and_geometry_allow(sharing, engine, num_packed):
    """qnnpack and oneDNN pack for one scale of the input."""
    model = qtool.load(sharing[0], engine=engine, release_weights=False)
    kernels = [kernel for kernel in model.body.modules() if hasattr(kernel, "packing")]
    packed = {id(kernel.packed if hasattr(kernel, "packed") else kernel.weight) for kernel in kernels}
    assert (len(kernels), len(packed)) == (4, num_packed)


def test_a_shared_weight_is_released_once(sharing):
    data, x = sharing
    model = qtool.load(data)
    assert model.released_bytes == 2 * 4 * 4 * 9
    assert sum(isinstance(kernel, ReleasedMac) for kernel in model.body.modules()) == 4
    assert torch.equal(model(x), qtool.load(data, release_weights=False)(x))


def traced_by_torch(model, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # checks of the input are not traced
        return torch.jit.trace(model, (x,))


def jit_size(traced):
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.jit.save(traced, buffer)
    return len(buffer.getvalue())


def test_case_60_saved_under_qnnpack_loaded_under_fbgemm_saved_and_traced_again(tmp_path):
    """The size stays, and a weight that is shared is held once."""
    torch.manual_seed(0)
    model = Lambda(
        lambda m, x: m.last(m.layer(m.layer(m.first(x)))),
        layer=conv(128, 128, padding=1),
        first=conv(4, 128, k=1),
        last=conv(128, 4, k=1),
    )
    x, path, sizes = torch.randn(2, 4, 9, 9), tmp_path / "int8.pt2", []
    path.write_bytes(saved(model, x, reduce_range="always"))
    first_size = path.stat().st_size
    # torch writes the names of types, and only those of a process's first trace have no number in them.
    jit_size(traced_by_torch(RuntimeModel(read(path), "fbgemm"), x))
    for _ in range(3):
        converted = read(path)
        traced = [jit_size(traced_by_torch(RuntimeModel(converted, "fbgemm"), x)) for _ in range(2)]
        qtool.save(converted, path)
        sizes.append((path.stat().st_size, *traced))
    assert {size for size, *_ in sizes} == {first_size}
    traced = [size for _, *both in sizes for size in both]
    assert max(traced) - min(traced) < 512  # the numbers get longer
    shared = 128 * 128 * 9
    assert shared < first_size < 2 * shared
    assert shared < max(traced) < 2 * shared


def test_the_process_grows_less_by_what_is_released():
    torch.manual_seed(0)
    x, num_bytes = torch.randn(4, 2048), 2048 * 2048
    data = saved(nn.Linear(2048, 2048), x)

    def run(*, release):
        model = qtool.load(data, release_weights=release)
        model(x)
        return model

    run(release=True)  # what the first one alone allocates is not counted
    saved_bytes = []
    for _ in range(5):  # the allocator keeps some pages for itself now and then
        kept, released = (growth_of(lambda release=release: run(release=release)) for release in (False, True))
        saved_bytes.append(kept - released)
    assert statistics.median(saved_bytes) == pytest.approx(num_bytes, rel=0.1)
