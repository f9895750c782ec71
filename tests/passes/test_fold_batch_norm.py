import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qtool.numerics.qparams import SCALE_FLOOR
from qtool.numerics.quantize import dequantize
from qtool.passes.fold_batch_norm import BatchNormState, fold_bias, fold_codes, fold_weight
from qtool.passes.weight_layout import WeightLayout

GAMMAS = st.sampled_from([0.0, 1e-12, -1e-12, -0.5, 1.0, 3.0, 1e4])
PLAIN = WeightLayout()


def state_of(norm):
    return BatchNormState(gamma=norm.weight, beta=norm.bias, mean=norm.running_mean, var=norm.running_var, eps=norm.eps)


@given(st.lists(GAMMAS, min_size=4, max_size=4), st.floats(1e-8, 1e2), st.sampled_from([1e-5, 1e-3]), st.booleans())
def test_equals_the_batch_norm_it_replaces(gammas, var, eps, has_bias):
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 4, 3, bias=has_bias).double(), nn.BatchNorm2d(4, eps=eps).double().eval()
    norm.weight.data = torch.tensor(gammas).double()
    norm.bias.data.normal_()
    norm.running_mean.normal_()
    norm.running_var.fill_(var)
    x = torch.randn(2, 3, 5, 5).double()
    conv.requires_grad_(False)
    norm.requires_grad_(False)
    weight, bias = fold_weight(conv.weight, state_of(norm), PLAIN), fold_bias(conv.bias, state_of(norm))
    assert weight.dtype is bias.dtype is torch.float32
    found = torch.nn.functional.conv2d(x, weight.double(), bias.double())
    torch.testing.assert_close(found, norm(conv(x)), rtol=1e-5, atol=1e-5 * max(1.0, float(weight.abs().max())))


def test_the_examples_of_the_docstrings():
    one = torch.ones(1)
    norm = BatchNormState(gamma=3 * one, beta=4 * one, mean=5 * one, var=8 * one, eps=1.0)
    assert float(fold_weight(2 * one.view(1, 1), norm, PLAIN)) == 2.0
    assert float(fold_bias(one, norm)) == 0.0
    norm = BatchNormState(gamma=-2 * one, beta=None, mean=one, var=15 * one, eps=1.0)
    codes, (scale, _) = fold_codes(torch.tensor([[100, -3]], dtype=torch.int8), one / 2, norm, PLAIN, floor=one * 1e-9)
    assert codes.tolist() == [[-100, 3]]
    assert float(scale) == 0.25


@pytest.mark.parametrize("missing", ["gamma", "beta"])
def test_a_batch_norm_without_parameters(missing):
    parts = {"gamma": torch.ones(2), "beta": torch.zeros(2), missing: None}
    norm = BatchNormState(mean=torch.ones(2), var=torch.ones(2) * 3, eps=1.0, **parts)
    assert torch.equal(fold_weight(torch.ones(2, 1), norm, PLAIN), torch.full((2, 1), 0.5))
    assert torch.equal(fold_bias(None, norm), torch.full((2,), -0.5))


@pytest.mark.parametrize(
    ("layer", "x", "layout"),
    [
        (nn.ConvTranspose2d(4, 6, 3), torch.randn(2, 4, 5, 5), WeightLayout(axis=1)),
        (nn.ConvTranspose1d(4, 6, 3, groups=2), torch.randn(2, 4, 9), WeightLayout(axis=1, groups=2)),
        (nn.Linear(4, 6), torch.randn(5, 4), PLAIN),
    ],
)
def test_every_layout_equals_the_batch_norm_it_replaces(layer, x, layout):
    norm = (nn.BatchNorm1d if x.dim() < 4 else nn.BatchNorm2d)(6).eval()
    norm.running_var.uniform_(0.5, 2)
    norm.weight.data = torch.tensor([0.0, 1e-12, -2.0, 1.0, 0.3, -0.1])
    expected = norm(layer(x))
    weight, bias = fold_weight(layer.weight, state_of(norm), layout), fold_bias(layer.bias, state_of(norm))
    layer.weight.data, layer.bias.data = weight.detach(), bias.detach()
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-6)


def test_case_35_codes_are_those_of_training_and_the_scale_takes_the_factor():
    """gamma negative, ordinary, tiny and zero: codes negated, the same, and rounded to a scale at the floor."""
    codes = torch.tensor([[100, -3], [100, -3], [100, -3], [100, -3]], dtype=torch.int8)
    scale = torch.full((4,), 0.5)
    norm = BatchNormState(
        gamma=torch.tensor([-2.0, 4.0, 1e-30, 0.0]), beta=None, mean=torch.zeros(4), var=torch.full((4,), 16.0), eps=0.0
    )
    moved, (scales, zero_points) = fold_codes(codes, scale, norm, PLAIN, floor=torch.full((4,), SCALE_FLOOR))
    assert moved.tolist() == [[-100, 3], [100, -3], [0, 0], [0, 0]]
    assert scales.tolist() == [0.25, 0.5, SCALE_FLOOR, SCALE_FLOOR]
    assert not zero_points.any()


def test_a_scale_below_its_floor_is_raised_and_the_weight_stays_where_it_was():
    codes = torch.tensor([[127, -64, 1]], dtype=torch.int8)
    norm = BatchNormState(gamma=None, beta=None, mean=torch.zeros(1), var=torch.ones(1), eps=0.0)
    floor = torch.tensor([0.08])
    moved, qparams = fold_codes(codes, torch.tensor([0.01]), norm, PLAIN, floor=floor)
    before = codes.float() * 0.01
    after = dequantize(moved, *qparams, axis=0)
    assert qparams.scale.tolist() == floor.tolist()
    assert float((after - before).abs().max()) <= 0.04 + 1e-6
