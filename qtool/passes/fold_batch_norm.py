"""Fold a batch norm in eval mode into the convolution or linear layer before it: as real numbers, or as codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.qparams import SCALE_CEILING, SCALE_FLOOR, QParams

if TYPE_CHECKING:
    from qtool.passes.weight_layout import WeightLayout


@dataclass(frozen=True, kw_only=True)
class BatchNormState:
    """The tensors of a batch norm, each float32 `(O,)`.

    Attributes:
        gamma: its weight, or None for one; zero and negative are fine.
        beta: its bias, or None for zero.
        mean: running mean.
        var: running variance, >= 0.
        eps: its own epsilon, > 0.
    """

    gamma: Tensor | None
    beta: Tensor | None
    mean: Tensor
    var: Tensor
    eps: float

    def factor(self) -> Tensor:
        """Return gamma / sqrt(var + eps), float64 `(O,)`."""
        gamma = torch.ones_like(self.var) if self.gamma is None else self.gamma
        return gamma.double() / (self.var.double() + self.eps).sqrt()


def fold_weight(weight: Tensor, batch_norm: BatchNormState, layout: WeightLayout) -> Tensor:
    """Return the weight with which the op alone gives what op and batch norm give: weight * gamma / sqrt(var + eps).

    Computed in float64 and rounded once to float32; differentiable.

    Source: Jacob et al. 2018, arXiv:1712.05877, section 3.2.

    Example:
        weight 2, gamma 3, var + eps 9: 2 * 3/3 = 2.
    """
    return (weight.double() * layout.spread(batch_norm.factor(), weight.shape)).float()


def fold_bias(bias: Tensor | None, batch_norm: BatchNormState) -> Tensor:
    """Return the bias that goes with `fold_weight`: (bias - mean) * gamma / sqrt(var + eps) + beta, float32 `(O,)`.

    Args:
        bias: float32 `(O,)`, or None for zero.
        batch_norm: the batch norm.

    Example:
        bias 1, mean 5, gamma 3, var + eps 9, beta 4: (1 - 5) * 3/3 + 4 = 0.
    """
    shift = batch_norm.mean.double().neg() if bias is None else bias.double() - batch_norm.mean.double()
    folded = shift * batch_norm.factor()
    return folded.float() if batch_norm.beta is None else (folded + batch_norm.beta.double()).float()


def fold_codes(
    codes: Tensor, scale: Tensor, batch_norm: BatchNormState, layout: WeightLayout, *, floor: Tensor
) -> tuple[Tensor, QParams]:
    """Return a weight's codes and scales with the batch norm folded into the scales.

    A channel's codes stay as they are, negated where gamma is negative; its scale becomes
    `scale * |gamma| / sqrt(var + eps)`, computed in float64. Only where that is below `floor`, so in channels that give
    next to nothing but their bias, the scale is the floor and the codes are rounded to it.

    Args:
        codes: int8, symmetric, one scale per output channel.
        scale: float32 `(O,)`.
        batch_norm: the batch norm.
        layout: of the weight.
        floor: smallest scale allowed, float32 `(O,)`.

    Returns:
        int8 codes in the shape of `codes`; float32 scales and zero points of 0, `(O,)`.

    Example:
        codes [100, -3], scale 0.5, gamma -2, var + eps 16: codes [-100, 3], scale 0.5 * 2/4 = 0.25.
    """
    factor = batch_norm.factor()
    exact = scale.double() * factor.abs()
    folded = torch.maximum(exact.float(), floor).clamp(SCALE_FLOOR, SCALE_CEILING)
    # Exactly 1 or -1 wherever the scale was not raised: the codes of training, bit for bit.
    ratio = torch.where(exact.float() < folded, exact / folded.double(), 1.0) * factor.sign()
    moved = (codes.double() * layout.spread(ratio, codes.shape)).round().to(codes.dtype)
    return moved, QParams(folded, torch.zeros_like(folded, dtype=torch.int32))
