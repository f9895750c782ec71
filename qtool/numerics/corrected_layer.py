"""A layer whose weight has one scale and its batch norm folded in, as one step.

    y     = product(x, fake_quantize(folded))                   folded = weight * gamma / sqrt(folded_var + eps)
    plain = product(x, weight, bias)                            only for the batch's mean and variance
    out   = fake_quantize(clamp(y * factor + shift, bounds)),   factor = sqrt(folded_var + eps) / spread
                                                                shift  = beta - gamma * (mean - bias) / spread
                                                                spread = sqrt(variance + eps)

With one scale for a whole weight the grid that is deployed is that of the folded weight. Folding takes the running
variance, as the deployed layer does, and the factor corrects for the batch's. Nothing is divided by gamma, so gamma may
be 0. With running statistics the factor is 1, and `plain` is not computed.

Shapes: y, plain and out (N, C, *); gamma, beta, bias, mean, variance and folded_var (C,).

Source: Krishnamoorthi 2018, arXiv:1806.08342, section 3.2.2 ("correction").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from qtool.numerics.coded import Coded
from qtool.numerics.first_order import first_order_only
from qtool.numerics.grid import joined, split
from qtool.numerics.kernels.allocate import make_room
from qtool.numerics.kernels.normalize import Coefficients, normalize_grad, normalize_quantize, normalize_sums
from qtool.numerics.kernels.statistics import channel_statistics
from qtool.numerics.layer import (
    Layer,
    LayerResult,
    compute_dtype,
    kept_input,
    mask_like,
    product_in,
    restored_input,
    weight_on_grid,
)
from qtool.numerics.product import Gradients, Wanted

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    from qtool.numerics.grid import Grid, Limits

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        layer: Layer
        dtype: torch.dtype
        x_dtype: torch.dtype
        x_limits: Limits | None
        folded_limits: Limits | None
        limits: Limits | None
        uses_batch: bool


class FoldedTensors(NamedTuple):
    """The parameters of a layer with its batch norm folded in.

    Attributes:
        weight: in the layout of the product.
        folded: the weight with the batch norm folded in; its gradient goes on to weight and gamma.
        folded_grid: what the folded weight is rounded to.
        bias: (C,) or None.
        gamma: the batch norm's weight, or None for one.
        beta: the batch norm's bias, or None for zero.
        folded_var: float32 (C,): the variance that was folded in.
        running: mean and variance that the batch norm uses; None takes those of the batch.
    """

    weight: Tensor
    folded: Tensor
    folded_grid: Grid | None
    bias: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    folded_var: Tensor
    running: tuple[Tensor, Tensor] | None


def run_corrected_layer(layer: Layer, x: Coded, tensors: FoldedTensors, grid: Grid | None) -> LayerResult:
    """Return what the layer gives for `x`, differentiable with respect to x, weight, folded, bias, gamma and beta.

    Args:
        layer: what is done; it has a batch norm.
        x: the input; its codes, if it has any, are kept in place of its values.
        tensors: the parameters.
        grid: what the result is rounded to; None leaves it as it is.

    Raises:
        RuntimeError: in backward, if a parameter was changed in place since; or for a second derivative.
    """
    found = _CorrectedLayer.apply(layer, compute_dtype(x.values), x.values, x.codes, x.grid, *tensors, grid)
    values, codes, _, _, mean, variance, low, high, _ = found
    return LayerResult(Coded(values, codes, None if codes is None else grid), mean, variance, low, high)


class _Inputs(NamedTuple):
    layer: Layer
    dtype: torch.dtype
    x: Tensor
    codes: Tensor | None
    x_grid: Grid | None
    weight: Tensor
    folded: Tensor
    folded_grid: Grid | None
    bias: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    folded_var: Tensor
    running: tuple[Tensor, Tensor] | None
    grid: Grid | None


class _Outputs(NamedTuple):
    values: Tensor
    codes: Tensor | None
    y: Tensor | None
    plain: Tensor | None
    mean: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor
    mask: Tensor | None  # of the folded weight


class _Saved(NamedTuple):
    x: Tensor  # its codes or its values
    x_scale: Tensor | None
    x_zero_point: Tensor | None
    y: Tensor | None
    plain: Tensor | None
    weight: Tensor
    folded: Tensor
    folded_scale: Tensor | None
    folded_zero_point: Tensor | None
    mask: Tensor | None
    bias: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    folded_var: Tensor
    mean: Tensor
    variance: Tensor
    scale: Tensor | None
    zero_point: Tensor | None


class _CorrectedLayer(torch.autograd.Function):
    @staticmethod
    def forward(*arguments: Any) -> _Outputs:  # noqa: ANN401 - those of _Inputs
        given = _Inputs(*arguments)
        layer, keeps = given.layer, given.layer.kept.result
        folded, mask = weight_on_grid(given.folded, given.folded_grid, wants_mask=True)
        y = product_in(given.dtype, layer.product, given.x, folded, None)
        plain = None
        if given.running is None:
            plain = product_in(given.dtype, layer.product, given.x, given.weight, given.bias)
            mean, variance, *_ = channel_statistics(plain)
        else:
            mean, variance = (statistic.to(torch.float64, copy=True) for statistic in given.running)
        norm = _Correction.of(layer.eps, given, mean, variance)
        values, codes, low, high = normalize_quantize(
            y, *norm.affine(y.dtype), layer.bounds, given.grid, in_place=not keeps
        )
        kept_y, kept_plain = (y, plain) if keeps else (None, None)
        return _Outputs(values, codes, kept_y, kept_plain, mean, variance, low, high, mask)

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        given, made = _Inputs(*inputs), _Outputs(*output)
        layer = given.layer
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(tensor for tensor in made[1:] if tensor is not None))
        ctx.layer, ctx.dtype, ctx.x_dtype = layer, given.dtype, given.x.dtype
        ctx.uses_batch = given.running is None
        x, x_grid = kept_input(layer, given.x, given.codes, given.x_grid)
        x_scale, x_zero_point, ctx.x_limits = split(x_grid)
        folded_scale, folded_zero_point, ctx.folded_limits = split(given.folded_grid)
        scale, zero_point, ctx.limits = split(given.grid)
        saved = _Saved(
            x=x,
            x_scale=x_scale,
            x_zero_point=x_zero_point,
            y=made.y,
            plain=made.plain,
            weight=given.weight,
            folded=given.folded,
            folded_scale=folded_scale,
            folded_zero_point=folded_zero_point,
            mask=made.mask,
            bias=given.bias,
            gamma=given.gamma,
            beta=given.beta,
            folded_var=given.folded_var,
            mean=made.mean,
            variance=made.variance,
            scale=scale,
            zero_point=zero_point,
        )
        ctx.save_for_backward(*saved)  # type: ignore[arg-type] # None is fine

    @staticmethod
    @first_order_only
    def backward(ctx: _Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if grads[0] is None:
            return (None,) * len(_Inputs._fields)
        found = _gradients(ctx, _Saved(*ctx.saved_tensors), grads[0])
        return tuple(found.get(name) for name in _Inputs._fields)


class _Correction(NamedTuple):
    """The batch norm as one number a channel to multiply with, and one to add; all float64 (C,)."""

    before: Tensor  # sqrt(folded_var + eps)
    spread: Tensor  # sqrt(variance + eps)
    centre: Tensor  # mean - bias
    gamma: Tensor
    beta: Tensor | None

    @staticmethod
    def of(eps: float | None, given: _Inputs | _Saved, mean: Tensor, variance: Tensor) -> _Correction:
        assert eps is not None
        return _Correction(
            before=(given.folded_var.double() + eps).sqrt(),
            spread=(variance + eps).sqrt(),
            centre=mean if given.bias is None else mean - given.bias.double(),
            gamma=torch.ones_like(mean) if given.gamma is None else given.gamma.double(),
            beta=None if given.beta is None else given.beta.double(),
        )

    def affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return factor and shift for values of a dtype: float64 (C,) for float64, else float32."""
        shift = -self.gamma * self.centre / self.spread
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        return (self.before / self.spread).to(exact), (shift if self.beta is None else shift + self.beta).to(exact)


