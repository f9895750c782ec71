"""Case 62: copies and pickles of prepared and converted models are whole and independent."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from qtool.errors import ModelError
from qtool.passes.points import Mode
from qtool.runtime.module import RuntimeModel
from qtool.runtime.store import to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import bn2d, conv
from tests.runtime.training_steps import assert_same, batch, state, step, trained


def saved_by_torch(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)


WAYS = [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), saved_by_torch]


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    x = torch.randn(4, 4, 9, 9)
    prepared = prepare(nn.Sequential(conv(), bn2d(8), nn.ReLU(), conv(8, 4)), x, {"target": {"backend": "fbgemm"}})
    calibrate(prepared, [x])
    return {"prepared": prepared, "converted": convert(prepared)}, x


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", ["prepared", "converted"])
def test_case_62_a_copy_computes_and_saves_the_same(models, stage, way):
    model, x = models[0][stage], models[1]
    again = way(model)
    assert torch.equal(again(x), model(x))
    assert again.plan == model.plan
    assert again.origin.config.to_json() == model.origin.config.to_json()
    assert to_bytes(again) == to_bytes(model)


def test_case_62_a_copy_is_independent_and_in_the_same_mode(models):
    prepared, x = models[0]["prepared"], models[1]
    before, data = prepared(x), to_bytes(prepared)
    prepared.observe()
    again = copy.deepcopy(prepared)
    prepared.fake_quantize()
    assert again.mode is Mode.OBSERVE
    assert not again.training
    calibrate(again, [x * 5])
    assert again.mode is Mode.FAKE_QUANTIZE
    assert not torch.equal(again(x), before)
    assert torch.equal(prepared(x), before)
    assert to_bytes(prepared) == data


@pytest.mark.parametrize("way", WAYS)
def test_case_62_a_trained_model_after_a_backward_is_copied_with_all_that_it_knows(way):
    prepared = trained(steps=2)
    prepared.freeze_observers()
    prepared.freeze_batch_norms()
    step(prepared)
    again = way(prepared)
    assert_same(state(again), state(prepared))
    assert again.stamp == prepared.stamp
    assert (again.mode, again.num_steps, again.training) == (prepared.mode, prepared.num_steps, True)
    assert to_bytes(again) == to_bytes(prepared)
    assert all(parameter.grad is None for parameter in again.parameters())
    assert torch.equal(step(again), step(prepared))


def test_case_62_an_average_of_weights_is_kept_beside_the_model():
    prepared = trained(steps=2)
    average = torch.optim.swa_utils.AveragedModel(prepared, use_buffers=True)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.02)
    for number in range(2):
        step(prepared, optimizer, data=batch(number))
        average.update_parameters(prepared)
    kept = average.module.eval()
    assert kept(batch()[0]).isfinite().all()
    assert torch.equal(convert(kept)(batch()[0]), kept(batch()[0]))
    assert not torch.equal(kept(batch()[0]), prepared.eval()(batch()[0]))


def test_a_runtime_model_says_why_it_cannot_be_copied(models):
    runtime = RuntimeModel(models[0]["converted"])
    for way in WAYS:
        with pytest.raises(ModelError, match="packed for an engine"):
            way(runtime)
