"""The fake-quantize module: a spec, its scale and zero point, and a switch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from qtool.errors import DtypeError, RangeError
from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.fixed_dtype import FixedDtypeModule
from qtool.numerics.grid import Grid
from qtool.numerics.qparams import SCALE_CEILING, SCALE_FLOOR, QParams, symmetric_zero_point
from qtool.types import Granularity, Spec


class FakeQuantize(FixedDtypeModule):
    """Rounds its input to the grid of its codes; the spec alone says which codes there are.

    The buffers `scale` (float32) and `zero_point` (int32) are what every later stage reads, bit for bit. They are
    `()` for one scale per tensor and `(num_channels,)` for one per channel, and keep their dtype when the model is
    cast. Before the first `set_qparams` the scale is 1, or the spec's fixed one; fixed parameters never change.

    Args:
        spec: how the tensor is quantized.
        num_channels: length of the spec's axis; only for granularity `channel`.

    Attributes:
        enabled: False lets the input pass unchanged; kept by deepcopy, pickle and state_dict.

    Raises:
        RangeError: the spec contradicts itself, or num_channels does not fit its granularity.

    Example:
        >>> fq = FakeQuantize(Spec(dtype=Dtype.UINT8, qmin=0, qmax=127, reduce_range=True))
        >>> fq.set_qparams(affine_qparams(0.0, 1.27, 0, 127))
        >>> fq(torch.tensor([0.004, 0.006, 2.0]))
        tensor([0.0000, 0.0100, 1.2700])
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(self, spec: Spec, num_channels: int | None = None) -> None:
        super().__init__()
        _check_spec(spec, num_channels)
        self.spec = spec
        self.enabled = True
        shape = () if num_channels is None else (num_channels,)
        zero_point = symmetric_zero_point(spec.qmin, spec.qmax) if spec.symmetric else max(spec.qmin, 0)
        scale = 1.0
        if spec.fixed is not None:
            scale, zero_point = spec.fixed.scale, spec.fixed.zero_point
        self.register_buffer("scale", torch.full(shape, scale, dtype=torch.float32))
        self.register_buffer("zero_point", torch.full(shape, zero_point, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` on the grid, or `x` itself while not enabled."""
        if not self.enabled:
            return x
        return fake_quantize(x, self.scale, self.zero_point, self.spec.qmin, self.spec.qmax, axis=self.spec.axis)

    def grid(self) -> Grid | None:
        """Return what values are rounded to, as it is now; None while not enabled."""
        if not self.enabled:
            return None
        # A copy: backward may come after the next step has set the buffers anew.
        return Grid(self.scale.clone(), self.zero_point.clone(), self.spec.qmin, self.spec.qmax, self.spec.axis)

    @torch.no_grad()
    def set_qparams(self, qparams: QParams) -> None:
        """Take over scale and zero point, after checking all there is to check; forward checks nothing.

        Args:
            qparams: any float and integer dtypes; a float zero point is rounded half to even.

        Raises:
            DtypeError: scale is not floating, or zero_point is neither integer nor floating.
            RangeError: wrong number of channels; a scale that is not finite or outside SCALE_FLOOR..SCALE_CEILING;
                a zero point outside qmin..qmax, or off the fixed one of a symmetric spec; others than the spec's
                fixed parameters.
        """
        scale, zero_point = self._checked(qparams.scale, qparams.zero_point)
        self.scale.copy_(scale)
        self.zero_point.copy_(zero_point)

    def extra_repr(self) -> str:
        """Return the spec in a line."""
        spec = self.spec
        where = "per tensor" if spec.axis is None else f"{self.scale.numel()} channels on axis {spec.axis}"
        state = "" if self.enabled else ", disabled"
        return f"{spec.dtype.value} {spec.qmin}..{spec.qmax}, {where}{state}"

    def get_extra_state(self) -> Tensor:
        """Return the switch for state_dict: a tensor, so that a state_dict holds nothing but tensors."""
        return torch.tensor(self.enabled)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the switch from a state_dict."""
        self.enabled = bool(state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:  # noqa: ANN401 - passed on
        scale, zero_point = state_dict.get(f"{prefix}scale"), state_dict.get(f"{prefix}zero_point")
        # Missing keys and other shapes are reported by torch, together with those of the rest of the model.
        if scale is not None and zero_point is not None and scale.shape == self.scale.shape == zero_point.shape:
            loaded = self._checked(scale, zero_point, where=f"{prefix.rstrip('.')}: " if prefix else "")
            state_dict[f"{prefix}scale"], state_dict[f"{prefix}zero_point"] = loaded
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _checked(self, scale: Tensor, zero_point: Tensor, where: str = "") -> QParams:
        """Return both as float32 and int32, or raise."""
        if not scale.is_floating_point() or zero_point.dtype == torch.bool or zero_point.is_complex():
            msg = f"{where}scale is {scale.dtype} and zero_point {zero_point.dtype}: they must be floating and integer"
            raise DtypeError(msg)
        if scale.shape != self.scale.shape or zero_point.shape != self.scale.shape:
            msg = (
                f"{where}scale of shape {tuple(scale.shape)} and zero_point of shape {tuple(zero_point.shape)} "
                f"do not fit: both must be of shape {tuple(self.scale.shape)}"
            )
            raise RangeError(msg)
        if zero_point.is_floating_point():
            zero_point = zero_point.round()  # NaN and infinity are caught by the range check
        if self.spec.fixed is not None:
            self._check_fixed(scale, zero_point, where)
        _check_all(
            (scale >= SCALE_FLOOR) & (scale <= SCALE_CEILING),
            scale,
            f"{where}scale",
            f"{SCALE_FLOOR:.3g}..{SCALE_CEILING:.3g}; a smaller or larger one has no finite reciprocal",
        )
        low, high = self.spec.qmin, self.spec.qmax
        if self.spec.symmetric:
            low = high = symmetric_zero_point(low, high)
        _check_all((zero_point >= low) & (zero_point <= high), zero_point, f"{where}zero_point", f"{low}..{high}")
        return QParams(scale.to(torch.float32), zero_point.to(torch.int32))

    def _check_fixed(self, scale: Tensor, zero_point: Tensor, where: str) -> None:
        fixed = self.spec.fixed
        assert fixed is not None
        if float(scale) != fixed.scale or int(zero_point) != fixed.zero_point:
            msg = (
                f"{where}scale {float(scale)} and zero_point {int(zero_point)}: they are fixed at {fixed.scale} and "
                f"{fixed.zero_point}, for they follow from the op"
            )
            raise RangeError(msg)


def _check_spec(spec: Spec, num_channels: int | None) -> None:
    if (num_channels is None) != (spec.granularity is Granularity.TENSOR):
        msg = f"granularity {spec.granularity.value!r} with num_channels={num_channels}: only 'channel' needs it"
        raise RangeError(msg)


def _check_all(good: Tensor, values: Tensor, name: str, allowed: str) -> None:
    if bool(good.all()):
        return
    bad = (~good).flatten().nonzero().flatten()
    first = int(bad[0])
    channel = f" of channel {first}" if values.dim() else ""
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    msg = f"{name}{channel} is {values.flatten()[first].item()}{more}: it must lie in {allowed}"
    raise RangeError(msg)
