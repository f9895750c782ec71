import math

import pytest
import torch

from qtool.config.train import TrainConfig
from qtool.data.batch import Batch
from qtool.errors import DataError, ModelError
from qtool.training.loss import check_labels, class_scores, labels_of, make_loss

SCORES = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 3.0]], requires_grad=True)
LABELS = torch.tensor([0, 1])


def with_auxiliary_head(outputs, labels):
    scores, auxiliary = outputs
    return scores.sum() * 0 + auxiliary.sum() + labels.sum()


def wrong_value(outputs, labels):
    return outputs


def without_gradient(outputs, labels):
    return outputs.detach().sum()


def broken(outputs, labels):
    return {}["logits"]


def loss_of(name):
    return make_loss(TrainConfig(epochs=1, loss=f"tests.training.test_loss:{name}"))


def textbook(smoothing):
    total = 0.0
    for row, label in zip(SCORES.tolist(), LABELS.tolist(), strict=True):
        log_sum = math.log(sum(math.exp(value) for value in row))
        target = [(1 - smoothing) * (k == label) + smoothing / 3 for k in range(3)]
        total += sum(t * (log_sum - value) for t, value in zip(target, row, strict=True))
    return total / len(LABELS)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_has_its_textbook_value(smoothing):
    loss = make_loss(TrainConfig(epochs=1, label_smoothing=smoothing))
    assert loss(SCORES, LABELS).item() == pytest.approx(textbook(smoothing), rel=1e-6)


@pytest.mark.parametrize("outputs", [(SCORES, SCORES * 2), {"logits": SCORES, "aux": SCORES * 2}, [(SCORES,)]])
def test_of_several_outputs_the_first_counts(outputs):
    assert class_scores(outputs) is SCORES
    loss = make_loss(TrainConfig(epochs=1))
    assert torch.equal(loss(outputs, LABELS), loss(SCORES, LABELS))


@pytest.mark.parametrize(
    "outputs", [torch.zeros(2), torch.zeros(2, 1), torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), "text", ()]
)
def test_what_has_no_classes_needs_a_loss_of_its_own(outputs):
    assert class_scores(outputs) is None
    with pytest.raises(ModelError, match=r"name a function of your own as train\.loss"):
        make_loss(TrainConfig(epochs=1))(outputs, LABELS)


def test_a_loss_of_the_users_gets_all_outputs():
    assert loss_of("with_auxiliary_head")((SCORES, SCORES), LABELS).item() == pytest.approx(5 + 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_value", r"wrong_value: returned a tensor of shape \(2, 3\): a loss is a tensor of one number"),
        ("without_gradient", r"returned a tensor of shape \(\) without gradient"),
        ("broken", r"broken: calling it with outputs and labels raised KeyError: 'logits'"),
    ],
)
def test_a_loss_that_is_none_is_an_error(name, message):
    with pytest.raises(DataError, match=message):
        loss_of(name)(SCORES, LABELS)


def test_a_loss_that_is_not_there_is_an_error_at_once():
    with pytest.raises(DataError, match=r"^train\.loss: .* has no attribute 'with_auxiliary_heads'; did you mean"):
        loss_of("with_auxiliary_heads")


def test_missing_and_wrong_labels_are_named():
    with pytest.raises(DataError, match=r"data\.train has samples without labels, and training needs one for each"):
        labels_of(Batch(inputs=(torch.zeros(2, 3),), labels=None), "data.train")
    with pytest.raises(DataError, match=r"there is a label 3, but the model has 3 classes \(0\.\.2\)"):
        check_labels(torch.tensor([0, 3]), SCORES)
    check_labels(torch.tensor([0, 2]), SCORES)
