"""The commands on a small model: what each prints, what it writes, and the status it ends with."""

import io
import json
import sys
import zipfile

import pytest
from PIL import Image

from qtool.cli.main import run
from qtool.workflows import verify


@pytest.fixture
def qtool(capfd):
    """A function that runs a command line and returns (status, stdout, stderr)."""

    def run_and_read(*arguments):
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run_and_read


def test_prepare_says_what_it_made(qtool, write_config, tmp_path):
    status, out, err = qtool("prepare", write_config(), "-o", tmp_path / "prepared.pt2", "--json")
    assert status == 0
    facts = json.loads(out)
    assert facts["backend"] == "fbgemm"
    assert facts["num_int8"] + facts["num_float"] == facts["num_nodes"]
    assert facts["bytes"] == (tmp_path / "prepared.pt2").stat().st_size
    assert "calibrate: 16 of 16 samples" in err
    assert f"{tmp_path}/prepared.pt2: " in err


def test_prepare_without_output_asks_where(qtool, write_config):
    status, out, err = qtool("prepare", write_config())
    assert (status, out) == (2, "")
    assert "Give -o FILE, or -o - for a pipe; --dry-run shows the plan and writes nothing" in err


def test_dry_run_prints_the_plan(qtool, write_config):
    status, out, err = qtool("prepare", write_config(), "--dry-run")
    assert status == 0
    for word in ("int8", "uint8", "127", "channel", "fbgemm"):
        assert word in out
    assert "noise" not in out
    assert "noise: the factory prints" in err


def test_dry_run_as_json(qtool, write_config):
    status, out, _ = qtool("prepare", write_config(), "--dry-run", "--json")
    assert status == 0
    assert json.loads(out)["plan"]["backends"] == ["fbgemm"]


def test_config_from_stdin(qtool, write_config, monkeypatch):
    content = write_config().read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    status, out, _ = qtool("prepare", "-", "--dry-run", "--json")
    assert status == 0
    assert json.loads(out)["plan"]["backends"] == ["fbgemm"]
    wrong = content.replace(b"fbgemm", b"fbgem")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(wrong)))
    status, _, err = qtool("prepare", "-", "--dry-run")
    assert status == 2
    assert err.startswith("stdin:")


def test_one_stdin_is_not_two_files(qtool):
    status, _, err = qtool("evaluate", "-", "--config", "-")
    assert status == 2
    assert "FILE and --config cannot both be standard input" in err


def test_dry_run_and_output_contradict(qtool, write_config, tmp_path):
    status, _, err = qtool("prepare", write_config(), "--dry-run", "-o", tmp_path / "x")
    assert status == 2
    assert "--dry-run writes no model" in err


def test_seed_decides_the_random_weights(qtool, write_config, tmp_path):
    config = write_config({"data.calibrate": None})
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        status, _, err = qtool("prepare", config, "-o", tmp_path / name, "--seed", seed)
        assert status == 0
        assert "note: not calibrated" in err
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


def test_convert_verify(qtool, files, tmp_path):
    status, out, err = qtool("convert", files / "prepared.pt2", "-o", tmp_path / "x.pt2", "--verify")
    assert status == 0
    steps = [int(line.split()[-1]) for line in out.splitlines()[1:]]
    assert steps
    assert max(steps) <= 1
    assert (tmp_path / "x.pt2").read_bytes() == (files / "int8.pt2").read_bytes()
    assert "nodes int8 for fbgemm (isa any)" in err


def test_convert_verify_writes_nothing_that_is_wrong(qtool, files, tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "verify", lambda *_, **__: {"0": 1, "4": 2})
    status, out, err = qtool("convert", files / "prepared.pt2", "-o", tmp_path / "x.pt2", "--verify", "--json")
    assert status == 1
    facts = json.loads(out)
    assert (facts["steps"], facts["output"]) == ({"0": 1, "4": 2}, None)
    assert "nothing was written" in err
    assert not (tmp_path / "x.pt2").exists()


def test_convert_to_another_backend(qtool, files, tmp_path):
    status, out, _ = qtool(
        "convert", files / "prepared.pt2", "-o", tmp_path / "x.pt2", "--backend", "qnnpack", "--json"
    )
    assert status == 0
    assert json.loads(out)["backend"] == "qnnpack"


@pytest.mark.parametrize("option", ["--backend=qnnpack", "--allow-uncalibrated"])
def test_verify_compares_with_the_model_as_it_is_converted(qtool, files, tmp_path, option):
    status, out, _ = qtool("convert", files / "prepared.pt2", "-o", tmp_path / "x.pt2", "--verify", "--json", option)
    assert status == 0
    steps = json.loads(out)["steps"]
    assert steps
    assert max(steps.values()) <= 1


