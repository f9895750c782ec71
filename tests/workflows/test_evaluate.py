"""evaluate: hand-computed numbers on toy modules; what is kept is sums, so the split into batches does not matter."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from qtool.data.batch import Batch
from qtool.errors import DataError, ModelError, NonFiniteError
from qtool.workflows.evaluate import evaluate, sqnr_db, state_bytes


class Outputs(nn.Module):
    """Returns whatever a function of the input says."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def batch(rows, labels=None):
    return Batch(inputs=(torch.tensor(rows),), labels=None if labels is None else torch.tensor(labels))


IDENTITY = nn.Identity()


def test_numbers_by_hand():
    # Row 1: 2 wins in both. Row 2: the quantized model swaps the classes.
    quantized = Outputs(lambda x: torch.where(x == 3.0, 1.0, x))
    data = [batch([[1.0, 2.0], [3.0, 2.0]], labels=[1, 0])]
    result = evaluate(quantized, IDENTITY, data)
    assert result.num_samples == result.num_labelled == 2
    assert result.accuracy == 0.5
    assert result.float_accuracy == 1.0
    assert result.agreement == 0.5
    assert result.sqnr_db == pytest.approx(10 * math.log10((1 + 4 + 9 + 4) / 4))


def test_sqnr_is_over_all_samples_not_a_mean_of_batches():
    quantized = Outputs(lambda x: torch.where(x > 5.0, x + 1.0, x))
    one = evaluate(quantized, IDENTITY, [batch([[1.0, 2.0], [10.0, 20.0]])])
    two = evaluate(quantized, IDENTITY, [batch([[1.0, 2.0]]), batch([[10.0, 20.0]])])
    assert one == two
    assert two.sqnr_db == pytest.approx(10 * math.log10(505 / 2))


def test_equal_models_are_exact():
    result = evaluate(IDENTITY, IDENTITY, [batch([[1.0, 2.0]])])
    assert result.sqnr_db == math.inf
    assert result.agreement == 1.0
    assert result.accuracy is None
    assert result.num_labelled == 0


def test_sums_are_float64():
    # In float32, 1e8 + 1 is 1e8: the noise of 1 in each of the small samples would vanish beside the large one.
    quantized = Outputs(lambda x: x + 1.0)
    data = [batch([[1e8, 0.0]]), *(batch([[0.0, 0.0]]) for _ in range(100))]
    result = evaluate(quantized, IDENTITY, data)
    assert result.sqnr_db == pytest.approx(10 * math.log10(1e16 / 201), abs=1e-9)


def test_several_outputs_accuracy_of_the_first_sqnr_over_all():
    float_model = Outputs(lambda x: {"logits": x, "rest": [x * 2, (x * 3, torch.tensor([7]))]})
    quantized = Outputs(lambda x: {"logits": x, "rest": [x * 2, (x * 3 + 1, torch.tensor([9]))]})
    result = evaluate(quantized, float_model, [batch([[1.0, 2.0]], labels=[1])])
    assert result.accuracy == result.agreement == 1.0
    assert result.sqnr_db == pytest.approx(10 * math.log10(5 * (1 + 4 + 9) / 2))


def test_segmentation_counts_pixels():
    picture = torch.zeros(1, 2, 2, 2)
    picture[:, 1, 0, :] = 1.0  # the upper two pixels are of class 1
    data = [Batch(inputs=(picture,), labels=torch.tensor([[[1, 1], [1, 0]]]))]
    result = evaluate(Outputs(lambda x: -x), IDENTITY, data)
    assert result.num_samples == 1
    assert result.num_labelled == 4
    assert result.float_accuracy == 0.75
    assert result.agreement == 0.5  # where all is 0 both choose the first class


@pytest.mark.parametrize("rows", [[[1.0], [2.0]], [1.0, 2.0]])
def test_a_model_without_classes_has_no_agreement(rows):
    result = evaluate(Outputs(lambda x: x * 1.1), IDENTITY, [batch(rows)])
    assert result.agreement is None
    assert result.accuracy is None
    assert result.sqnr_db == pytest.approx(20.0, abs=1e-4)


def test_labels_of_some_batches_only():
    data = [batch([[1.0, 2.0]], labels=[0]), batch([[1.0, 2.0]])]
    result = evaluate(IDENTITY, IDENTITY, data)
    assert (result.num_samples, result.num_labelled, result.accuracy, result.agreement) == (2, 1, 0.0, 1.0)


