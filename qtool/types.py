"""The words that all parts of qtool share: names of ops, dtypes, targets, and how one tensor is quantized.

Torch-free. Nothing here has behaviour beyond checking itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from qtool.errors import RangeError


class Op(StrEnum):
    """The op patterns that can run in int8; everything else is a float island.

    A pattern is the op with what is fused into it: `conv2d` stands for conv2d + batch norm + relu too.
    `LAYOUT` is every op that only moves values (view, flatten, permute, slice, split, pad with zero, nearest
    upsampling ...), `ACTIVATION` a relu, relu6 or hardtanh that could not be fused into the op before it; the output of
    both has its input's scale and zero point. `INTERPOLATE` is an upsampling that mixes neighbours linearly. The output
    of `SIGMOID`, `HARDSIGMOID`, `TANH` and `SOFTMAX` has a range that is known before any data.
    """

    CONV1D = "conv1d"
    CONV2D = "conv2d"
    CONV3D = "conv3d"
    CONV_TRANSPOSE1D = "conv_transpose1d"
    CONV_TRANSPOSE2D = "conv_transpose2d"
    LINEAR = "linear"
    ADD = "add"
    MUL = "mul"
    CAT = "cat"
    MAX_POOL = "max_pool"
    AVG_POOL = "avg_pool"
    MEAN = "mean"
    INTERPOLATE = "interpolate"
    ACTIVATION = "activation"
    LAYOUT = "layout"
    SIGMOID = "sigmoid"
    HARDSIGMOID = "hardsigmoid"
    TANH = "tanh"
    SOFTMAX = "softmax"
    HARDSWISH = "hardswish"
    LEAKY_RELU = "leaky_relu"


CONVOLUTIONS = frozenset({Op.CONV1D, Op.CONV2D, Op.CONV3D, Op.CONV_TRANSPOSE1D, Op.CONV_TRANSPOSE2D})
"""Convolutions, transposed ones too: they have groups, and so kernels of their own for depthwise ones."""

TRANSPOSED_CONVOLUTIONS = frozenset({Op.CONV_TRANSPOSE1D, Op.CONV_TRANSPOSE2D})
"""Convolutions whose weight is (in, out / groups, *kernel)."""

MAC_OPS = CONVOLUTIONS | {Op.LINEAR}
"""Ops that multiply and accumulate: they have a weight, and their kernels may saturate."""


class Dtype(StrEnum):
    """Integer dtypes of codes."""

    UINT8 = "uint8"
    INT8 = "int8"


DTYPE_LIMITS = {Dtype.UINT8: (0, 255), Dtype.INT8: (-128, 127)}


class Granularity(StrEnum):
    """How many scales a tensor has: one, or one per index of an axis."""

    TENSOR = "tensor"
    CHANNEL = "channel"


class Isa(StrEnum):
    """The CPU a model is made for: `any` promises nothing, so it is planned like `no-vnni`."""

    ANY = "any"
    VNNI = "vnni"
    NO_VNNI = "no-vnni"


class Reduce(StrEnum):
    """When activations give up their eighth bit: where the target's kernels need it, always, or never.

    `per_node` is `auto`, but for nodes whose weights, once known, are proved not to saturate with all 8 bits.
    """

    AUTO = "auto"
    PER_NODE = "per_node"
    ALWAYS = "always"
    NEVER = "never"


class Verdict(StrEnum):
    """What becomes of a node."""

    INT8 = "int8"
    FLOAT = "float"


class Memory(StrEnum):
    """What training keeps of a layer between forward and backward; the numbers are the same in all.

    `standard` keeps activations as floats, `compressed` their 8-bit codes; `recompute` computes each layer's result
    again as well, `mixed` where that is cheap for what it frees.
    """

    STANDARD = "standard"
    COMPRESSED = "compressed"
    MIXED = "mixed"
    RECOMPUTE = "recompute"


class Stage(StrEnum):
    """How far a file has come."""

    PREPARED = "prepared"
    TRAINED = "trained"
    CONVERTED = "converted"
    EXPORTED = "exported"


@dataclass(frozen=True, kw_only=True)
class FixedParameters:
    """Scale and zero point that are known before any data.

    Attributes:
        scale: float distance between two codes, > 0.
        zero_point: code of 0.0.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True, kw_only=True)
class Spec:
    """How one tensor is quantized, and which rule says so.

    Attributes:
        dtype: dtype of the codes.
        qmin: smallest code used, inclusive; at least the dtype's.
        qmax: largest code used, inclusive; at most the dtype's.
        granularity: one scale for the tensor, or one per channel.
        axis: the channel axis, counted from the front; None for one scale.
        symmetric: the zero point is fixed (0 for int8).
        reduce_range: the range is smaller than the dtype's because of the target's kernels.
        observer: name of the observer that finds the range.
        fixed: scale and zero point, where they follow from the op and not from data; None where they are observed.
        why: the reason for the range, in words.
        source: where the rule comes from.

    Raises:
        RangeError: qmin and qmax do not fit the dtype or each other, or say another range than reduce_range; or fixed
            parameters fit neither.

    Example:
        >>> Spec(dtype=Dtype.UINT8, qmin=0, qmax=127, reduce_range=True, observer="minmax").num_steps
        127
    """

    dtype: Dtype
    qmin: int
    qmax: int
    granularity: Granularity = Granularity.TENSOR
    axis: int | None = None
    symmetric: bool = False
    reduce_range: bool = False
    observer: str = "minmax"
    fixed: FixedParameters | None = None
    why: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        low, high = DTYPE_LIMITS[self.dtype]
        if not low <= self.qmin < self.qmax <= high:
            msg = (
                f"range {self.qmin}..{self.qmax} does not fit {self.dtype.value}: "
                f"it must lie in {low}..{high} with qmin < qmax"
            )
            raise RangeError(msg)
        if self.reduce_range and (self.qmin, self.qmax) == (low, high):
            msg = (
                f"reduce_range is set, but qmin={self.qmin} and qmax={self.qmax} are the full range of "
                f"{self.dtype.value}: give the reduced range, for example 0..127, or clear reduce_range"
            )
            raise RangeError(msg)
        if (self.axis is None) != (self.granularity is Granularity.TENSOR):
            msg = f"granularity {self.granularity.value!r} with axis {self.axis}: only 'channel' has an axis"
            raise RangeError(msg)
        if self.fixed is not None:
            self._check_fixed(self.fixed)

    def _check_fixed(self, fixed: FixedParameters) -> None:
        is_possible = 0 < fixed.scale < inf and self.qmin <= fixed.zero_point <= self.qmax
        if not is_possible or self.granularity is not Granularity.TENSOR or self.symmetric:
            msg = (
                f"fixed scale {fixed.scale} and zero point {fixed.zero_point} do not fit {self.qmin}..{self.qmax} with "
                f"granularity {self.granularity.value!r}: the scale must be above 0, the zero point one of the codes, "
                "and there must be one of each, affine"
            )
            raise RangeError(msg)

    @property
    def num_steps(self) -> int:
        """Number of steps between the smallest and the largest code."""
        return self.qmax - self.qmin
