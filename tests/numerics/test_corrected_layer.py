"""A layer with its batch norm folded into a weight with one scale, against its definition in float64."""

import pytest
import torch

from qtool.numerics.coded import Coded
from qtool.numerics.corrected_layer import FoldedTensors, run_corrected_layer
from qtool.numerics.grid import Grid
from tests.numerics.layer_case import (
    ACTIVATIONS,
    EPS,
    KEPT,
    PRODUCTS,
    Case,
    activated,
    assert_kept_changes_no_bit,
    product,
    spread,
    statistics,
    straight_through,
)

NORMS = ["batch", "frozen"]


class FoldedCase(Case):
    """The same layer, its weight folded by a running variance and rounded to one scale that clamps a few."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.folded_var = torch.linspace(0.5, 2.0, self.gamma.numel(), dtype=self.gamma.dtype)
        if self.running:
            self.folded_var = self.running[1]
        amax = self.folded().abs().max().detach()
        scale = (0.9 * amax / 127).float()
        self.folded_grid = Grid(scale, torch.zeros((), dtype=torch.int32), -127, 127)

    def folded(self):
        return self.weight * spread(self, self.gamma / torch.sqrt(self.folded_var + EPS))

    def run(self, kept):
        tensors = FoldedTensors(
            self.weight,
            self.folded(),
            self.folded_grid,
            self.bias,
            self.gamma,
            self.beta,
            self.folded_var,
            self.running,
        )
        x = Coded(self.x, self.codes, self.x_grid)
        return run_corrected_layer(self.layer(kept), x, tensors, self.grid)


def textbook(case):
    """Krishnamoorthi's correction, by autograd."""
    y = product(case, straight_through(case.folded(), case.folded_grid), None)
    mean, variance = case.running or statistics(product(case, case.weight, case.bias))
    spread_of = torch.sqrt(variance + EPS)
    factor = torch.sqrt(case.folded_var + EPS) / spread_of
    shift = case.beta - case.gamma * (mean - case.bias) / spread_of
    shape = (1, -1, *[1] * (y.dim() - 2))
    return straight_through(activated(case, y * factor.view(shape) + shift.view(shape)), case.grid)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_it_is_its_definition_in_float64(kind, norm, activation):
    case = FoldedCase(kind, norm, activation)
    expected = textbook(case)
    gradients = case.gradients(expected)
    for kept in KEPT:
        found = case.run(kept)
        torch.testing.assert_close(found.coded.values, expected, atol=1e-9, rtol=1e-9)
        for name, gradient in case.gradients(found.coded.values).items():
            message = f"gradient of {name}"
            torch.testing.assert_close(gradient, gradients[name], atol=1e-9, rtol=1e-9, msg=message)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_what_is_kept_changes_no_bit(kind, norm, channels_last):
    assert_kept_changes_no_bit(FoldedCase(kind, norm, "relu", dtype=torch.float32, channels_last=channels_last))


def test_a_gamma_of_zero_gets_a_gradient():
    case = FoldedCase("convolution", "batch", "none")
    case.beta.data[0] = 0.1  # or its constant result would lie outside the grid
    gradient = case.gradients(case.run(KEPT[-1]).coded.values)["gamma"]
    assert gradient[0] != 0
    assert gradient.isfinite().all()


def test_backward_twice_gives_the_same_and_a_second_derivative_is_refused():
    case = FoldedCase("convolution", "batch", "relu", dtype=torch.float32)
    for kept in KEPT:
        values = case.run(kept).coded.values
        leaves = list(case.leaves().values())
        first, second = (torch.autograd.grad(values.square().sum(), leaves, retain_graph=True) for _ in range(2))
        assert all(map(torch.equal, first, second))
        (grad,) = torch.autograd.grad(values.sum(), case.weight, create_graph=True)
        with pytest.raises(RuntimeError, match="gradient of gradients is not defined"):
            grad.sum().backward()


def test_nan_stays_nan_and_is_not_coded():
    case = FoldedCase("convolution", "frozen", "relu", dtype=torch.float32)
    with torch.no_grad():
        case.x[0, 0, 0, 0] = torch.nan
    case.codes = case.x_grid = None
    result = case.run(KEPT[-1])
    assert (result.coded.codes, result.coded.grid) == (None, None)
    assert result.coded.values.isnan().any()
