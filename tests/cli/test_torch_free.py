"""Commands that must answer at once never import torch: one process each, which looks at its own modules."""

import json
import sys

import pytest

from qtool.cli.main import COMMANDS
from tests.cli.process import call

SCRIPT = """
import sys
from qtool.cli.main import run
status = run(sys.argv[1:])
heavy = sorted({"torch", "torchvision", "sklearn", "onnx"} & set(sys.modules))
sys.stderr.write(f"heavy={heavy}")
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["prepare", "--help"], 0),
        (["backends"], 0),
        (["backends", "qnnpack", "--json"], 0),
        (["inspect", "{files}/int8.pt2"], 0),
        (["inspect", "{files}/int8.pt2", "-v", "--json"], 0),
        (["inspect", "{files}/int8.pt2", "--backend", "qnnpack"], 1),
        # What is wrong with the question is found before torch is asked for.
        (["prepare", "{files}/missing.yaml", "-o", "-"], 2),
        (["prepare", "{files}/model.yaml"], 2),
        (["prepare", "{files}/model.yaml", "-o", "{files}/missing/x"], 2),
        (["convert", "{files}/missing.pt2", "-o", "-"], 2),
        (["convert", "{files}/prepared.pt2", "-o", "-", "--backend", "qnpack"], 2),
        (["convert", "{files}/model.yaml", "-o", "-"], 3),
        (["evaluate", "{files}/int8.pt2", "--config", "{files}/model.yaml", "--engine", "qnpack"], 2),
    ],
    ids=lambda value: " ".join(value).replace("{files}/", "") if isinstance(value, list) else None,
)
def test_without_torch(files, arguments, status):
    filled = [argument.format(files=files) for argument in arguments]
    result = call(filled, program=(sys.executable, "-c", SCRIPT))
    assert result.returncode == status
    assert result.stderr.endswith("heavy=[]")
    if "--json" in arguments:
        json.loads(result.stdout)


def test_help_is_quick_because_it_imports_no_command():
    commands = {f"qtool.cli.{name}" for name in COMMANDS}
    script = (
        f"import sys; from qtool.cli.main import run; run(['--help']); sys.exit(len({commands} & set(sys.modules)))"
    )
    assert call([], program=(sys.executable, "-c", script)).returncode == 0
