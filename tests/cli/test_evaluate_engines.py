"""`qtool evaluate --engine --on-mismatch` on a model made for CPUs with VNNI, on one that counts as without."""

import json

import pytest

from qtool.cli.main import run
from qtool.runtime import fastest
from tests.cli.conftest import write_config_to


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vnni")
    config = write_config_to(folder / "model.yaml", {"target": {"backend": "onednn", "isa": "vnni"}})
    assert run(["prepare", str(config), "-o", str(folder / "prepared.pt2")]) == 0
    assert run(["convert", str(folder / "prepared.pt2"), "-o", str(folder / "int8.pt2")]) == 0
    return folder / "int8.pt2", config


@pytest.fixture
def evaluate(made, monkeypatch, capfd):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")

    def run_and_read(*options):
        capfd.readouterr()
        status = run(["evaluate", str(made[0]), "--config", str(made[1]), *options])
        return status, *capfd.readouterr()

    return run_and_read


def test_nodes_that_would_saturate_run_on_qnnpack_with_one_warning(evaluate):
    status, out, err = evaluate("--json")
    facts = json.loads(out)
    assert status == 0
    assert facts["engine"] == "qnnpack"
    assert set(facts["engines"]) == {"qnnpack"}
    assert facts["overrides"] == []
    assert err.count("warning: ") == 1
    assert "instead of onednn: the input needs its full range" in err


def test_the_engine_asked_for_is_refused(evaluate):
    status, out, err = evaluate("--engine", "onednn")
    assert (status, out) == (3, "")
    assert "would saturate without a message" in err
    assert "--on-mismatch fallback" in err


def test_warn_is_in_every_report(evaluate):
    status, out, err = evaluate("--engine", "onednn", "--on-mismatch", "warn", "--json")
    assert status == 0
    overrides = json.loads(out)["overrides"]
    assert {override["engine"] for override in overrides} == {"onednn"}
    assert "adds products in int16" in overrides[0]["why"]
    assert "warning: onednn runs " in err
    status, out, _ = evaluate("--engine", "onednn", "--on-mismatch", "warn")
    names = [override["node"] for override in overrides]
    assert [line.split()[1] for line in out.splitlines() if line.startswith("override: ")] == names


def test_fallback_says_which_engines_ran(evaluate):
    status, out, _ = evaluate("--engine", "onednn", "--on-mismatch", "fallback", "--json")
    assert status == 0
    assert json.loads(out)["overrides"] == []
    assert json.loads(out)["engine"] == "qnnpack"


@pytest.mark.parametrize(
    ("options", "hint"),
    [(("--engine", "qnpack"), "did you mean 'qnnpack'?"), (("--on-mismatch", "fallbak"), "'fallback'")],
)
def test_unknown_names_end_with_status_2_and_the_nearest(evaluate, options, hint):
    status, out, err = evaluate(*options)
    assert (status, out) == (2, "")
    assert hint in err


def test_auto_takes_engines_that_are_right(evaluate, monkeypatch):
    monkeypatch.setattr(fastest, "SECONDS", 0.1)
    status, out, err = evaluate("--engine", "auto", "--json")
    assert status == 0
    assert json.loads(out)["overrides"] == []
    assert sum(json.loads(out)["engines"].values()) == 2
    assert "warning" not in err
