import sys

import pytest
import torch
from sklearn.datasets import load_digits

from qtool.config.schema import DigitsSource
from qtool.data.digits import open_digits
from qtool.errors import EXIT_MISSING, MissingDependencyError


def opened(split):
    return open_digits(DigitsSource(kind="digits", split=split))


def test_the_splits_are_the_first_1437_and_the_last_360():
    train, test = opened("train"), opened("test")
    assert (len(train), len(test)) == (1437, 360)
    whole = load_digits()
    for split, start in ((train, 0), (test, 1437)):
        for index in (0, 359):
            sample = split[index]
            assert sample.label == whole.target[start + index]
            assert torch.equal(sample.inputs[0] * 16, torch.from_numpy(whole.images[start + index]).float()[None])


def test_a_digit_is_one_channel_of_8_by_8_from_0_to_1():
    digits = opened("train")
    pictures = torch.stack([digits[i].inputs[0] for i in range(len(digits))])
    assert pictures.shape == (1437, 1, 8, 8)
    assert pictures.dtype == torch.float32
    assert (pictures.min().item(), pictures.max().item()) == (0.0, 1.0)


def test_a_missing_scikit_learn_is_said_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match="python -m pip install scikit-learn") as caught:
        opened("test")
    assert caught.value.exit_code == EXIT_MISSING
