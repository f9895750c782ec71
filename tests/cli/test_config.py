"""`qtool config`, and `--set` and `extends` where commands read a config."""

import json

import pytest

from qtool.cli.main import run
from qtool.config.load import load_config
from tests.cli.process import call

TOP = "version: 1\nextends: model.yaml\ntarget: {isa: vnni}\n"


@pytest.fixture
def qtool(capsys):
    def command(*words):
        status = run([str(word) for word in words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


@pytest.fixture
def top(write_config, tmp_path):
    """A file that extends model.yaml."""
    write_config()
    path = tmp_path / "top.yaml"
    path.write_text(TOP)
    return path


def test_check_of_a_right_config(qtool, top):
    assert qtool("config", "check", top) == (0, f"{top}: ok\n", "")


def test_check_reports_all_problems(qtool, write_config, top):
    base = write_config({"target.backend": "qnpack", "modle": 1})
    status, out, err = qtool("config", "check", top, "--set", "target.isa=vni", "--set", "a.b=1")
    assert (status, out) == (2, "")
    places = [line.split(": ")[0].rsplit("/", 1)[-1] for line in err.splitlines()]
    assert places == ["--set #1", "--set #2", "model.yaml:19:14", "model.yaml:33:2"]
    assert f"{base}:33:2: modle: found an unknown key; " in err


def test_check_of_stdin():
    result = call(["config", "check", "-"], input=b"version: 1\ntarget: {backend: fbgemm}\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"stdin: ok\n", "")


def test_show_is_the_same_config_again(qtool, top, tmp_path):
    status, out, err = qtool("config", "show", top, "--set", "quantize.skip=[a]")
    assert (status, err) == (0, "")
    (tmp_path / "settled.yaml").write_text(out)
    assert load_config(tmp_path / "settled.yaml").digest() == load_config(top, ["quantize.skip=[a]"]).digest()
    assert "  skip: [a]\n" in out


def test_show_with_origins(qtool, top, tmp_path):
    status, out, _ = qtool("config", "show", top, "--origin", "--set", "model.inputs.0.shape=[batch,3,64,64]")
    lines = out.splitlines()
    assert status == 0
    assert lines[:4] == [
        f"version: 1  # {top}:1:10",
        "model:",
        f"  factory: tests.cli.models:noisy_classifier  # {tmp_path}/model.yaml:4:14",
        "  kwargs: {}  # default",
    ]
    assert lines[lines.index("      shape:") + 1 :][:4] == [
        f"        - {size}  # --set #1" for size in ("batch", 3, 64, 64)
    ]
    assert f"  isa: vnni  # {top}:3:15" in lines
    assert "  reduce_range: auto  # default" in lines
    assert all("  # " in line for line in lines if not line.endswith((":", "-")))


def test_show_as_json(qtool, top):
    status, out, _ = qtool("config", "show", top, "--json")
    facts = json.loads(out)
    assert (status, sorted(facts), facts["config"]["target"]) == (
        0,
        ["config", "schema_version"],
        {"backend": "fbgemm", "isa": "vnni"},
    )
    origin = json.loads(qtool("config", "show", top, "--json", "--origin")[1])["origin"]
    assert origin["target.isa"] == f"{top}:3:15"
    assert origin["quantize.overrides"] == "default"


def test_show_does_not_hand_escapes_to_the_terminal(qtool, tmp_path):
    path = tmp_path / "a\x1b[2J.yaml"
    path.write_text('version: 1\ntarget: {backend: fbgemm}\nquantize: {skip: ["\\e[2J"]}\n')
    for words in (["check"], ["show"], ["show", "--origin"]):
        status, out, _ = qtool("config", words[0], path, *words[1:])
        assert (status, "\x1b" in out) == (0, False)


def test_schema_is_json(qtool):
    status, out, _ = qtool("config", "schema")
    assert (status, json.loads(out)["$schema"]) == (0, "https://json-schema.org/draft/2020-12/schema")


def test_a_wrong_name_below_config(qtool):
    status, _, err = qtool("config", "chek")
    assert status == 2
    assert "there is no command 'config chek'; did you mean 'check'?" in err


def test_prepare_and_evaluate_take_settings(qtool, top, tmp_path):
    out = tmp_path / "out.pt2"
    status, text, _ = qtool("prepare", top, "--dry-run", "--json", "--set", "target.backend=qnnpack")
    assert (status, json.loads(text)["plan"]["backends"]) == (0, ["qnnpack"])
    words = ("--set", "data.calibrate.count=8")
    assert qtool("prepare", top, "-o", out, *words)[0] == 0
    status, _, err = qtool("evaluate", out, "--config", top, *words)
    assert status == 0
    assert "another config" not in err
    assert "another config" in qtool("evaluate", out, "--config", top)[2]


@pytest.mark.parametrize("words", [["prepare", "{top}", "-o", "-"], ["evaluate", "x.pt2", "--config", "{top}"]])
def test_a_wrong_setting_ends_the_command(qtool, top, words):
    status, _, err = qtool(*(word.format(top=top) for word in words), "--set", "target.bakend=x86")
    assert status == 2
    assert err == ("--set #1: target.bakend: found an unknown key; allowed: backend, isa; did you mean 'backend'?\n")


def test_a_file_that_the_config_extends_is_never_written_over(qtool, top, tmp_path):
    base = tmp_path / "model.yaml"
    before = base.read_bytes()
    status, _, err = qtool("prepare", top, "-o", base)
    assert status == 2
    assert "is read by this command and would be lost" in err
    assert base.read_bytes() == before
