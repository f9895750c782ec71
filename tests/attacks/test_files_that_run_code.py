"""Files that run code when torch loads them, given to every command: torch runs it, no command of qtool's does."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from qtool.cli.main import run
from qtool.training.checkpoint import from_file, to_bytes
from tests.attacks.hostile_programs import ALL_PLACES, TRAINING, hostile
from tests.cli.process import ROOT, environment
from tests.workflows.training_parts import CONFIG

CONVERTED = {
    "inspect": ["inspect", "{file}"],
    "inspect, from a pipe": ["inspect", "-"],
    "move": ["convert", "{file}", "--backend", "qnnpack", "-o", "{out}"],
    "export to ONNX": ["export", "{file}", "-o", "{out}"],
    "export to pt2": ["export", "{file}", "--format", "pt2", "-o", "{out}"],
    "export, from a pipe": ["export", "-", "-o", "{out}"],
    "evaluate": ["evaluate", "{file}", "--config", "{config}"],
    "evaluate, from a pipe": ["evaluate", "-", "--config", "{config}"],
    "qtool.load": ["api:load-path", "{file}"],
    "qtool.load of bytes": ["api:load-bytes", "{file}"],
    "qtool.load of an open file": ["api:load-file", "{file}"],
    "qtool.export": ["api:export-path", "{file}", "{out}"],
}
TRAINED = {
    "inspect": ["inspect", "{file}"],
    "convert": ["convert", "{file}", "-o", "{out}"],
    "convert and verify": ["convert", "{file}", "--verify", "-o", "{out}"],
    "convert, from a pipe": ["convert", "-", "-o", "{out}"],
    "train": ["train", "{config}", "--prepared", "{file}", "-o", "{out}"],
    "train, from a pipe": ["train", "{config}", "--prepared", "-", "-o", "{out}"],
    "train, resumed": ["train", "{config}", "--resume", "{checkpoint}", "-o", "{out}"],
    "train, resumed with a best model": ["train", "{config}", "--resume", "{best}", "-o", "{out}"],
    "bench": ["bench", "{file}"],
    "qtool.load": ["api:load-path", "{file}"],
}
CASES = [(place, "converted", command) for place in ALL_PLACES for command in CONVERTED]
CASES += [(place, "trained", command) for place in (*ALL_PLACES, TRAINING) for command in TRAINED]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with valid files: model.yaml, trained.pt2, int8.pt2, and the checkpoint of an unfinished training."""
    folder = tmp_path_factory.mktemp("valid")
    tree = {"version": 1, **CONFIG, "train": {"epochs": 3, "device": "cpu", "optimizer": {"kind": "sgd", "lr": 0.1}}}
    (folder / "model.yaml").write_text(json.dumps(tree))
    names = [str(folder / name) for name in ("model.yaml", "run", "trained.pt2", "int8.pt2")]
    assert run(["train", names[0], "--checkpoints", names[1], "-o", names[2]]) == 0
    assert run(["convert", names[2], "-o", names[3]]) == 0
    return folder


@pytest.fixture(scope="module")
def evil(folder):
    """The hostile files by stage and place, each with its marker."""
    files = {}
    for stage, valid, places in (
        ("converted", "int8.pt2", ALL_PLACES),
        ("trained", "trained.pt2", (*ALL_PLACES, TRAINING)),
    ):
        (folder / stage).mkdir()
        (folder / "markers" / stage).mkdir(parents=True)
        for place in places:
            marker = folder / "markers" / stage / f"{stage}_{place}"
            files[stage, place] = (folder / stage / f"{place}.pt2", marker)
            files[stage, place][0].write_bytes(hostile((folder / valid).read_bytes(), place, marker))
    return files


def environment_with_modules(evil):
    """Modules that make a marker are importable, as they would be from the folder that a user is in."""
    folders = {str(marker.parent) for _, marker in evil.values()}
    return environment(PYTHONPATH=":".join([str(ROOT), *folders]))


@pytest.fixture(scope="module")
def results(folder, evil):
    """What each command came to with each file, and which of them made a marker: all in one process."""
    lines = [_line(folder, *evil[stage, place], stage, command) for place, stage, command in CASES]
    (folder / "lines.json").write_text(json.dumps(lines))
    arguments = [
        sys.executable,
        "-m",
        "tests.attacks.commands_on_files",
        folder / "lines.json",
        folder / "results.json",
    ]
    subprocess.run(arguments, cwd=ROOT, env=environment_with_modules(evil), check=True, timeout=300)
    made = {key for key, (_, marker) in evil.items() if marker.exists()}
    return dict(zip(CASES, json.loads((folder / "results.json").read_text()), strict=True)), made


def _line(folder, file, marker, stage, command):
    words = {"file": file, "config": folder / "model.yaml", "out": folder / "out" / f"{marker.name}.onnx"}
    words["out"].parent.mkdir(exist_ok=True)
    if "resumed" in command:
        words |= _checkpoints(folder, file)
    arguments = (CONVERTED if stage == "converted" else TRAINED)[command]
    stdin = str(file) if "pipe" in command else None
    return {"arguments": [argument.format(**words) for argument in arguments], "stdin": stdin}


def _checkpoints(folder, file):
    """Checkpoints whose model, or whose best model, is the hostile file."""
    valid = from_file(folder / "run" / "epoch-0002.zip")
    paths = {name: file.with_name(f"{file.stem}-{name}.zip") for name in ("checkpoint", "best")}
    paths["checkpoint"].write_bytes(to_bytes(replace(valid, model=file.read_bytes())))
    state = replace(valid.state, best_epoch=1, best_accuracy=1.0)
    paths["best"].write_bytes(to_bytes(replace(valid, state=state, best=file.read_bytes())))
    return paths


@pytest.mark.parametrize(("place", "stage", "command"), CASES)
def test_no_command_runs_what_a_file_says(place, stage, command, results, folder):
    (status, printed), made = results[0][place, stage, command], results[1]
    assert (stage, place) not in made
    assert "Traceback" not in printed
    if command.startswith("inspect"):
        assert status == 1
        assert "stamp" in printed if place == "older_archive" else "QT10" in printed
    else:
        assert status == 3
        assert "no stamp" in printed if place == "older_archive" else "loading it would execute" in printed
    assert not list((folder / "out").iterdir())


def test_torch_alone_runs_it(results, evil):
    """After the commands: a marker that is there now was made by torch."""
    assert results[1] == set()
    script = ROOT / "tests" / "attacks" / "load_with_torch.py"
    files = [str(file) for file, _ in evil.values()]
    subprocess.run([sys.executable, script, *files], env=environment_with_modules(evil), check=True, timeout=300)
    assert [key for key, (_, marker) in evil.items() if not marker.exists()] == []
