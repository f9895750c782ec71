import math

import pytest
import torch
from torch import nn

from qtool.data.batch import Batch
from qtool.errors import DataError, ModelError
from qtool.training.evaluation import score

CPU = torch.device("cpu")


def batch(rows, labels):
    return Batch(inputs=(torch.tensor(rows),), labels=None if labels is None else torch.tensor(labels))


def test_accuracy_and_loss_have_their_textbook_values():
    found = score(nn.Identity(), [batch([[2.0, 0.0], [0.0, 2.0]], [0, 0]), batch([[1.0, 3.0]], [1])], CPU)
    right, wrong = math.log1p(math.exp(-2)), math.log1p(math.exp(2))
    assert (found.accuracy, found.num_samples) == (2 / 3, 3)
    assert found.loss == pytest.approx((2 * right + wrong) / 3, rel=1e-6)


def test_the_model_is_in_eval_mode_and_has_no_gradient():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.9)).train()
    before = model[1].running_mean.clone()
    data = [batch([[2.0, 0.0], [0.0, 2.0]], [0, 1])]
    assert score(model, data, CPU) == score(model, data, CPU)
    assert torch.equal(model[1].running_mean, before)
    assert model[0].weight.grad is None


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        ([], DataError, "no samples"),
        ([batch([[1.0, 2.0]], None)], DataError, r"data\.evaluate has samples without labels"),
        ([batch([[1.0, 2.0]], [2])], DataError, r"a label 2, but the model has 2 classes"),
        ([batch([[[1.0, 2.0]]], [0])], ModelError, "accuracy cannot be measured"),
    ],
)
def test_what_cannot_be_measured_is_an_error(batches, error, message):
    with pytest.raises(error, match=message):
        score(nn.Identity(), batches, CPU)
