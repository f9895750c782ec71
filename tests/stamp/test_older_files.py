"""Files of every older stamp format load, convert and compute the bits they computed when they were written."""

import dataclasses
import json

import pytest
import torch

from qtool.cli.main import run
from qtool.inspection.findings import Content, Outcome
from qtool.inspection.inspect import inspect_file
from qtool.runtime.store import to_bytes
from qtool.stamp.schema import FORMAT_VERSION
from qtool.workflows.convert import convert
from qtool.workflows.load import load, read
from tests.stamp.fixtures.make import FOLDER, pictures

FORMATS = sorted(int(path.stem.removeprefix("format_")) for path in FOLDER.glob("format_*.json"))


def labelled_pictures():
    """What the config below names as its data."""
    return [(picture, index % 3) for index, picture in enumerate(pictures())]


def test_every_older_format_has_its_files():
    assert list(range(1, FORMAT_VERSION)) == FORMATS


@pytest.fixture(params=FORMATS)
def older(request):
    """The number of an older format, and what its files computed."""
    return request.param, json.loads((FOLDER / f"format_{request.param}.json").read_text())


def decisions(file):
    """What the stamp says of each node; older files state no bound of single pairings, so the proofs are left out."""
    return [dataclasses.replace(node, saturation=None) for node in inspect_file(file).stamp.nodes]


def path_of(number, stage):
    return FOLDER / f"format_{number}_{stage}.pt2"


@pytest.mark.parametrize("stage", ["prepared", "int8"])
def test_it_is_inspected_as_before(older, stage):
    report = inspect_file(path_of(older[0], stage))
    assert (report.outcome, report.content, report.findings) == (Outcome.OK, Content.VERIFIED, ())
    assert report.stamp.format_version == FORMAT_VERSION
    assert [(node.name, node.backends) for node in report.int8_nodes()] == [
        ("0", ("fbgemm",)), ("2", ("fbgemm",)), ("3", ("fbgemm",)), ("4", ("fbgemm",))
    ]  # fmt: skip


@pytest.mark.parametrize("stage", ["prepared", "int8"])
def test_it_computes_the_same_bits(older, stage):
    number, outputs = older
    assert load(path_of(number, stage))(pictures()).tolist() == outputs[f"format_{number}_{stage}"]


def test_it_is_converted_to_the_same_bits_and_saved_in_the_present_format(older):
    number, outputs = older
    converted = convert(read(path_of(number, "prepared")))
    again = load(to_bytes(converted))
    assert again(pictures()).tolist() == outputs[f"format_{number}_int8"]
    assert decisions(to_bytes(converted)) == decisions(path_of(number, "int8"))
    moved = convert(read(path_of(number, "int8")), "x86")
    assert torch.equal(load(to_bytes(moved))(pictures()), again(pictures()))


def test_the_commands_take_it(older, tmp_path, capsys):
    number, _ = older
    prepared, int8 = str(path_of(number, "prepared")), str(path_of(number, "int8"))
    config = {
        "version": 1,
        "model": {
            "factory": "tests.stamp.fixtures.make:classifier",
            "random_init": True,
            "inputs": [{"name": "input", "shape": ["batch", 3, 6, 6]}],
        },
        "target": {"backend": "fbgemm"},
        "data": {"evaluate": {"kind": "python", "factory": f"{__name__}:labelled_pictures", "batch_size": 2}},
    }
    (tmp_path / "model.yaml").write_text(json.dumps(config))
    assert run(["convert", prepared, "-o", str(tmp_path / "int8.pt2"), "--verify"]) == 0
    for file in (int8, str(tmp_path / "int8.pt2")):
        capsys.readouterr()
        assert run(["evaluate", file, "--config", str(tmp_path / "model.yaml"), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        found.pop("engine", None)
        if file is int8:
            first = found
    numbers = [{key: value for key, value in each.items() if "bytes" not in key} for each in (first, found)]
    assert numbers[0] == numbers[1]
    assert run(["export", int8, "--format", "pt2", "-o", str(tmp_path / "plain.pt2"), "--verify"]) == 0