def test_case_19_convert_without_calibration(qtool, write_config, tmp_path):
    config = write_config({"data.calibrate": None})
    assert qtool("prepare", config, "-o", tmp_path / "prepared.pt2")[0] == 0
    status, _, err = qtool("convert", tmp_path / "prepared.pt2", "-o", tmp_path / "int8.pt2")
    assert status == 3
    assert "saw no data" in err
    assert "--allow-uncalibrated" in err
    assert not (tmp_path / "int8.pt2").exists()
    status, out, _ = qtool(
        "convert", tmp_path / "prepared.pt2", "-o", tmp_path / "int8.pt2", "--allow-uncalibrated", "--json"
    )
    assert status == 0
    assert json.loads(out)["num_int8"] == 0


@pytest.mark.parametrize("command", ["prepare", "convert"])
def test_json_and_a_model_do_not_fit_into_one_stdout(qtool, files, command):
    source = files / ("model.yaml" if command == "prepare" else "prepared.pt2")
    status, out, err = qtool(command, source, "-o", "-", "--json")
    assert (status, out) == (2, "")
    assert "--json and -o - would both write to standard output" in err


def test_evaluate_prints_a_row_for_each_model(qtool, files):
    status, out, _ = qtool("evaluate", files / "int8.pt2", "--config", files / "model.yaml")
    assert status == 0
    header, float_row, int8_row, samples = out.splitlines()
    assert header.split() == ["model", "accuracy", "agreement", "SQNR", "dB", "size"]
    assert float_row.startswith("float ")
    assert int8_row.startswith("converted, fbgemm ")
    assert samples == "8 samples, 8 labels"


@pytest.mark.parametrize("engine", ["fbgemm", "qnnpack", "onednn", "x86"])
def test_evaluate_on_each_engine(qtool, files, engine):
    status, out, err = qtool(
        "evaluate", files / "int8.pt2", "--config", files / "model.yaml", "--engine", engine, "--json"
    )
    assert status == 0
    facts = json.loads(out)
    assert facts["engine"] == engine
    assert facts["sqnr_db"] > 15
    assert facts["num_samples"] == facts["num_labelled"] == 8
    assert facts["float_bytes"] == 4 * (8 * 3 * 9 + 8 + 8 * 4 + 4)
    assert facts["file_bytes"] == (files / "int8.pt2").stat().st_size
    assert "evaluate: 8 of 8 samples" in err
    assert "noise: the data prints" in err


def test_evaluate_a_prepared_file(qtool, files):
    status, out, _ = qtool("evaluate", files / "prepared.pt2", "--config", files / "model.yaml", "--json")
    assert status == 0
    assert json.loads(out)["stage"] == "prepared"
    status, _, err = qtool("evaluate", files / "prepared.pt2", "--config", files / "model.yaml", "--engine", "x86")
    assert status == 2
    assert "a prepared file runs on no engine; convert it first" in err


def test_evaluate_says_that_the_config_is_another(qtool, files, write_config):
    _, _, err = qtool("evaluate", files / "int8.pt2", "--config", files / "model.yaml")
    assert "note:" not in err
    other = write_config({"data.evaluate.batch_size": 8})
    status, _, err = qtool("evaluate", files / "int8.pt2", "--config", other)
    assert status == 0
    assert "note: the file was prepared with another config" in err


def test_evaluate_says_that_pictures_are_preprocessed_in_another_way(qtool, write_config, tmp_path):
    (tmp_path / "photos").mkdir()
    for label in range(4):
        Image.new("RGB", (8, 8), (40 * label, 10, 99)).save(tmp_path / "photos" / f"cat_{label}.png")
    photos = {"kind": "photos", "folder": "photos", "glob": "*.png", "label": "_([0-9])", "preprocess": {"mean": [0.5]}}
    config = write_config({"data.calibrate": photos, "data.evaluate": photos})
    assert qtool("prepare", config, "-o", tmp_path / "prepared.pt2")[0] == 0
    status, _, err = qtool("evaluate", tmp_path / "prepared.pt2", "--config", config)
    assert (status, "note:" in err) == (0, False)
    photos["preprocess"] = {"mean": [0.25]}
    config = write_config({"data.calibrate": photos, "data.evaluate": photos})
    status, _, err = qtool("evaluate", tmp_path / "prepared.pt2", "--config", config)
    assert status == 0
    assert "note: pictures are preprocessed in another way than for calibration: " in err
    assert "mean [0.25] (calibrated with [0.5])" in err


