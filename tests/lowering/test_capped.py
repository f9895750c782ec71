"""On a CPU without VNNI, which two environment variables make of any: right for `any`, refused for `vnni`."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from qtool.workflows.save import save
from tests.patterns import bn2d, conv

CAPS = {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}  # read when the libraries start
ROOT = Path(__file__).parents[2]
SCRIPT = """
    import json, sys, warnings
    import torch
    from qtool.errors import MismatchError, QtoolWarning
    from qtool.runtime.module import RuntimeModel
    from qtool.workflows.load import read
    from qtool.workflows.verify import verify

    found = {}
    for name in sys.argv[1:]:
        prepared, converted = read(f"{name}.prepared.pt2"), read(f"{name}.pt2")
        backend, _, isa = name.partition("-")
        if isa == "vnni":
            try:
                RuntimeModel(converted, backend)
            except MismatchError as error:
                found["refused"] = str(error)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", QtoolWarning)
                RuntimeModel(converted)
            found["warned"] = [str(warning.message) for warning in said]
            warnings.simplefilter("ignore", QtoolWarning)
        found[name] = max(verify(prepared, converted).values())
    print(json.dumps(found))
"""


def strong_model():
    """Weights of one sign and large activations: products that add up, as saturation needs them."""
    torch.manual_seed(0)
    model = nn.Sequential(conv(16, 32), bn2d(32), nn.ReLU(), conv(32, 32, groups=32), conv(32, 16), nn.Flatten(),
                          nn.Linear(16 * 6 * 6, 10)).eval()  # fmt: skip
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.weight.data.abs_().add_(layer.weight.data.max())
    return model, torch.rand(4, 16, 12, 12)


def strong_volume():
    """The same over three dimensions, and transposed ones where there is a kernel for them."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv3d(8, 16, 3), nn.ReLU(), nn.Conv3d(16, 16, 3, padding=1, groups=16), nn.Flatten(2),
        nn.ConvTranspose1d(16, 4, 3, stride=2), nn.Flatten(), nn.Linear(4 * 129, 4),
    ).eval()  # fmt: skip
    for layer in model:
        if hasattr(layer, "weight"):
            layer.weight.data.abs_().add_(layer.weight.data.max())
    return model, torch.rand(4, 8, 6, 6, 6)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capped")
    targets = [("fbgemm", "any"), ("x86", "any"), ("onednn", "any"), ("onednn", "vnni"), ("qnnpack", "any")]
    cases = [(f"{backend}-{isa}", strong_model(), backend, isa) for backend, isa in targets]
    cases += [(f"{backend}-volume", strong_volume(), backend, isa) for backend, isa in targets if isa == "any"]
    for name, (model, x), backend, isa in cases:
        prepared = prepare(model, x, {"target": {"backend": backend, "isa": isa}})
        calibrate(prepared, [x])
        save(prepared, folder / f"{name}.prepared.pt2")
        save(convert(prepared), folder / f"{name}.pt2")
    names = [name for name, *_ in cases]
    environment = {**os.environ, **CAPS, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), *names]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["fbgemm-any", "x86-any", "onednn-any", "qnnpack-any"])
def test_a_model_for_any_cpu_is_right_without_vnni(found, name):
    assert found[name] <= 1


@pytest.mark.parametrize("name", ["fbgemm-volume", "x86-volume", "onednn-volume", "qnnpack-volume"])
def test_three_dimensions_and_transposed_ones_are_right_without_vnni(found, name):
    assert found[name] <= 1


def test_a_model_for_vnni_runs_on_qnnpack_without_it_and_one_warning_names_the_nodes(found):
    assert found["onednn-vnni"] <= 1
    (message,) = found["warned"]
    assert message.startswith("qnnpack runs 0, 4, 6 instead of onednn: the input needs its full range")


def test_on_the_engine_asked_for_it_is_refused_by_name(found):
    message = found["refused"]
    assert message.startswith("0, 4, 6 would saturate without a message: they were made for onednn with isa vnni")