def _gradients(ctx: _Context, saved: _Saved, grad: Tensor) -> dict[str, Tensor | None]:
    """Return the gradients by the names of the inputs.

    With g the gradient where it passes and n elements a channel:
    dfactor = sum(g y), dshift = sum g, and through mean and variance of the batch
    dplain = dmean / n + dvariance * 2 (plain - mean) / n.
    """
    layer, wants = ctx.layer, dict(zip(_Inputs._fields, ctx.needs_input_grad, strict=True))
    make_room(grad.nbytes)
    x = restored_input(saved.x, joined(saved.x_scale, saved.x_zero_point, ctx.x_limits), ctx.x_dtype)
    folded_grid = joined(saved.folded_scale, saved.folded_zero_point, ctx.folded_limits)
    folded, _ = weight_on_grid(saved.folded, folded_grid, wants_mask=False)
    y = saved.y
    if y is None:
        y = product_in(ctx.dtype, layer.product, x, folded, None)
    norm = _Correction.of(layer.eps, saved, saved.mean, saved.variance)
    factor, shift = norm.affine(y.dtype)
    grid = joined(saved.scale, saved.zero_point, ctx.limits)
    zero = torch.zeros_like(norm.spread)
    grad_shift, grad_factor = normalize_sums(y, grad, factor, shift, zero, layer.bounds, grid)
    grad_y = normalize_grad(
        y, grad, factor, shift, layer.bounds, grid, Coefficients(factor), in_place=not layer.kept.result
    )
    found: dict[str, Tensor | None] = {
        "beta": None if saved.beta is None else grad_shift.to(saved.beta.dtype),
        "gamma": None if saved.gamma is None else (-grad_shift * norm.centre / norm.spread).to(saved.gamma.dtype),
    }
    of_folded = layer.product.backward(
        grad_y, x.to(ctx.dtype), folded.to(ctx.dtype), Wanted(wants["x"], wants["folded"], bias=False)
    )
    if of_folded.weight is not None:
        found["folded"] = mask_like(saved.mask, saved.folded).apply(of_folded.weight.to(saved.folded.dtype))
    grad_x, grad_centre = of_folded.x, -grad_shift * norm.gamma / norm.spread
    if not ctx.uses_batch:
        found["bias"] = None if saved.bias is None else (-grad_centre).to(saved.bias.dtype)
    else:
        grad_spread = (grad_shift * norm.gamma * norm.centre - grad_factor * norm.before) / norm.spread.square()
        of_plain = _through_statistics(ctx, saved, x, grad_centre, grad_spread / (2 * norm.spread), wants)
        found["weight"] = None if of_plain.weight is None else of_plain.weight.to(saved.weight.dtype)
        found["bias"] = None if saved.bias is None else torch.zeros_like(saved.bias)  # the mean takes it out again
        grad_x = of_plain.x if grad_x is None or of_plain.x is None else grad_x.add_(of_plain.x)
    found["x"] = None if grad_x is None else grad_x.to(ctx.x_dtype)
    return found


def _through_statistics(
    ctx: _Context, saved: _Saved, x: Tensor, grad_mean: Tensor, grad_variance: Tensor, wants: dict[str, bool]
) -> Gradients:
    """Return the gradients of x and weight that flow through the batch's mean and variance."""
    plain, product = saved.plain, ctx.layer.product
    if plain is None:
        plain = product_in(ctx.dtype, product, x, saved.weight, saved.bias)
    count = plain.numel() / plain.shape[1]
    exact = torch.float64 if plain.dtype == torch.float64 else torch.float32
    shape = (1, -1, *[1] * (plain.dim() - 2))
    mean, offset, slope = (
        (values).to(exact).view(shape) for values in (saved.mean, grad_mean / count, grad_variance * (2 / count))
    )
    grad_plain = plain.to(exact, copy=True).sub_(mean).mul_(slope).add_(offset).to(ctx.dtype)
    weight = saved.weight.to(ctx.dtype)
    return product.backward(grad_plain, x.to(ctx.dtype), weight, Wanted(wants["x"], wants["weight"], bias=False))
