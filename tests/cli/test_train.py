"""`qtool train` as people and shells use it: killed, interrupted, resumed, in pipes."""

import json
import signal
import sys

import pytest

from qtool.cli.main import run
from qtool.cli.train_progress import in_words, training_progress
from qtool.training.metrics import Record
from tests.cli.process import ROOT, call, environment, names_in
from tests.workflows.training_parts import CONFIG

IN_EPOCH_3 = 1 + 24 + 24 + 10
"""Samples read before the tenth of epoch 3: the first one is looked at when the source is opened."""


def write_config(path, **changes):
    tree = json.loads(json.dumps({"version": 1, **CONFIG}))
    tree["train"] = {**tree["train"], "keep": 1, **changes}
    path.write_text(json.dumps(tree, indent=1))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a training that nothing interrupted: model.yaml, prepared.pt2, trained.pt2."""
    folder = tmp_path_factory.mktemp("whole")
    config = str(write_config(folder / "model.yaml"))
    assert run(["prepare", config, "-o", str(folder / "prepared.pt2")]) == 0
    assert run(["train", config, "-o", str(folder / "trained.pt2")]) == 0
    return folder


def train(folder, *options, config=None):
    return run(["train", str(config or folder / "model.yaml"), "-o", str(folder / "trained.pt2"), *map(str, options)])


def test_killed_in_the_middle_of_an_epoch_and_resumed_it_ends_in_the_same_bytes(whole, tmp_path):
    config = write_config(tmp_path / "model.yaml")
    arguments = ["train", config, "-o", tmp_path / "trained.pt2", "--checkpoints", tmp_path / "run"]
    killed = call(arguments, cwd=ROOT, env=environment(QTOOL_TEST_END=f"kill {IN_EPOCH_3}"))
    assert killed.returncode == -signal.SIGKILL
    assert names_in(tmp_path) == ["model.yaml", "run"]
    assert names_in(tmp_path / "run") == ["epoch-0002.zip"]
    assert train(tmp_path, "--resume", tmp_path / "run") == 0
    assert (tmp_path / "trained.pt2").read_bytes() == (whole / "trained.pt2").read_bytes()
    assert names_in(tmp_path / "run") == ["epoch-0004.zip"]


def test_ctrl_c_names_the_last_checkpoint(tmp_path, monkeypatch, capsys):
    write_config(tmp_path / "model.yaml")
    monkeypatch.setenv("QTOOL_TEST_END", f"interrupt {IN_EPOCH_3}")
    assert train(tmp_path, "--checkpoints", tmp_path / "run") == 130
    last = capsys.readouterr().err.splitlines()[-1]
    run_folder = tmp_path / "run"
    assert last == (
        f"qtool train: interrupted; {run_folder}/epoch-0002.zip holds what was trained before; "
        f"go on with --resume {run_folder}"
    )
    assert names_in(tmp_path) == ["model.yaml", "run"]
    monkeypatch.setenv("QTOOL_TEST_END", "interrupt 30")
    assert train(tmp_path) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "qtool train: interrupted; nothing was written"


def test_in_the_middle_of_a_pipeline(whole):
    """A prepared model comes in on stdin, the trained one goes out on stdout, and nothing else does."""
    prepared = (whole / "prepared.pt2").read_bytes()
    arguments = ["train", whole / "model.yaml", "--prepared", "-", "-o", "-"]
    result = call(arguments, cwd=ROOT, input=prepared)
    assert result.returncode == 0
    assert result.stdout == (whole / "trained.pt2").read_bytes()
    assert "epoch 4/4, observers and batch norm frozen: loss " in result.stderr


def test_what_it_says(whole, tmp_path, capsys):
    write_config(tmp_path / "model.yaml")
    assert train(tmp_path, "--json", "--metrics", tmp_path / "m.jsonl", config=whole / "model.yaml") == 0
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert (facts["epoch"], facts["epochs"], facts["num_float"]) == (4, 4, 0)
    assert facts["bytes"] == (tmp_path / "trained.pt2").stat().st_size
    lines = said.err.splitlines()
    assert [line.partition(":")[0] for line in lines[:3]] == [
        "epoch 1/4, observe",
        "epoch 2/4, observe",
        "epoch 3/4, batch norm frozen",
    ]
    assert f"epoch 4 of 4: accuracy {facts['accuracy']:.3f} on data.evaluate, fake-quantized" in said.err
    metrics = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert metrics[-1]["evaluate_accuracy"] == facts["accuracy"]


def test_the_result_converts_and_runs(whole, tmp_path, capsys):
    assert run(["convert", str(whole / "trained.pt2"), "-o", str(tmp_path / "int8.pt2"), "--verify"]) == 0
    assert run(["inspect", str(whole / "trained.pt2")]) == 0
    assert "trained, by qtool" in capsys.readouterr().out


def test_a_seed_on_the_command_line_is_that_of_the_config(tmp_path):
    write_config(tmp_path / "model.yaml", epochs=2)
    assert train(tmp_path, "--seed", 7) == 0
    by_option = (tmp_path / "trained.pt2").read_bytes()
    assert train(tmp_path, "--set", "train.seed=7") == 0
    assert (tmp_path / "trained.pt2").read_bytes() == by_option
    assert train(tmp_path, "--set", "train.seed=8") == 0
    assert (tmp_path / "trained.pt2").read_bytes() != by_option


def test_prepare_says_that_training_comes_next(whole, tmp_path, capsys):
    assert run(["prepare", str(whole / "model.yaml"), "-o", str(tmp_path / "p.pt2")]) == 0
    said = capsys.readouterr().err
    assert "note: training comes next: `qtool train CONFIG --prepared FILE`" in said
    assert "not calibrated" not in said


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--prepared", "p.pt2", "--resume", "run"], 2, "a checkpoint holds its model; leave --prepared out"),
        (["--allow-config-change"], 2, "says something about --resume only"),
        (["--resume", "run"], 2, "--resume: 'run' does not exist"),
        (["--prepared", "gone.pt2"], 2, "there is no file 'gone.pt2'"),
        (["--set", "train.epochs=0"], 2, "--set #1: train.epochs: found 0; allowed: at least 1"),
        (["--set", "train="], 2, "train: nothing found; needed: how the model is trained"),
        (["--metrics", "{folder}/trained.pt2"], 2, "the model would replace the metrics"),
        (["--metrics", "{folder}"], 2, "--metrics: cannot write"),
        (["--metrics", "-"], 2, "--metrics: '-' names no file"),
        (["--metrics", ""], 2, "--metrics: '' names no file"),
        (["--checkpoints", "-"], 2, "--checkpoints: '-' names no file"),
        (["--checkpoints", ""], 2, "--checkpoints: '' names no file"),
        (["--resume", "-"], 2, "--resume: '-' names no file"),
        (["--resume", ""], 2, "--resume: '' names no file"),
        (["--checkpoints", "{folder}/trained.pt2"], 2, "is where checkpoints of this training lie"),
        (["--prepared", "{files}/int8.pt2"], 2, "is converted already; train takes what `qtool prepare` wrote"),
        (["--prepared", "{files}/prepared.pt2"], 2, "the model was prepared with another config: quantize.mode"),
    ],
)
def test_wrong_questions(tmp_path, files, capsys, options, status, message):
    write_config(tmp_path / "model.yaml")
    filled = [option.format(folder=tmp_path, files=files) for option in options]
    assert train(tmp_path, *filled) == status
    assert message in capsys.readouterr().err
    assert names_in(tmp_path) == ["model.yaml"]


@pytest.fixture
def full_folder(whole, tmp_path):
    """A folder with a file of each kind that the command reads."""
    (tmp_path / "base.yaml").write_bytes(write_config(tmp_path / "model.yaml").read_bytes())
    (tmp_path / "model.yaml").write_text("version: 1\nextends: base.yaml\n")
    (tmp_path / "prepared.pt2").write_bytes((whole / "prepared.pt2").read_bytes())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "epoch-0001.zip").write_bytes(b"a checkpoint")
    (tmp_path / "linked").symlink_to("run")
    (tmp_path / "labels.json").write_text("{}")
    return tmp_path


def contents(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prepared", "prepared.pt2", "--metrics", "prepared.pt2"], "is read by this command and would be lost"),
        (["--metrics", "model.yaml"], "another file with --metrics"),
        (["--metrics", "base.yaml"], "is read by this command and would be lost"),
        (["--resume", "run/epoch-0001.zip", "--metrics", "linked/epoch-0001.zip"], "is read by this command"),
        (["--resume", "run", "--metrics", "linked/epoch-0001.zip"], "where checkpoints of this training lie"),
        (["--checkpoints", "run", "--metrics", "run/epoch-0002.zip"], "--metrics: 'run/epoch-0002.zip' is where"),
        (["--checkpoints", "new", "--metrics", "new"], "--metrics: 'new' is where checkpoints of this training lie"),
        (["--metrics", "labels.json"], "--metrics: 'labels.json' holds something else than metrics"),
        (["--metrics", "trained.pt2"], "the model would replace the metrics"),
        (["--resume", "run", "-o", "linked/epoch-0001.zip"], "-o: 'linked/epoch-0001.zip' is where checkpoints"),
        (["--resume", "run/epoch-0001.zip", "-o", "run/epoch-0007.zip"], "-o: 'run/epoch-0007.zip' is where"),
        (["--checkpoints", "new", "-o", "new/epoch-0001.zip"], "-o: 'new/epoch-0001.zip' is where checkpoints"),
        (["--checkpoints", "new", "-o", "new"], "-o: 'new' is where checkpoints of this training lie"),
    ],
)
def test_nothing_that_is_read_or_resumed_from_is_written_to(full_folder, monkeypatch, capsys, options, message):
    monkeypatch.chdir(full_folder)
    before = contents(full_folder)
    output = [] if "-o" in options else ["-o", "trained.pt2"]
    assert run(["train", "model.yaml", *output, *options]) == 2
    assert message in capsys.readouterr().err
    assert contents(full_folder) == before


def test_a_damaged_checkpoint_is_told_from_the_others(tmp_path, capsys):
    write_config(tmp_path / "model.yaml", epochs=2, keep=2)
    assert train(tmp_path, "--checkpoints", tmp_path / "run") == 0
    last = tmp_path / "run" / "epoch-0002.zip"
    last.write_bytes(last.read_bytes()[:-9])
    capsys.readouterr()
    assert train(tmp_path, "--resume", tmp_path / "run") == 3
    said = capsys.readouterr().err
    assert f"the checkpoint '{last}' is damaged: " in said
    assert f"delete it, and --resume {tmp_path}/run goes on from epoch-0001.zip" in said
    trained = (tmp_path / "trained.pt2").read_bytes()
    last.unlink()
    assert train(tmp_path, "--resume", tmp_path / "run") == 0
    assert (tmp_path / "trained.pt2").read_bytes() == trained


def test_a_line_for_each_epoch_and_the_time_that_is_left(capsys):
    with training_progress() as (on_batch, on_record):
        on_batch(10, 10)
        on_record(Record(event="start", epoch=1, epochs=4, step=10, steps=40))
        step = {"epochs": 4, "steps": 40, "phase": "observe", "loss": 0.5, "lr": 0.1, "samples_per_second": 99.6}
        on_record(Record(event="step", epoch=2, step=11, seconds=1.0, **step))
        on_record(Record(event="epoch", epoch=2, step=20, seconds=10.0, accuracy=0.75, evaluate_accuracy=0.5, **step))
        on_record(Record(event="epoch", epoch=4, step=40, seconds=30.0, **step))
        on_record(Record(event="end", epoch=4, epochs=4, step=40, steps=40))
    assert capsys.readouterr().err.splitlines() == [
        "calibrate: 10 of 10 samples",
        "epoch 2/4, observe: loss 0.5000, accuracy 0.750, evaluate 0.500, lr 0.1, 100 samples/s, 20 s left",
        "epoch 4/4, observe: loss 0.5000, lr 0.1, 100 samples/s",
    ]


def test_on_a_terminal_there_is_a_bar_and_a_line_for_each_epoch(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    known = {"epochs": 2, "steps": 4, "phase": "observe", "loss": 0.5, "lr": 0.1, "samples_per_second": 9.0}
    with training_progress() as (on_batch, on_record):
        on_batch(5, 10)
        on_record(Record(event="start", epoch=0, epochs=2, step=0, steps=4))
        on_record(Record(event="step", epoch=1, step=1, seconds=1.0, **known))
        on_record(Record(event="epoch", epoch=1, step=2, seconds=2.0, accuracy=0.25, **known))
        on_record(Record(event="end", epoch=2, epochs=2, step=4, steps=4))
    said = capsys.readouterr().err
    assert "epoch 1/2, observe: loss 0.5000, accuracy 0.250, lr 0.1, 9 samples/s, 2 s left" in said


@pytest.mark.parametrize(("seconds", "words"), [(7.2, "7 s"), (100, "1 min 40 s"), (7384, "2 h 3 min"), (0, "0 s")])
def test_durations(seconds, words):
    assert in_words(seconds) == words
