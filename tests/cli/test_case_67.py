"""Case 67: packages that are there for others only may be missing, or may have moved what they had."""

import json
import subprocess
import sys

import pytest

from qtool.cli.main import COMMANDS
from tests.attacks.samples import SAMPLES, sample
from tests.cli.process import ROOT, environment

SCRIPT = """
import io, json, sys, warnings
from contextlib import redirect_stderr, redirect_stdout
for name in ("torchao", "onnx", "onnxscript", "onnxruntime", "executorch", "safetensors", "torch.ao"):
    sys.modules[name] = None  # importing it is an ImportError from here on
warnings.simplefilter("error")
from qtool.cli.main import run
found = []
for line in json.load(sys.stdin):
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(stream), redirect_stderr(stream):
        status = run(line)
    stream.flush()
    found.append([status, stream.buffer.getvalue().decode()])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """What each line comes to where no optional package is installed."""
    folder = tmp_path_factory.mktemp("samples")
    lines = {"help": ["--help"], "backends": ["backends"]} | {name: [name, "--help"] for name in COMMANDS}
    for number, name in enumerate(SAMPLES):
        (folder / str(number)).write_bytes(sample(name))
        lines[f"inspect {name}"] = ["inspect", str(folder / str(number))]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(list(lines.values())),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr == ""
    return dict(zip(lines, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", ["help", *COMMANDS])
def test_case_67_help_needs_no_optional_package(name, without):
    status, printed = without[name]
    assert status == 0
    assert "Usage: " in printed
    assert "Warning" not in printed


def test_case_67_backends_need_no_optional_package(without):
    assert without["backends"][0] == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_case_67_inspect_needs_no_optional_package(name, without):
    status, printed = without[f"inspect {name}"]
    assert status in (0, 1)
    assert "file " in printed
    assert "Warning" not in printed
