import numpy as np
import pytest
import torch

from qtool.config.train import AdamWConfig, SgdConfig
from qtool.errors import FileFormatError, ModelError
from qtool.numerics.module import FakeQuantize
from qtool.training.optimizer import (
    load_state_arrays,
    make_optimizer,
    set_learning_rate,
    state_arrays,
    trained_parameters,
)
from qtool.types import Dtype, Spec
from tests.training.stand_in import Classifier

KINDS = [SgdConfig(lr=0.1, momentum=0.9, nesterov=True), SgdConfig(momentum=0), AdamWConfig(lr=0.1)]


def step(model, optimizer, seed=0):
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    model.eval()(x).square().sum().backward()
    optimizer.step()


def test_settings_reach_torch():
    sgd = make_optimizer(Classifier(), SgdConfig(lr=0.2, momentum=0.8, weight_decay=0.3, nesterov=True))
    assert isinstance(sgd, torch.optim.SGD)
    wanted = {"lr": 0.2, "momentum": 0.8, "weight_decay": 0.3, "nesterov": True}
    assert wanted.items() <= sgd.param_groups[0].items()
    adamw = make_optimizer(Classifier(), AdamWConfig(lr=0.2, weight_decay=0.3, betas=(0.5, 0.6), eps=1e-3))
    assert isinstance(adamw, torch.optim.AdamW)
    assert {"lr": 0.2, "weight_decay": 0.3, "betas": (0.5, 0.6), "eps": 1e-3}.items() <= adamw.param_groups[0].items()


@pytest.mark.parametrize("settings", KINDS, ids=["nesterov", "plain", "adamw"])
def test_learned_scales_come_last_in_a_group_of_their_own_without_weight_decay(settings):
    model = torch.nn.Sequential(FakeQuantize(Spec(dtype=Dtype.UINT8, qmin=0, qmax=255)), Classifier())
    model[0].learn_scale()
    weights, scales = make_optimizer(model, settings).param_groups
    assert [id(p) for p in scales["params"]] == [id(model[0].shift)]
    assert (weights["weight_decay"], scales["weight_decay"]) == (settings.weight_decay, 0.0)
    assert list(trained_parameters(model))[-1] == "0.shift"
    set_learning_rate(make_optimizer(model, settings), 0.5)


def test_one_step_of_sgd_by_hand():
    model = torch.nn.Linear(2, 1, bias=False)
    model.weight.data = torch.tensor([[1.0, -2.0]])
    optimizer = make_optimizer(model, SgdConfig(lr=1.0, momentum=0.0, weight_decay=0.5))
    set_learning_rate(optimizer, 0.1)
    model(torch.tensor([[3.0, 4.0]])).sum().backward()
    optimizer.step()  # 1 - 0.1 (3 + 0.5) and -2 - 0.1 (4 - 1)
    assert torch.allclose(model.weight, torch.tensor([[0.65, -2.3]]))


@pytest.mark.parametrize("settings", KINDS, ids=["nesterov", "plain", "adamw"])
@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_the_state_goes_on_bit_for_bit(settings, num_steps):
    model = Classifier()
    optimizer = make_optimizer(model, settings)
    for number in range(num_steps):
        step(model, optimizer, number)
    other = Classifier()
    other.load_state_dict(model.state_dict())
    resumed = make_optimizer(other, settings)
    arrays = state_arrays(optimizer)
    load_state_arrays(resumed, arrays)
    again = state_arrays(resumed)
    assert arrays.keys() == again.keys()
    assert all(np.array_equal(arrays[name], again[name]) and arrays[name].dtype == again[name].dtype for name in arrays)
    for number in range(3):
        step(model, optimizer, number)
        step(other, resumed, number)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_arrays_are_copies():
    model = Classifier()
    optimizer = make_optimizer(model, SgdConfig())
    step(model, optimizer)
    arrays = state_arrays(optimizer)
    resumed = make_optimizer(model, SgdConfig())
    load_state_arrays(resumed, arrays)
    before = arrays["0.momentum_buffer"].copy()
    step(model, resumed)
    assert np.array_equal(arrays["0.momentum_buffer"], before)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("0.momentum_buffer", np.zeros((3, 3), np.float32), r"has shape \(3, 3\), and its parameter \(8, 4\)"),
        ("0.momentum_buffer", np.zeros((), np.float32), r"has shape \(\), and its parameter \(8, 4\)"),
        ("0.momentum_buffer", np.zeros((8, 4)), r"has dtype torch\.float64, and its parameter torch\.float32"),
        ("0.exp_avg", np.zeros((8, 4), np.float32), "'0.exp_avg' is unknown; it keeps momentum_buffer"),
        ("00.momentum_buffer", np.zeros((8, 4), np.float32), "belongs to none of the 6 parameters"),
        ("6.momentum_buffer", np.zeros((8, 4), np.float32), "belongs to none of the 6 parameters"),
        ("x.momentum_buffer", np.zeros((8, 4), np.float32), "belongs to none of the 6 parameters"),
    ],
)
def test_arrays_that_fit_no_parameter_are_refused(name, array, message):
    with pytest.raises(FileFormatError, match=message):
        load_state_arrays(make_optimizer(Classifier(), SgdConfig()), {name: array})


@pytest.mark.parametrize("missing", ["0.step", "0.exp_avg", "0.exp_avg_sq"])
def test_a_parameter_has_all_of_its_arrays_or_none(missing):
    model = Classifier()
    optimizer = make_optimizer(model, AdamWConfig())
    step(model, optimizer)
    arrays = state_arrays(optimizer)
    del arrays[missing]
    with pytest.raises(FileFormatError, match=f"the optimizer's array '{missing}' is missing"):
        load_state_arrays(optimizer, arrays)


@pytest.mark.parametrize("count", [np.zeros(1, np.float32), np.array(1, np.int64)])
def test_a_count_of_steps_is_one_float32(count):
    arrays = {"0.step": count, "0.exp_avg": np.zeros((8, 4), np.float32), "0.exp_avg_sq": np.zeros((8, 4), np.float32)}
    with pytest.raises(FileFormatError, match=r"'0\.step' has .*, and a count of steps"):
        load_state_arrays(make_optimizer(Classifier(), AdamWConfig()), arrays)


def test_frozen_parameters_are_left_out_and_none_is_an_error():
    model = Classifier()
    model[0].requires_grad_(False)
    assert list(trained_parameters(model)) == ["1.weight", "1.bias", "4.weight", "4.bias"]
    with pytest.raises(ModelError, match="no parameter to train"):
        make_optimizer(model.requires_grad_(False), SgdConfig())
