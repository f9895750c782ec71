"""Where one weight is fake-quantized: in eval mode with its batch norm folded in, in train mode before it.

A weight with one scale per channel may be quantized before the batch norm is folded: folding multiplies a channel by
one number, which goes into its scale, and the codes are the same. So training quantizes the weight as it is and leaves
the batch norm alone. With one scale for all channels that is not so: there, training too quantizes the folded weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.qparams import QParams, bias_scale_floor
from qtool.numerics.quantize import dequantize, quantize
from qtool.numerics.straight_through import straight_through
from qtool.observers.registry import make_observer
from qtool.passes.fold_batch_norm import BatchNormState, fold_bias, fold_codes, fold_weight
from qtool.passes.points import Point

if TYPE_CHECKING:
    from qtool.passes.weight_layout import WeightLayout
    from qtool.types import Spec


@dataclass(frozen=True, kw_only=True)
class FoldedCodes:
    """A quantized weight as it is deployed.

    Attributes:
        codes: int8.
        qparams: scale and zero point, `()` or `(O,)`.
        bias: float32 `(O,)` or None.
    """

    codes: Tensor
    qparams: QParams
    bias: Tensor | None


class WeightPoint(Point):
    """Fake-quantizes the weight of one layer; the weight itself, its bias and batch norm are given at each call.

    Args:
        spec: how the weight is quantized.
        layout: where its output channels lie.
        weight_shape: its shape.
        eps: of its batch norm; None without one.
        is_trained: the model is to be trained, so a batch norm stays apart where it can.

    Attributes:
        input_scale: float32 (), the smallest scale of what the layer reads; the bias is stored in units of it.
        folded_var: float32 (O,), where training folds: the running variance as it was when the step began. The step
            changes the running one, and a segment recomputed in backward must see what the first pass saw.
    """

    input_scale: Tensor
    folded_var: Tensor

    def __init__(
        self, spec: Spec, layout: WeightLayout, weight_shape: torch.Size, *, eps: float | None, is_trained: bool
    ) -> None:
        super().__init__(spec, None if spec.axis is None else weight_shape[spec.axis])
        self.layout = layout
        self.eps = eps
        self.folds_codes = is_trained and eps is not None and spec.axis is not None
        self.folds_in_training = is_trained and eps is not None and spec.axis is None
        self.register_buffer("input_scale", torch.ones((), dtype=torch.float32))
        num_channels = layout.num_channels(weight_shape) if self.folds_in_training else 0
        self.register_buffer("folded_var", torch.ones(num_channels), persistent=self.folds_in_training)

    @property
    def spec(self) -> Spec:
        """How the weight is quantized."""
        return self.fake_quantize.spec

    def forward(
        self,
        weight: Tensor,
        bias: Tensor | None,
        gamma: Tensor | None = None,
        beta: Tensor | None = None,
        mean: Tensor | None = None,
        var: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias with the batch norm folded in, the weight on its grid in mode fake_quantize."""
        batch_norm = self._state(gamma, beta, mean, var)
        folded_bias = bias if batch_norm is None else fold_bias(bias, batch_norm)
        if self.is_quantizing and self.folds_codes:
            assert batch_norm is not None
            with torch.no_grad():
                found = self.deployed(weight, bias, batch_norm)
                value = dequantize(found.codes, *found.qparams, axis=self.spec.axis)
            smooth = fold_weight(self.fake_quantize(weight), batch_norm, self.layout)
            return straight_through(value, smooth), folded_bias
        folded = weight if batch_norm is None else fold_weight(weight, batch_norm, self.layout)
        return self._on_grid(folded, folded_bias) if self.is_quantizing else folded, folded_bias

    def begin_step(self, batch_norm: BatchNormState | None) -> None:
        """Remember the running variance that this training step folds in."""
        if self.folds_in_training and batch_norm is not None:
            self.folded_var.copy_(batch_norm.var)

    def folded_in_training(self, weight: Tensor, gamma: Tensor | None) -> Tensor:
        """Return the weight folded by the running variance, as a weight with one scale is deployed."""
        batch_norm = self._state(gamma, None, self.folded_var, self.folded_var)
        assert batch_norm is not None
        # What it folds by stays float32, whatever the model is cast to.
        return fold_weight(weight, batch_norm, self.layout).to(weight.dtype)

    @torch.no_grad()
    def deployed(self, weight: Tensor, bias: Tensor | None, batch_norm: BatchNormState | None) -> FoldedCodes:
        """Return the codes that the int8 model has for the weight, their scale, and the bias."""
        folded_bias = bias if batch_norm is None else fold_bias(bias, batch_norm)
        scale, zero_point = self.fake_quantize.scale, self.fake_quantize.zero_point
        if self.folds_codes:
            assert batch_norm is not None
            assert folded_bias is not None
            floor = bias_scale_floor(folded_bias, self.input_scale)
            moved, qparams = fold_codes(self._codes(weight, scale), scale, batch_norm, self.layout, floor=floor)
            return FoldedCodes(codes=moved, qparams=qparams, bias=folded_bias)
        folded = weight if batch_norm is None else fold_weight(weight, batch_norm, self.layout)
        scale = self._with_room(scale, folded_bias, self.input_scale)
        return FoldedCodes(codes=self._codes(folded, scale), qparams=QParams(scale, zero_point), bias=folded_bias)

    @torch.no_grad()
    def settle_weight(
        self, weight: Tensor, bias: Tensor | None, batch_norm: BatchNormState | None, input_scale: Tensor
    ) -> None:
        """Set the scale from the weight as it is now.

        Args:
            weight: float32.
            bias: float32 `(O,)` or None.
            batch_norm: the one that follows, or None.
            input_scale: the smallest scale of what the layer reads.

        Raises:
            NonFiniteError: the weight holds NaN or infinity.
        """
        folds_now = batch_norm is not None and not self.folds_codes
        observed = fold_weight(weight, batch_norm, self.layout) if folds_now and batch_norm is not None else weight
        observer = make_observer(self.spec.observer, axis=self.spec.axis, is_weight=True)
        observer.update(observed)
        scale, zero_point = observer.qparams(self.spec)
        if not self.folds_codes:
            folded_bias = fold_bias(bias, batch_norm) if batch_norm is not None else bias
            scale = self._with_room(scale, folded_bias, input_scale)
        self.input_scale.copy_(input_scale)
        self.settle(QParams(scale, zero_point))

    def _codes(self, weight: Tensor, scale: Tensor) -> Tensor:
        spec, zero_point = self.spec, self.fake_quantize.zero_point
        return quantize(weight, scale, zero_point, spec.qmin, spec.qmax, axis=spec.axis, dtype=torch.int8)

    def _on_grid(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the weight on the grid it is deployed on, whose scale leaves room for the bias as it is now."""
        spec, zero_point = self.spec, self.fake_quantize.zero_point
        scale = self._with_room(self.fake_quantize.scale, bias, self.input_scale)
        return fake_quantize(weight, scale, zero_point, spec.qmin, spec.qmax, axis=spec.axis)

    @staticmethod
    @torch.no_grad()
    def _with_room(scale: Tensor, bias: Tensor | None, input_scale: Tensor) -> Tensor:
        """Return the scale, raised where the bias in units of it would not fit an int32."""
        if bias is None:
            return scale
        floor = bias_scale_floor(bias, input_scale)
        return torch.maximum(scale, floor if scale.dim() else floor.max())

    def _state(
        self, gamma: Tensor | None, beta: Tensor | None, mean: Tensor | None, var: Tensor | None
    ) -> BatchNormState | None:
        if self.eps is None:
            return None
        assert mean is not None
        assert var is not None
        return BatchNormState(gamma=gamma, beta=beta, mean=mean, var=var, eps=self.eps)
