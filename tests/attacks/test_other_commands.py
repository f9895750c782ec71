"""Pickles and scripts that run code, given to every command that loads a file: none does, and torch alone does."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.attacks import pickles, scripts
from tests.cli.process import ROOT, environment
from tests.workflows.training_parts import CONFIG

COMMANDS = {
    "convert": ["convert", "{file}", "--backend", "qnnpack", "-o", "{out}"],
    "export": ["export", "{file}", "-o", "{out}"],
    "evaluate": ["evaluate", "{file}", "--config", "{config}"],
    "train": ["train", "{config}", "--prepared", "{file}", "-o", "{out}"],
    "resume": ["train", "{config}", "--resume", "{file}", "-o", "{out}"],
    "qtool.load": ["api:load-path", "{file}"],
}
RUNS = ("os.system", "builtins.eval", "getattr, nested", "OBJ", "INST", "STACK_GLOBAL", "in a value thrown away")
"""The calls that torch.load makes without a word when it is told to trust the file."""
FILES = [(form, call) for form in pickles.FORMS for call in RUNS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The hostile files, and model.yaml."""
    folder = tmp_path_factory.mktemp("hostile")
    tree = {"version": 1, **CONFIG, "train": {"epochs": 1, "device": "cpu", "optimizer": {"kind": "sgd", "lr": 0.1}}}
    (folder / "model.yaml").write_text(json.dumps(tree))
    (folder / "made").mkdir()
    for number, (form, call) in enumerate(FILES):
        data = pickles.calling(pickles.CALLS[call][1], pickles.FORMS[form])(folder / "made" / str(number))
        (folder / f"{number}.pt").write_bytes(data)
    script = scripts.running(scripts.REACHES["aten::save"])(folder / "made" / "script")
    (folder / "script.pt").write_bytes(script)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    """What each command came to with each file: (status, printed)."""
    names = [path.name for path in sorted(folder.glob("*.pt"))]
    words = {"config": folder / "model.yaml", "out": folder / "out"}
    lines = [
        {"arguments": [word.format(file=folder / name, **words) for word in arguments], "stdin": None}
        for name in names
        for arguments in COMMANDS.values()
    ]
    (folder / "lines.json").write_text(json.dumps(lines))
    command = [sys.executable, "-m", "tests.attacks.commands_on_files", folder / "lines.json", folder / "results.json"]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, timeout=300)
    keys = [(name, command) for name in names for command in COMMANDS]
    return dict(zip(keys, json.loads((folder / "results.json").read_text()), strict=True))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_what_a_pickle_or_a_script_says(command, results, folder):
    of_command = {name: result for (name, each), result in results.items() if each == command}
    assert len(of_command) == len(FILES) + 1
    for name, (status, printed) in of_command.items():
        assert (name, status) == (name, 3), printed
        assert "Traceback" not in printed
    assert list((folder / "made").iterdir()) == []
    assert not (folder / "out").exists()


def test_torch_alone_runs_them(results, folder):
    """After the commands: these files are no straw men."""
    assert results
    code = "import sys, torch\nfor name in sys.argv[1:]:\n    torch.load(name, weights_only=False)"
    files = [folder / f"{number}.pt" for number, (form, _) in enumerate(FILES) if form != "pickle"]
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *files], env=environment(), check=True, timeout=60)
    made = {path.name for path in (folder / "made").iterdir()}
    assert made == {str(number) for number, (form, _) in enumerate(FILES) if form != "pickle"}
