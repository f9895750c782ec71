"""A small model taken through all commands, once for all tests that need its files."""

import json
from pathlib import Path

import pytest

from qtool.cli.main import run
from tests.cli.process import ROOT

CONFIG = {
    "version": 1,
    "model": {
        "factory": "tests.cli.models:noisy_classifier",
        "random_init": True,
        "inputs": [{"name": "x", "shape": ["batch", 3, 8, 8]}],
    },
    "target": {"backend": "fbgemm"},
    "data": {
        "calibrate": {"kind": "synthetic", "count": 16, "batch_size": 8},
        "evaluate": {"kind": "python", "factory": "tests.cli.models:labelled_noise", "batch_size": 4},
    },
}


@pytest.fixture
def write_config(tmp_path):
    """A function that writes the config with some keys changed, `{"target.backend": "x86"}`, and returns its path."""

    def write(changes=None, name="model.yaml"):
        return write_config_to(tmp_path / name, changes or {})

    return write


def write_config_to(path: Path, changes):
    tree = json.loads(json.dumps(CONFIG))
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = tree
        for part in sections:
            section = section.setdefault(part, {})
        if value is None:
            section.pop(last, None)
        else:
            section[last] = value
    path.write_text(json.dumps(tree, indent=1))  # JSON is YAML
    return path


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """The folder with model.yaml, prepared.pt2 and int8.pt2 of the small model."""
    folder = tmp_path_factory.mktemp("small")
    config = write_config_to(folder / "model.yaml", {})
    assert run(["prepare", str(config), "-o", str(folder / "prepared.pt2")]) == 0
    assert run(["convert", str(folder / "prepared.pt2"), "-o", str(folder / "int8.pt2")]) == 0
    return folder


@pytest.fixture(autouse=True)
def project_folder(monkeypatch):
    """The tests' models are importable from the project's folder."""
    monkeypatch.chdir(ROOT)
