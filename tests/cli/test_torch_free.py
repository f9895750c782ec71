"""Commands that must answer at once never import torch: each in a process that looks at its own modules."""

import json
import sys

import pytest

from qtool.cli.main import COMMANDS
from tests.cli.process import call

SCRIPT = """
import json, sys
from qtool.cli.main import run
statuses = [run(arguments) for arguments in json.loads(sys.argv[1])]
heavy = sorted({"torch", "torchvision", "sklearn", "onnx"} & set(sys.modules))
sys.stderr.write(json.dumps({"statuses": statuses, "heavy": heavy}))
"""


def statuses_and_heavy_modules(*command_lines):
    """Run command lines one after the other in one new process."""
    result = call([json.dumps(command_lines)], program=(sys.executable, "-c", SCRIPT))
    assert result.returncode == 0
    seen = json.loads(result.stderr.splitlines()[-1])
    return seen["statuses"], seen["heavy"]


@pytest.mark.parametrize(
    ("command_lines", "statuses"),
    [
        ([["--help"], ["--version"]], [0, 0]),
        ([[name, "--help"] for name in COMMANDS], [0] * len(COMMANDS)),
        ([["backends"], ["backends", "qnnpack"], ["backends", "--json"], ["backends", "qnpack"]], [0, 0, 0, 2]),
        (
            [
                ["inspect", "{files}/int8.pt2"],
                ["inspect", "{files}/prepared.pt2", "-v", "--json"],
                ["inspect", "{files}/int8.pt2", "--backend", "qnnpack"],
                ["inspect", "{files}/model.yaml"],
            ],
            [0, 0, 1, 3],
        ),
        (
            [
                ["config", "check", "{files}/model.yaml"],
                ["config", "show", "{files}/model.yaml", "--origin", "--set", "target.isa=vnni"],
                ["config", "show", "{files}/model.yaml", "--json"],
                ["config", "schema"],
                ["config", "check", "{files}/model.yaml", "--set", "target.isa=vni"],
                ["config", "check", "{files}/missing.yaml"],
            ],
            [0, 0, 0, 0, 2, 2],
        ),
        (
            [["init", "resnet18"], ["init", "tests.cli.models:noisy_classifier"], ["init", "resnet81"]],
            [0, 0, 2],
        ),
        (  # what is wrong with a question is said before torch is asked for
            [
                ["prepare", "{files}/missing.yaml", "-o", "-"],
                ["prepare", "{files}/model.yaml"],
                ["prepare", "{files}/model.yaml", "-o", "{files}/missing/x"],
                ["train", "{files}/model.yaml", "-o", "{files}/missing/x"],
                ["train", "{files}/model.yaml", "-o", "-", "--resume", "a", "--prepared", "b"],
                ["train", "{files}/model.yaml", "-o", "-", "--prepared", "{files}/int8.pt2"],
                ["convert", "{files}/missing.pt2", "-o", "-"],
                ["convert", "{files}/prepared.pt2", "-o", "-", "--backend", "qnpack"],
                ["convert", "{files}/int8.pt2", "-o", "-"],
                ["convert", "{files}/model.yaml", "-o", "-"],
                ["export", "{files}/prepared.pt2", "-o", "-"],
                ["export", "{files}/int8.pt2", "-o", "-", "--opset", "11"],
                ["evaluate", "{files}/int8.pt2", "--config", "{files}/model.yaml", "--engine", "qnpack"],
                ["evaluate", "{files}/model.yaml", "--config", "{files}/model.yaml"],
                ["bench", "{files}/int8.pt2"],
                ["bench", "{files}/model.yaml", "--modes", "compresed"],
            ],
            [2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 2, 2, 3, 2, 2],
        ),
    ],
    ids=["program", "help of each command", "backends", "inspect", "config", "init", "wrong questions"],
)
def test_without_torch(files, command_lines, statuses):
    filled = [[word.format(files=files) for word in words] for words in command_lines]
    assert statuses_and_heavy_modules(*filled) == (statuses, [])


def test_the_check_above_can_fail():
    script = SCRIPT.replace("import json, sys", "import json, sys; sys.modules['torch'] = sys")
    result = call(["[]"], program=(sys.executable, "-c", script))
    assert json.loads(result.stderr)["heavy"] == ["torch"]


def test_help_is_quick_because_it_imports_no_command():
    commands = {f"qtool.cli.{name}" for name in COMMANDS}
    script = (
        f"import sys; from qtool.cli.main import run; run(['--help']); sys.exit(len({commands} & set(sys.modules)))"
    )
    assert call([], program=(sys.executable, "-c", script)).returncode == 0
