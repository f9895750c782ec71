import json
from pathlib import Path

import pytest

from qtool.errors import UsageError
from qtool.training.metrics import EPOCH, STEP, MetricsFile, Record


def step(number):
    return Record(event=STEP, epoch=1, epochs=2, step=number, steps=8, loss=0.5, accuracy=0.25, lr=0.1, seconds=1.5)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_is_a_line_without_what_is_not_known():
    assert json.loads(step(3).to_json()) == {
        "event": "step",
        "epoch": 1,
        "epochs": 2,
        "step": 3,
        "steps": 8,
        "loss": 0.5,
        "accuracy": 0.25,
        "lr": 0.1,
        "seconds": 1.5,
    }


def test_some_steps_are_written_and_every_other_event(tmp_path):
    with MetricsFile(tmp_path / "m.jsonl", every=3) as metrics:
        for number in range(1, 8):
            metrics.write(step(number))
        metrics.write(Record(event=EPOCH, epoch=1, epochs=2, step=7, steps=8))
    assert [(line["event"], line["step"]) for line in lines(tmp_path / "m.jsonl")] == [
        ("step", 3),
        ("step", 6),
        ("epoch", 7),
    ]


def test_a_line_is_in_the_file_at_once_and_what_was_there_stays(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"event": "end"}\n')
    with MetricsFile(tmp_path / "m.jsonl", every=1) as metrics:
        metrics.write(step(1))
        assert [line["event"] for line in lines(tmp_path / "m.jsonl")] == ["end", "step"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"--metrics: cannot write .*missing.*: No such file"):
        MetricsFile(tmp_path / "missing" / "m.jsonl", every=1)
    with MetricsFile(Path("/dev/full"), every=1) as metrics, pytest.raises(UsageError, match="No space left"):
        metrics.write(step(1))


@pytest.mark.parametrize("content", [b"a model", b"{}", b'{"version": 1}\n', b"PK\x03\x04"])
def test_a_file_that_holds_something_else_is_left_as_it_is(tmp_path, content):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(UsageError, match=r"--metrics: '.*/m' holds something else than metrics"):
        MetricsFile(tmp_path / "m", every=1)
    assert (tmp_path / "m").read_bytes() == content


def test_an_empty_file_is_written_to(tmp_path):
    (tmp_path / "m").touch()
    with MetricsFile(tmp_path / "m", every=1) as metrics:
        metrics.write(step(1))
    assert len(lines(tmp_path / "m")) == 1
