"""qtool bench: a table or JSON on stdout, progress on stderr, and what it refuses before any work."""

import io
import json
import sys

import pytest

from qtool.cli.main import run

QUICK = ("--rounds", "1", "--batch-size", "4", "--modes", "recompute")


@pytest.fixture
def bench(capfd):
    """A function that runs `qtool bench` and returns (status, stdout, stderr)."""

    def run_and_read(*arguments):
        capfd.readouterr()
        status = run(["bench", *map(str, arguments)])
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run_and_read


def test_table_of_a_config(bench, write_config):
    status, out, err = bench(write_config({"quantize.mode": "qat"}), *QUICK)
    assert status == 0
    header, in_float, recompute, how, malloc = out.splitlines()
    assert " ".join(header.split()) == "saved MiB ratio peak MiB ratio peak, fixed malloc ratio step ms ratio"
    assert in_float.split()[0] == "float"
    assert in_float.split()[2::2] == ["1.00"] * 4
    assert recompute.split()[0] == "recompute"
    assert len(recompute.split()) == 9
    assert how.startswith("random inputs of 4x3x8x8, contiguous, ")
    assert "median of 1 round; ratios are to float" in how
    assert "M_MMAP_THRESHOLD" in malloc
    assert "steps\n" in err
    assert "noise" not in out
    assert "note:" not in err


def test_json_of_a_prepared_file(bench, write_config, tmp_path):
    config = write_config({"quantize.mode": "qat"})
    assert run(["prepare", str(config), "-o", str(tmp_path / "prepared.pt2")]) == 0
    status, out, _ = bench(tmp_path / "prepared.pt2", *QUICK, "--json", "--memory-format", "channels_last")
    assert status == 0
    facts = json.loads(out)
    assert [cost["name"] for cost in facts["costs"]] == ["float", "recompute"]
    assert facts["memory_format"] == "channels_last"
    assert facts["shapes"] == [[4, 3, 8, 8]]
    assert facts["rounds"] == 1
    assert facts["schema_version"] == 1


def test_config_from_stdin(bench, write_config, monkeypatch):
    content = write_config().read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    status, out, err = bench("-", *QUICK, "--set", "data.calibrate.count=8")
    assert status == 0
    assert out
    assert "note: measured as with quantize.mode: qat" in err


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("int8.pt2", (), "is converted already, and has no training step"),
        ("prepared.pt2", (), "prepared with quantize.mode 'ptq'"),
        ("prepared.pt2", ("--set", "target.isa=vnni"), "--set replaces a value of a config"),
        ("model.yaml", ("--modes", "standard,compresed"), "'compresed' is no memory mode; did you mean 'compressed'?"),
        ("missing.yaml", (), "there is no file"),
        ("model.onnx", (), "model.onnx' is neither a config, which is text in UTF-8, nor a model file"),
    ],
)
def test_what_is_refused(bench, files, file, options, message):
    (files / "model.onnx").write_bytes(b"\x08\x0a\x12\x07pytorch\x00\xd5\x00")
    status, out, err = bench(files / file, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert "noise" not in err
