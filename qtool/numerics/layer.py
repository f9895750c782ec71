"""A layer of a training graph as one step: fake-quantized weight, product, batch norm, activation, fake-quantize.

    z = product(x, fake_quantize(weight), bias)
    y = fake_quantize(clamp(z * factor + shift, bounds)),   factor = gamma / sqrt(variance + eps)
                                                            shift  = beta - mean * factor

Backward keeps of all this what `Kept` says: the codes of x in place of its values, z or nothing in place of z, and a
few numbers a channel. The weight is quantized again from the parameter. Where a gradient was stopped is found again
from z, so no mask is kept where there is a batch norm. What is decoded and recomputed has the bits that it had, so
gradients do not depend on what was kept.

A batch norm's factor and shift are one number a channel, so a weight with one scale a channel needs not be folded: the
codes of weight and folded weight are the same (qtool/passes/weight_point.py).

Shapes: z and y (N, C, *) with a batch norm, any without; gamma, beta, mean, variance (C,).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from qtool.numerics.coded import Coded
from qtool.numerics.first_order import first_order_only
from qtool.numerics.grid import joined, split
from qtool.numerics.kernels.allocate import make_room
from qtool.numerics.kernels.fake_quantize import decode, quantize_values
from qtool.numerics.kernels.normalize import Coefficients, normalize_grad, normalize_quantize, normalize_sums
from qtool.numerics.kernels.statistics import channel_statistics
from qtool.numerics.layout import as_dense, memory_order
from qtool.numerics.mask import Mask
from qtool.numerics.product import Wanted

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

    from qtool.numerics.grid import Bounds, Grid, Limits
    from qtool.numerics.product import Product

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        layer: Layer
        dtype: torch.dtype  # of the product
        x_dtype: torch.dtype
        x_limits: Limits | None  # None where values were kept
        weight_limits: Limits | None
        limits: Limits | None
        uses_batch: bool
        order: tuple[int, ...]  # of the result's elements


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a layer keeps for backward.

    Attributes:
        codes: of its input the 8-bit codes, where there are any; else the values.
        result: the product's result; else it is computed again.
    """

    codes: bool
    result: bool


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What a layer does, besides its tensors.

    Attributes:
        product: convolution or linear.
        bounds: of its activation.
        eps: of its batch norm; None without one.
        kept: what it keeps for backward.
    """

    product: Product
    bounds: Bounds
    eps: float | None
    kept: Kept


class LayerTensors(NamedTuple):
    """The parameters of a layer.

    Attributes:
        weight: in the layout of the product.
        weight_grid: what the weight is rounded to; None leaves it as it is.
        bias: (C,) or None.
        gamma: the batch norm's weight, or None for one.
        beta: the batch norm's bias, or None for zero.
        running: mean and variance that the batch norm uses; None takes those of the batch.
    """

    weight: Tensor
    weight_grid: Grid | None
    bias: Tensor | None
    gamma: Tensor | None = None
    beta: Tensor | None = None
    running: tuple[Tensor, Tensor] | None = None


class LayerResult(NamedTuple):
    """What a layer gives.

    Attributes:
        coded: the result, on its grid if there is one.
        mean: of z, float64 (C,); None without batch norm.
        variance: of z, biased, float64 (C,).
        low: smallest value before it was rounded to the grid, float32 (); NaN if there was a NaN.
        high: largest value.
    """

    coded: Coded
    mean: Tensor | None
    variance: Tensor | None
    low: Tensor
    high: Tensor


def run_layer(layer: Layer, x: Coded, tensors: LayerTensors, grid: Grid | None) -> LayerResult:
    """Return what the layer gives for `x`, differentiable with respect to x, weight, bias, gamma and beta.

    Args:
        layer: what is done.
        x: the input; its codes, if it has any, are kept in place of its values.
        tensors: the parameters.
        grid: what the result is rounded to; None leaves it as it is.

    Raises:
        RuntimeError: in backward, if weight, gamma or beta were changed in place since; or for a second derivative.
    """
    dtype = compute_dtype(x.values)
    found = _Layer.apply(layer, dtype, x.values, x.codes, x.grid, *tensors, grid)
    values, codes, _, mean, variance, low, high = found[:7]
    return LayerResult(Coded(values, codes, None if codes is None else grid), mean, variance, low, high)


class _Outputs(NamedTuple):
    """What forward returns: results, and what only backward needs."""

    values: Tensor
    codes: Tensor | None
    z: Tensor | None
    mean: Tensor | None
    variance: Tensor | None
    low: Tensor
    high: Tensor
    mask: Tensor | None
    weight_mask: Tensor | None


class _Inputs(NamedTuple):
    layer: Layer
    dtype: torch.dtype
    x: Tensor
    codes: Tensor | None
    x_grid: Grid | None
    weight: Tensor
    weight_grid: Grid | None
    bias: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    running: tuple[Tensor, Tensor] | None
    grid: Grid | None


class _Saved(NamedTuple):
    """The tensors that lie between forward and backward."""

    x: Tensor  # its codes or its values
    x_scale: Tensor | None
    x_zero_point: Tensor | None
    z: Tensor | None
    mask: Tensor | None
    weight: Tensor
    weight_scale: Tensor | None
    weight_zero_point: Tensor | None
    weight_mask: Tensor | None
    bias: Tensor | None
    gamma: Tensor | None
    beta: Tensor | None
    mean: Tensor | None
    variance: Tensor | None
    scale: Tensor | None
    zero_point: Tensor | None


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(*arguments: Any) -> _Outputs:  # noqa: ANN401 - those of _Inputs
        given = _Inputs(*arguments)
        layer = given.layer
        weight, weight_mask = weight_on_grid(given.weight, given.weight_grid, wants_mask=True)
        z = product_in(given.dtype, layer.product, given.x, weight, given.bias)
        if layer.eps is None:
            found = quantize_values(z, given.grid, layer.bounds, wants_mask=layer.kept.result, in_place=True)
            mask = None if found.mask is None else found.mask.stored
            return _Outputs(found.values, found.codes, None, None, None, found.low, found.high, mask, weight_mask)
        if given.running is None:
            mean, variance, *_ = channel_statistics(z)
        else:
            mean, variance = (statistic.to(torch.float64, copy=True) for statistic in given.running)
        norm = _Normalization.of(layer.eps, given.gamma, given.beta, mean, variance)
        keeps = layer.kept.result
        values, codes, low, high = normalize_quantize(
            z, *norm.affine(z.dtype), layer.bounds, given.grid, in_place=not keeps
        )
        return _Outputs(values, codes, z if keeps else None, mean, variance, low, high, None, weight_mask)

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        given, made = _Inputs(*inputs), _Outputs(*output)
        layer = given.layer
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(tensor for tensor in made[1:] if tensor is not None))
        ctx.layer, ctx.dtype, ctx.x_dtype = layer, given.dtype, given.x.dtype
        ctx.order = tuple(memory_order(made.values))
        ctx.uses_batch = layer.eps is not None and given.running is None
        x, x_grid = kept_input(layer, given.x, given.codes, given.x_grid)
        x_scale, x_zero_point, ctx.x_limits = split(x_grid)
        weight_scale, weight_zero_point, ctx.weight_limits = split(given.weight_grid)
        scale, zero_point, ctx.limits = split(given.grid)
        saved = _Saved(
            x=x,
            x_scale=x_scale,
            x_zero_point=x_zero_point,
            z=made.z,
            mask=made.mask,
            weight=given.weight,
            weight_scale=weight_scale,
            weight_zero_point=weight_zero_point,
            weight_mask=made.weight_mask,
            bias=given.bias,
            gamma=given.gamma,
            beta=given.beta,
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


def _gradients(ctx: _Context, saved: _Saved, grad: Tensor) -> dict[str, Tensor | None]:
    """Return the gradients by the names of the inputs."""
    layer, wants = ctx.layer, dict(zip(_Inputs._fields, ctx.needs_input_grad, strict=True))
    make_room(grad.nbytes)
    x = restored_input(saved.x, joined(saved.x_scale, saved.x_zero_point, ctx.x_limits), ctx.x_dtype)
    weight_grid = joined(saved.weight_scale, saved.weight_zero_point, ctx.weight_limits)
    weight, _ = weight_on_grid(saved.weight, weight_grid, wants_mask=False)
    z = saved.z
    if not layer.kept.result:
        z = product_in(ctx.dtype, layer.product, x, weight, saved.bias)
    grid = joined(saved.scale, saved.zero_point, ctx.limits)
    found: dict[str, Tensor | None] = {}
    if layer.eps is None:
        mask = None if z is not None else Mask(saved.mask, tuple(grad.shape), ctx.order)
        grad_z = _grad_of_activation(layer, z, mask, grid, grad)
    else:
        assert z is not None
        grad_z, found["gamma"], found["beta"] = _grad_of_normalization(ctx, saved, z, grid, grad)
    wanted = Wanted(wants["x"], wants["weight"], wants["bias"])
    product = layer.product.backward(grad_z, x.to(ctx.dtype), weight.to(ctx.dtype), wanted)
    found["x"] = product.x if product.x is None else product.x.to(ctx.x_dtype)
    if product.weight is not None:
        found["weight"] = mask_like(saved.weight_mask, saved.weight).apply(product.weight.to(saved.weight.dtype))
    if product.bias is not None and saved.bias is not None:
        found["bias"] = product.bias.to(saved.bias.dtype)
    return found


def _grad_of_activation(layer: Layer, z: Tensor | None, mask: Mask | None, grid: Grid | None, grad: Tensor) -> Tensor:
    """Return the gradient of z where no batch norm follows, by the mask that was kept, or by z."""
    if z is not None:
        mask = quantize_values(z, grid, layer.bounds, wants_codes=False, in_place=True).mask
    assert mask is not None
    return mask.apply(grad)


def _grad_of_normalization(
    ctx: _Context, saved: _Saved, z: Tensor, grid: Grid | None, grad: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of z, gamma and beta.

    With g the gradient where it passes, n elements a channel and d = z - mean:
    dbeta = sum g, dgamma = sum(g d) / sqrt(variance + eps), and where mean and variance are the batch's
    dz = factor * (g - sum g / n - d * sum(g d) / (n * (variance + eps))).

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167, section 3.
    """
    layer = ctx.layer
    assert layer.eps is not None
    assert saved.mean is not None
    assert saved.variance is not None
    norm = _Normalization.of(layer.eps, saved.gamma, saved.beta, saved.mean, saved.variance)
    factor, shift = norm.affine(z.dtype)
    sum_grad, sum_grad_d = normalize_sums(z, grad, factor, shift, saved.mean, layer.bounds, grid)
    coefficients = Coefficients(factor)
    if ctx.uses_batch:
        num_values = z.numel() / z.shape[1]
        centre = saved.mean.to(factor.dtype)
        slope = (-norm.factor * norm.reciprocal.square() * sum_grad_d / num_values).to(factor.dtype)
        # What rounding the mean to float32 leaves is put right in the constant.
        constant = -norm.factor * sum_grad / num_values + slope.double() * (centre.double() - saved.mean)
        coefficients = Coefficients(factor, centre, slope, constant.to(factor.dtype))
    grad_z = normalize_grad(z, grad, factor, shift, layer.bounds, grid, coefficients, in_place=not layer.kept.result)
    grad_gamma = None if saved.gamma is None else (sum_grad_d * norm.reciprocal).to(saved.gamma.dtype)
    grad_beta = None if saved.beta is None else sum_grad.to(saved.beta.dtype)
    return grad_z, grad_gamma, grad_beta