def test_several_inputs():
    data = [Batch(inputs=(torch.ones(1, 2), torch.full((1, 2), 2.0)), labels=None)]
    result = evaluate(Outputs(lambda a, b: a + b), Outputs(lambda a, b: a + b), data)
    assert result.sqnr_db == math.inf


def test_it_takes_one_batch_at_a_time():
    log = []

    def batches():
        for number in range(3):
            log.append(f"read {number}")
            yield batch([[1.0, 2.0]])

    evaluate(Outputs(lambda x: log.append("run") or x), IDENTITY, batches())
    assert log == ["read 0", "run", "read 1", "run", "read 2", "run"]


def test_it_runs_in_eval_mode_and_leaves_the_modes_as_they_were():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9))
    model.train()
    model[0].eval()
    result = evaluate(model, model, [batch([[1.0, 2.0], [3.0, 4.0]])])
    assert result.sqnr_db == math.inf  # dropout was off
    assert (model.training, model[0].training, model[1].training) == (True, False, True)


def test_no_gradient_is_recorded():
    seen = []
    evaluate(Outputs(lambda x: seen.append(torch.is_grad_enabled()) or x), IDENTITY, [batch([[1.0, 2.0]])])
    assert seen == [False]


def test_no_sample_is_an_error():
    with pytest.raises(DataError, match="no sample"):
        evaluate(IDENTITY, IDENTITY, [])


def test_other_shapes_are_an_error_and_not_broadcast():
    with pytest.raises(ModelError, match=r"\[\(1, 2\)\], the quantized model's \[\(1, 1\)\]"):
        evaluate(Outputs(lambda x: x[:, :1]), IDENTITY, [batch([[1.0, 2.0]])])


def test_outputs_without_floats_are_an_error():
    with pytest.raises(ModelError, match="no tensor of floats"):
        evaluate(Outputs(lambda x: x.int()), IDENTITY, [batch([[1.0, 2.0]])])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_outputs_are_an_error_that_names_the_model(bad):
    broken = Outputs(lambda x: x * bad)
    with pytest.raises(NonFiniteError, match="the quantized model's outputs of batch 2"):
        evaluate(Outputs(lambda x: x * (bad if x[0, 0] else 1.0)), IDENTITY, [batch([[0.0, 1.0]]), batch([[1.0, 1.0]])])
    with pytest.raises(NonFiniteError, match="the float model's outputs of batch 1"):
        evaluate(IDENTITY, broken, [batch([[1.0, 1.0]])])


def test_labels_of_another_data_set_are_an_error():
    with pytest.raises(DataError, match=r"0\.\.5, but the model has 2 classes"):
        evaluate(IDENTITY, IDENTITY, [batch([[1.0, 2.0], [1.0, 2.0]], labels=[0, 5])])
    with pytest.raises(DataError, match=r"labels have shape \(1, 2\), the model decides \(1,\)"):
        evaluate(IDENTITY, IDENTITY, [batch([[1.0, 2.0]], labels=[[0, 1]])])


def test_shared_storage_counts_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(4, 4, bias=False)
            self.two = nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight

    assert state_bytes(Tied()) == 64
    assert state_bytes(nn.BatchNorm1d(2)) == 4 * 4 * 2 + 8  # and the batch counter, int64


@settings(deadline=None, max_examples=30)
@given(
    rows=st.lists(st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    cut=st.integers(0, 6),
)
def test_any_split_into_batches_gives_the_same(rows, cut):
    quantized = Outputs(torch.round)
    whole = evaluate(quantized, IDENTITY, [batch(rows)])
    parts = [batch(part) for part in (rows[:cut], rows[cut:]) if part]
    split = evaluate(quantized, IDENTITY, parts)
    assert split.agreement == whole.agreement
    assert split.sqnr_db == pytest.approx(whole.sqnr_db, rel=1e-12) or split.sqnr_db == whole.sqnr_db


def test_sqnr_edges():
    assert sqnr_db(0.0, 0.0) == math.inf
    assert sqnr_db(0.0, 2.0) == -math.inf
    assert sqnr_db(1.0, 1.0) == 0.0
