"""Commands as processes, joined by pipes and interrupted; few, since each imports torch."""

import signal

from qtool.cli.main import run
from tests.cli.conftest import write_config_to
from tests.cli.process import ROOT, call, names_in, start, wait_for


def test_prepare_and_convert_in_one_pipeline(tmp_path, files):
    config = write_config_to(tmp_path / "model.yaml", {})
    with start(["prepare", config, "-o", "-"], cwd=ROOT) as prepare:
        convert = call(["convert", "-", "-o", tmp_path / "int8.pt2", "--verify"], cwd=ROOT, stdin=prepare.stdout)
        said = prepare.stderr.read().decode()
    assert (prepare.returncode, convert.returncode) == (0, 0)
    # The model's code printed, also from C, and not a byte of it got into the pipe.
    assert "noise: the factory prints" in said
    assert "noise: from C" in said
    assert "noise" not in convert.stderr
    assert convert.stdout.startswith(b"node  steps\n")
    assert names_in(tmp_path) == ["int8.pt2", "model.yaml"]
    # By files or by pipe, in one process or in two: the same bytes.
    assert (tmp_path / "int8.pt2").read_bytes() == (files / "int8.pt2").read_bytes()
    assert run(["inspect", str(tmp_path / "int8.pt2")]) == 0


def test_ctrl_c_while_the_model_is_built(tmp_path):
    config = write_config_to(tmp_path / "model.yaml", {"model.factory": "tests.cli.models:slow_classifier"})
    with (
        start(["prepare", config, "-o", "-"], cwd=ROOT) as prepare,
        start(["convert", "-", "-o", tmp_path / "int8.pt2"], cwd=ROOT, stdin=prepare.stdout) as convert,
    ):
        wait_for(prepare, "the model is being built")
        prepare.send_signal(signal.SIGINT)
        assert prepare.stderr.read() == b"qtool prepare: interrupted; nothing was written\n"
        prepare.stdout.close()
        assert convert.stderr.read().startswith(b"qtool convert: nothing came in")
    assert (prepare.returncode, convert.returncode) == (130, 2)
    assert names_in(tmp_path) == ["model.yaml"]
