"""Fold a batch norm in eval mode into the convolution or linear layer before it."""

from __future__ import annotations

import torch
from torch import Tensor

from qtool.passes.weight_layout import WeightLayout


def fold_batch_norm(
    weight: Tensor,
    bias: Tensor | None,
    *,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    layout: WeightLayout | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the weight and bias that give `batch_norm(op(x))` without the batch norm.

        weight' = weight * gamma / sqrt(var + eps)        per output channel
        bias'   = (bias - mean) * gamma / sqrt(var + eps) + beta

    Computed in float64 and rounded once to float32.

    Args:
        weight: float32.
        bias: float32 (O,), or None for zero.
        gamma: the batch norm's weight, (O,), or None for one; zero and negative are fine.
        beta: the batch norm's bias, (O,), or None for zero.
        mean: running mean, (O,).
        var: running variance, (O,), >= 0.
        eps: the batch norm's own epsilon, > 0.
        layout: where the weight's output channels lie; None for (O, ...).

    Returns:
        (weight', bias'), float32, in the shape of weight and (O,).

    Source: Jacob et al. 2018, arXiv:1712.05877, section 3.2.

    Example:
        weight 2, bias 1, gamma 3, beta 4, mean 5, var + eps 9: weight' 2 * 3/3 = 2, bias' (1 - 5) * 3/3 + 4 = 0.
    """
    factor = (torch.ones_like(var) if gamma is None else gamma).double() / (var.double() + eps).sqrt()
    shift = mean.double().neg() if bias is None else bias.double() - mean.double()
    folded_bias = shift * factor + (0.0 if beta is None else beta.double())
    folded = weight.double() * (layout or WeightLayout()).spread(factor, weight.shape)
    return folded.float(), folded_bias.float()
