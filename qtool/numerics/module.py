"""The fake-quantize module: a spec, its scale and zero point, a switch, and a scale that may learn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from qtool.errors import DtypeError, RangeError, UsageError
from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.fixed_dtype import FixedDtypeModule
from qtool.numerics.grid import Grid
from qtool.numerics.grown_scale import grown_scale
from qtool.numerics.learned_step import fake_quantize_learned
from qtool.numerics.qparams import SCALE_CEILING, SCALE_FLOOR, QParams, symmetric_zero_point
from qtool.types import Granularity, Spec


class FakeQuantize(FixedDtypeModule):
    """Rounds its input to the grid of its codes; the spec alone says which codes there are.

    The buffers `scale` (float32) and `zero_point` (int32) are what every later stage reads, bit for bit. They are
    `()` for one scale per tensor and `(num_channels,)` for one per channel, and keep their dtype when the model is
    cast. Before the first `set_qparams` the scale is 1, or the spec's fixed one; fixed parameters never change.

    After `learn_scale` the scale follows from a parameter, `shift`, and `start`, what the scale was then (see
    `grown_scale`). The buffer `scale` is brought up to date by each forward pass, by `refresh_scale` and by state_dict.

    Args:
        spec: how the tensor is quantized.
        num_channels: length of the spec's axis; only for granularity `channel`.
        has_batch: dimension 0 of the inputs counts samples, which the gradient of a learned scale is not divided by.

    Attributes:
        enabled: False lets the input pass unchanged; kept by deepcopy, pickle and state_dict.
        follows: False keeps a learned scale as it is: no gradient reaches it.
        shift: float32, of the shape of `scale`; None while the scale does not learn.

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
    start: Tensor
    shift: nn.Parameter | None

    def __init__(self, spec: Spec, num_channels: int | None = None, *, has_batch: bool = False) -> None:
        super().__init__()
        _check_spec(spec, num_channels)
        self.spec = spec
        self.has_batch = has_batch
        self.enabled = True
        self.follows = True
        self._refreshed: tuple[int, int] | None = None
        shape = () if num_channels is None else (num_channels,)
        zero_point = symmetric_zero_point(spec.qmin, spec.qmax) if spec.symmetric else max(spec.qmin, 0)
        scale = 1.0
        if spec.fixed is not None:
            scale, zero_point = spec.fixed.scale, spec.fixed.zero_point
        self.register_buffer("scale", torch.full(shape, scale, dtype=torch.float32))
        self.register_buffer("zero_point", torch.full(shape, zero_point, dtype=torch.int32))
        self.register_parameter("shift", None)

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` on the grid, or `x` itself while not enabled."""
        if not self.enabled:
            return x
        self.refresh_scale()
        spec = self.spec
        if self.shift is None or not self.follows:
            return fake_quantize(x, self.scale, self.zero_point, spec.qmin, spec.qmax, axis=spec.axis)
        scale, num_elements = self.trained_scale(), self.elements_per_scale(x)
        return fake_quantize_learned(
            x, scale, self.zero_point, spec.qmin, spec.qmax, axis=spec.axis, num_elements=num_elements
        )

    @property
    def learns(self) -> bool:
        """Whether the scale follows from a parameter."""
        return self.shift is not None

    def learn_scale(self, learned: bool = True) -> None:
        """Let the scale follow from a parameter from now on, beginning with what it is; False: let it stay what it is.

        A channel of nothing but zeros, whose scale says nothing, begins with the smallest scale of the others: all its
        values stay zero, and it can come to life.

        Raises:
            UsageError: the scale is fixed by the spec.
        """
        if learned and self.spec.fixed is not None:
            msg = f"the scale is fixed at {self.spec.fixed.scale}, for it follows from the op: it cannot be learned"
            raise UsageError(msg)
        if learned == self.learns:
            return
        self.refresh_scale()
        if not learned:
            self.shift = None
            del self.start
            return
        is_dead = self.scale <= SCALE_FLOOR
        if bool(is_dead.any()) and not bool(is_dead.all()):
            self.scale.masked_fill_(is_dead, self.scale[~is_dead].min())
        self.register_buffer("start", self.scale.clone())
        self.shift = nn.Parameter(torch.zeros_like(self.scale))

    def share_learned_scale(self, other: FakeQuantize) -> None:
        """Learn the scale of another module, together with it: both have one parameter.

        Raises:
            UsageError: the other one does not learn its scale, or has another shape of it.
        """
        if other.shift is None or other.scale.shape != self.scale.shape:
            msg = "only a scale that learns, and of the same shape, can be shared: call learn_scale on the other first"
            raise UsageError(msg)
        self.learn_scale(False)
        self.scale.copy_(other.scale)
        self.register_buffer("start", other.start.clone())
        self.shift = other.shift

    @torch.no_grad()
    def resume_scale(self, start: Tensor, shift: Tensor) -> None:
        """Go on with a learned scale that began as `start` and was moved by `shift`.

        Raises:
            RangeError: a shape is not that of the scale, start is no scale, or shift is not finite.
        """
        _check_learned(start, shift, self.scale.shape)
        self.start.copy_(start)
        assert self.shift is not None
        self.shift.copy_(shift)
        self.refresh_scale()

    def trained_scale(self) -> Tensor:
        """Return the scale, through which gradients reach its parameter if it learns and follows."""
        if self.shift is None or not self.follows:
            return self.scale
        return grown_scale(self.start, self.shift)

    @torch.no_grad()
    def refresh_scale(self) -> None:
        """Bring the buffer `scale` up to date with what an optimizer did to its parameter."""
        if self.shift is None:
            return
        now = id(self.shift), self.shift._version
        if now != self._refreshed:  # what was saved for a backward to come must not be written to
            self.scale.copy_(grown_scale(self.start, self.shift))
            self._refreshed = now

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, which has a parameter of its own."""
        return {**self.__dict__, "_refreshed": None}

    def elements_per_scale(self, x: Tensor) -> int:
        """Return how many elements of `x` share a scale, of one sample where it has a batch."""
        num_samples = x.shape[0] if self.has_batch and x.dim() > 1 else 1
        return x.numel() // max(self.scale.numel() * num_samples, 1)

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

        A scale that learns goes on from the given one.
        """
        scale, zero_point = self._checked(qparams.scale, qparams.zero_point)
        self.scale.copy_(scale)
        self.zero_point.copy_(zero_point)
        if self.shift is not None:
            self.start.copy_(scale)
            self.shift.zero_()

    def extra_repr(self) -> str:
        """Return the spec in a line."""
        spec = self.spec
        where = "per tensor" if spec.axis is None else f"{self.scale.numel()} channels on axis {spec.axis}"
        state = (", learned" if self.learns else "") + ("" if self.enabled else ", disabled")
        return f"{spec.dtype.value} {spec.qmin}..{spec.qmax}, {where}{state}"

    def get_extra_state(self) -> Tensor:
        """Return the switch for state_dict: a tensor, so that a state_dict holds nothing but tensors."""
        return torch.tensor(self.enabled)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the switch from a state_dict."""
        self.enabled = bool(state)

    def _save_to_state_dict(self, *args: Any) -> None:  # noqa: ANN401 - passed on
        self.refresh_scale()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:  # noqa: ANN401 - passed on
        scale, zero_point = state_dict.get(f"{prefix}scale"), state_dict.get(f"{prefix}zero_point")
        # Missing keys and other shapes are reported by torch, together with those of the rest of the model.
        if scale is not None and zero_point is not None and scale.shape == self.scale.shape == zero_point.shape:
            loaded = self._checked(scale, zero_point, where=f"{prefix.rstrip('.')}: " if prefix else "")
            state_dict[f"{prefix}scale"], state_dict[f"{prefix}zero_point"] = loaded
        if f"{prefix}shift" in state_dict:
            self.learn_scale()
            if f"{prefix}start" in state_dict:
                _check_learned(state_dict[f"{prefix}start"], state_dict[f"{prefix}shift"], self.scale.shape, prefix)
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


def _check_learned(start: Tensor, shift: Tensor, shape: torch.Size, where: str = "") -> None:
    if start.shape != shape or shift.shape != shape:
        found = f"{where}start of shape {tuple(start.shape)} and shift of shape {tuple(shift.shape)} do not fit"
        msg = f"{found}: both must be of shape {tuple(shape)}"
        raise RangeError(msg)
    is_scale = (start >= SCALE_FLOOR) & (start <= SCALE_CEILING)
    _check_all(is_scale, start, f"{where}start", f"{SCALE_FLOOR:.3g}..{SCALE_CEILING:.3g}")
    _check_all(shift.isfinite(), shift, f"{where}shift", "the finite numbers")


def _check_all(good: Tensor, values: Tensor, name: str, allowed: str) -> None:
    if bool(good.all()):
        return
    bad = (~good).flatten().nonzero().flatten()
    first = int(bad[0])
    channel = f" of channel {first}" if values.dim() else ""
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    msg = f"{name}{channel} is {values.flatten()[first].item()}{more}: it must lie in {allowed}"
    raise RangeError(msg)