class _Normalization(NamedTuple):
    """A batch norm as one number a channel to multiply with, and one to add.

    Attributes:
        mean: float64 (C,).
        reciprocal: 1 / sqrt(variance + eps), float64 (C,).
        factor: gamma / sqrt(variance + eps), float64 (C,).
        beta: (C,), or None for zero.
    """

    mean: Tensor
    reciprocal: Tensor
    factor: Tensor
    beta: Tensor | None

    @staticmethod
    def of(eps: float, gamma: Tensor | None, beta: Tensor | None, mean: Tensor, variance: Tensor) -> _Normalization:
        """Return it from the tensors of a batch norm; mean and variance float64."""
        reciprocal = (variance + eps).rsqrt()
        return _Normalization(mean, reciprocal, reciprocal if gamma is None else reciprocal * gamma.double(), beta)

    def affine(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return factor and shift for values of a dtype: float64 (C,) for float64, else float32."""
        factor = self.factor
        shift = -self.mean * factor if self.beta is None else self.beta.double() - self.mean * factor
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        return factor.to(exact), shift.to(exact)


def kept_input(layer: Layer, x: Tensor, codes: Tensor | None, grid: Grid | None) -> tuple[Tensor, Grid | None]:
    """Return what a layer keeps of its input: the codes and their grid, or the values and None."""
    return (x, None) if codes is None or grid is None or not layer.kept.codes else (codes, grid)


def restored_input(kept: Tensor, grid: Grid | None, dtype: torch.dtype) -> Tensor:
    """Return the input, dense, from what `kept_input` gave."""
    return as_dense(kept) if grid is None else decode(as_dense(kept), grid, dtype)


def weight_on_grid(weight: Tensor, grid: Grid | None, *, wants_mask: bool) -> tuple[Tensor, Tensor | None]:
    """Return the weight as the layer uses it, and the mask of its gradient; None where all of it passes."""
    if grid is None:
        return weight, None
    found = quantize_values(weight, grid, wants_codes=False, wants_mask=wants_mask)
    return found.values, None if found.mask is None else found.mask.stored


def mask_like(stored: Tensor | None, like: Tensor) -> Mask:
    """Return the mask of a tensor laid out as `like`, from what was saved of it."""
    return Mask.of(() if stored is None else (stored,), as_dense(like))


def product_in(dtype: torch.dtype, product: Product, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a product computed in a dtype."""
    # Dense, as what is decoded in backward will be: some kernels add in another order where rows are apart.
    return product.forward(as_dense(x).to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype that the product is computed in: what autocast says, or that of the input."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
