"""`engine="auto"`: which engines are taken, that they are right, and what is kept beside the file."""

import json
import time

import pytest
import torch
from torch import nn

import qtool
from qtool.errors import QtoolWarning, UsageError
from qtool.runtime import fastest
from qtool.runtime.module import RuntimeModel
from qtool.workflows.load import read
from tests.patterns import bn2d, conv


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(fastest, "SECONDS", 0.1)


def saved(path, target):
    torch.manual_seed(0)
    model = nn.Sequential(
        conv(3, 16), bn2d(16), nn.ReLU(), conv(16, 16, groups=16), nn.ReLU(), conv(16, 8), nn.Flatten(),
        nn.Linear(8 * 10 * 10, 5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    prepared = qtool.prepare(model, x, {"target": target})
    qtool.calibrate(prepared, [x])
    qtool.save(qtool.convert(prepared), path)
    return path


@pytest.fixture(scope="module")
def reduced(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("auto") / "int8.pt2", {"backend": "fbgemm"})


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("auto") / "full.pt2", {"backend": "qnnpack"})


def slowed(monkeypatch, chosen):
    """Let the engine that `chosen` names for an edge look fastest there, and mixtures look best as a whole."""

    def time_nodes(programs, example):
        return {name: {edge: 1.0 if name == engine else 2.0 for edge, engine in chosen.items()} for name in programs}

    monkeypatch.setattr(fastest, "_time_nodes", time_nodes)
    monkeypatch.setattr(
        fastest, "_time_programs", lambda programs, _: {name: 1.0 + (name != "mixture") for name in programs}
    )


def test_every_node_has_an_engine_and_computes_the_same(reduced):
    model, x = qtool.load(reduced, engine="auto"), torch.randn(3, 3, 16, 16)
    assert list(model.placement) == ["0", "3", "5", "7"]
    assert {placed.why for placed in model.placement.values()} == {"the fastest here"}
    assert torch.allclose(model(x), qtool.load(reduced)(x), atol=0.2)


def test_it_takes_the_fastest_of_each_node(reduced, monkeypatch):
    chosen = {"0": "onednn", "3": "fbgemm", "5": "qnnpack", "7": "fbgemm"}
    slowed(monkeypatch, chosen)
    model = qtool.load(reduced, engine="auto")
    assert {name: placed.engine for name, placed in model.placement.items()} == chosen
    assert model.engine == "fbgemm + onednn + qnnpack"
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 5)


def test_a_mixture_that_is_no_faster_as_a_whole_is_not_taken(reduced, monkeypatch):
    slowed(monkeypatch, {"0": "onednn", "3": "fbgemm", "5": "fbgemm", "7": "fbgemm"})
    monkeypatch.setattr(fastest, "_time_programs", lambda programs, _: dict.fromkeys(programs, 1.0))
    assert len(qtool.load(reduced, engine="auto").engines) == 1


def test_an_engine_that_would_saturate_is_never_taken(full, monkeypatch):
    """Neither because it is fast nor because a kept file says so."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("FBGEMM_ENABLE_INSTRUCTIONS", "AVX2")
    slowed(monkeypatch, {"0": "fbgemm", "3": "fbgemm", "5": "fbgemm", "7": "fbgemm"})
    needs = {node.name for node in read(full).stamp.nodes if node.requires_full_range}
    assert needs
    model = qtool.load(full, engine="auto")
    assert {model.placement[name].engine for name in needs} == {"qnnpack"}
    with pytest.warns(QtoolWarning, match="not right for every node here; they are timed again"):
        again = RuntimeModel(read(full), "auto", known=dict.fromkeys(model.placement, "fbgemm"))
    assert {again.placement[name].engine for name in needs} == {"qnnpack"}


def test_timing_is_bounded(reduced, monkeypatch):
    monkeypatch.setattr(fastest, "MOST_ROUNDS", 10**9)
    start = time.perf_counter()
    qtool.load(reduced, engine="auto")
    assert time.perf_counter() - start < 10  # of which 0.1 s are timing


def test_what_was_found_is_kept_beside_the_file_and_taken_from_there(reduced, monkeypatch, recwarn):
    kept = reduced.with_name("int8.pt2.engines.json")
    kept.unlink(missing_ok=True)
    slowed(monkeypatch, {"0": "onednn", "3": "fbgemm", "5": "qnnpack", "7": "fbgemm"})
    first = qtool.load(reduced, engine="auto", cache=True)
    monkeypatch.setattr(fastest, "_fastest", None)  # would fail: nothing is timed
    again = qtool.load(reduced, engine="auto", cache=True)
    assert again.placement == first.placement
    content = json.loads(kept.read_text())
    assert content["key"]["content_digest"] == first.stamp.content_digest
    assert content["key"]["shapes"] == [[1, 3, 16, 16]]
    assert not recwarn.list
    assert sorted(file.name for file in reduced.parent.iterdir()) == ["int8.pt2", "int8.pt2.engines.json"]


BROKEN = {
    "empty": b"",
    "no json": b"{",
    "a list": b"[]",
    "no engines": b'{"format_version": 1, "engines": 3}',
    "binary": b"\xff\xfe",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_ignored_with_a_warning(reduced, content):
    kept = reduced.with_name("int8.pt2.engines.json")
    kept.write_bytes(content)
    with pytest.warns(QtoolWarning, match="engines are timed again, and it is written anew"):
        qtool.load(reduced, engine="auto", cache=True)
    assert set(json.loads(kept.read_text())["engines"]) == {"0", "3", "5", "7"}


@pytest.mark.parametrize("what", ["torch", "cpu", "threads", "content_digest"])
def test_a_file_made_elsewhere_is_ignored_with_a_warning(reduced, what):
    kept = reduced.with_name("int8.pt2.engines.json")
    kept.unlink(missing_ok=True)
    qtool.load(reduced, engine="auto", cache=True)
    content = json.loads(kept.read_text())
    content["key"][what] = "another"
    kept.write_text(json.dumps(content))
    with pytest.warns(QtoolWarning, match="was made for another file, machine"):
        qtool.load(reduced, engine="auto", cache=True)
    assert json.loads(kept.read_text())["key"][what] != "another"


def test_the_shapes_of_the_example_count(reduced):
    kept = reduced.with_name("int8.pt2.engines.json")
    kept.unlink(missing_ok=True)
    qtool.load(reduced, engine="auto", cache=True, example=torch.randn(4, 3, 16, 16))
    assert json.loads(kept.read_text())["key"]["shapes"] == [[4, 3, 16, 16]]


def test_options_that_would_be_ignored_are_refused(reduced):
    with pytest.raises(UsageError, match="cache is used by engine='auto' alone"):
        qtool.load(reduced, cache=True)
    with pytest.raises(UsageError, match="example is used by engine='auto' alone"):
        qtool.load(reduced, engine="fbgemm", example=torch.randn(1, 3, 16, 16))
    with pytest.raises(UsageError, match="keeps a file beside the model's"):
        qtool.load(reduced.read_bytes(), engine="auto", cache=True)
    with pytest.raises(UsageError, match="has shape"):
        qtool.load(reduced, engine="auto", example=torch.randn(1, 3, 8, 8))
