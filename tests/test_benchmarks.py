"""The benchmarks, where nobody has the time to run them whole: they come to their end, and say what is so."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import torch
from torch import nn

import qtool
from benchmarks import training

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def tiny(_name: str, _options: object) -> tuple[nn.Module, object, torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)).train()
    x = torch.randn(4, 3, 8, 8)
    prepared = qtool.prepare(model, x[:2], training.CONFIG)
    qtool.calibrate(prepared, [x])
    return model, prepared, x


def here(work: Callable[..., list[object]], *args: object) -> list[object]:
    return work(*args)


def process_ids() -> list[int]:
    return [os.getpid()]


def test_training_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "made", tiny)
    monkeypatch.setattr(training, "in_own_process", here)
    argv = ["training", "--models", "resnet18", "--rounds", "1", "--modes", "compressed", "--autocast", "--off-to-on"]
    monkeypatch.setattr(sys, "argv", [*argv, "--json", str(tmp_path / "out.json")])
    status = training.main()
    facts = json.loads((tmp_path / "out.json").read_text())
    verdicts = [verdict for row in facts["rows"] for verdict in row["verdicts"].values()]
    verdicts += [saving["verdict"] for saving in facts["autocast"]]
    assert status == int(any(verdict.startswith("NOT MET") for verdict in verdicts))
    ways = [row["cost"]["name"] for row in facts["rows"]]
    assert ways == ["float", "compressed", "fake-quantize off", "compressed"]
    assert [saving["way"] for saving in facts["autocast"]] == ["float", "compressed"]
    assert "ratios to fake-quantize off" in capsys.readouterr().out


def test_each_table_of_training_is_measured_in_a_fresh_process() -> None:
    # The first comparison fixes malloc for good, so a second one would call "default" what is not.
    first, second = (training.in_own_process(process_ids) for _ in range(2))
    assert len({*first, *second, *process_ids()}) == 3