def test_evaluate_needs_data(qtool, files, write_config):
    config = write_config({"data.evaluate": None})
    status, _, err = qtool("evaluate", files / "int8.pt2", "--config", config)
    assert status == 2
    assert f"{config}:" in err
    assert "data.evaluate: nothing found" in err


def test_inspect_fits(qtool, files):
    status, out, err = qtool("inspect", files / "int8.pt2")
    assert (status, err) == (0, "")
    assert "fbgemm" in out


def test_inspect_shows_a_mismatch(qtool, files):
    status, out, _ = qtool("inspect", files / "int8.pt2", "--backend", "qnnpack", "--json")
    assert status == 1
    assert "QT301" in {finding["code"] for finding in json.loads(out)["findings"]}


def test_inspect_of_a_file_without_a_stamp_is_never_ok(qtool, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}.")
    status, out, _ = qtool("inspect", tmp_path / "model.pt")
    assert status == 1
    assert "QT201" in out


def test_backends_shows_host_and_catalog(qtool):
    status, out, _ = qtool("backends")
    assert status == 0
    for name in ("fbgemm", "x86", "onednn", "qnnpack", "onnxruntime", "xnnpack"):
        assert name in out


def test_one_backend_with_its_sources(qtool):
    status, out, _ = qtool("backends", "fbgemm")
    assert status == 0
    assert "conv2d" in out
    assert "https://" in out


def test_backends_as_json(qtool):
    status, out, _ = qtool("backends", "--json")
    assert status == 0
    facts = json.loads(out)
    assert {backend["name"] for backend in facts["backends"]} >= {"fbgemm", "qnnpack"}
    assert facts["schema_version"] == 1


def test_user_code_is_imported_only_by_the_command_that_got_the_config(qtool, files, tmp_path):
    sys.modules.pop("tests.cli.models", None)
    assert qtool("inspect", files / "int8.pt2")[0] == 0
    assert qtool("convert", files / "prepared.pt2", "-o", tmp_path / "x.pt2")[0] == 0
    assert "tests.cli.models" not in sys.modules


def test_convert_moves_a_converted_file_and_reports_it(qtool, files, tmp_path):
    moved = tmp_path / "moved.pt2"
    status, out, err = qtool("convert", files / "int8.pt2", "--backend", "qnnpack", "-o", moved, "--json")
    assert status == 0
    report = json.loads(out)
    assert report["backend"] == "qnnpack"
    assert (report["moved"]["before"], report["moved"]["after"]) == (["fbgemm"], ["qnnpack"])
    assert "that qnnpack does not need: accuracy is left on the table" in err
    assert "every code, scale and range is as it was" in err
    assert qtool("inspect", moved)[0] == 0


def test_convert_moves_only_where_it_is_told_to(qtool, files, tmp_path):
    status, _, err = qtool("convert", files / "int8.pt2", "-o", tmp_path / "again.pt2")
    assert status == 2
    assert "is converted already" in err
    assert "name that with --backend" in err
    status, _, err = qtool("convert", files / "int8.pt2", "--backend", "x86", "--verify", "-o", tmp_path / "again.pt2")
    assert status == 2
    assert "moving changes no number" in err
    status, _, err = qtool("convert", files / "int8.pt2", "--backend", "xnnpack", "-o", tmp_path / "again.pt2")
    assert status == 3
    assert "its codes are uint8, and xnnpack takes int8" in err
    assert not (tmp_path / "again.pt2").exists()


def test_convert_for_several_backends_verifies_each_engine(qtool, files, tmp_path):
    output = tmp_path / "portable.pt2"
    status, out, err = qtool(
        "convert", files / "prepared.pt2", "--backend", "portable", "-o", output, "--verify", "--json"
    )
    assert status == 0
    report = json.loads(out)
    assert report["backend"] == "portable"
    assert max(report["steps"].values()) <= 1
    assert "cost of fbgemm, x86, onednn, onnxruntime: 7 bits instead of 8 for the input" in err
    assert qtool("inspect", output)[0] == 0


def test_backends_shows_what_holds_on_several(qtool):
    status, out, _ = qtool("backends", "portable", "--json")
    assert status == 0
    (portable,) = json.loads(out)["backends"]
    rules = {rule["op"]: rule for rule in portable["rules"]}
    assert rules["conv2d"]["saturates"] == "without_vnni"
    assert rules["conv_transpose2d"]["support"] == "unsupported"
    assert "conv_transpose2d: unsupported. x86, onednn, onnxruntime" in qtool("backends", "portable")[1]
    assert qtool("backends", "x86,xnnpack")[0] == 2
