import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from qtool.passes.fold_batch_norm import fold_batch_norm

GAMMAS = st.sampled_from([0.0, 1e-12, -1e-12, -0.5, 1.0, 3.0, 1e4])


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
    weight, bias = fold_batch_norm(
        conv.weight, conv.bias, gamma=norm.weight, beta=norm.bias, mean=norm.running_mean, var=norm.running_var, eps=eps
    )
    assert weight.dtype is bias.dtype is torch.float32
    found = torch.nn.functional.conv2d(x, weight.double(), bias.double())
    torch.testing.assert_close(found, norm(conv(x)), rtol=1e-5, atol=1e-5 * max(1.0, float(weight.abs().max())))


def test_the_example_of_the_docstring():
    one = torch.ones(1)
    weight, bias = fold_batch_norm(
        2 * one.view(1, 1), one, gamma=3 * one, beta=4 * one, mean=5 * one, var=8 * one, eps=1.0
    )
    assert (float(weight), float(bias)) == (2.0, 0.0)


@pytest.mark.parametrize("missing", ["gamma", "beta"])
def test_a_batch_norm_without_parameters(missing):
    parts = {"gamma": torch.ones(2), "beta": torch.zeros(2), missing: None}
    weight, bias = fold_batch_norm(torch.ones(2, 1), None, mean=torch.ones(2), var=torch.ones(2) * 3, eps=1.0, **parts)
    assert torch.equal(weight, torch.full((2, 1), 0.5))
    assert torch.equal(bias, torch.full((2,), -0.5))
