"""What a report says of one node: what its stamp says and what was found in the file, joined.

`Origin` tells for what could be either which of them it is. A fact that is nowhere is None, which is never "fine".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from qtool.errors import RangeError
from qtool.readers.facts import Compute, Role
from qtool.saturation.verdict import Layer
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from qtool.saturation.verdict import Bound
    from qtool.types import Op


class Origin(StrEnum):
    """Where a fact comes from: the file's stamp, the file's own content, or nowhere."""

    STAMPED = "stamped"
    DERIVED = "derived"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """How often values occur: `counts[i]` of them lie in the i-th of equal steps from `low` to `high`.

    Attributes:
        low: left end of the first step.
        high: right end of the last step.
        counts: how many values lie in each step; the last includes `high`.
        is_log: the steps are equal in the logarithm, as for scales.
    """

    low: float
    high: float
    counts: tuple[int, ...]
    is_log: bool = False


@dataclass(frozen=True, kw_only=True)
class Faults:
    """How many of a tensor's own numbers are wrong, by what is wrong with them.

    Attributes:
        num_scales_not_positive: scales that are 0, negative, infinite or NaN.
        num_scales_denormal: scales above 0 and below 2^-126, the smallest normal float32.
        num_zero_points_outside: zero points outside qmin..qmax, or NaN.
        num_zero_points_fractional: zero points that are no integers.
        num_values_not_finite: stored floats that are infinite or NaN.
        num_dead_channels: output channels of a weight whose codes all stand for 0.
        num_scales_not_product: of a bias, scales that are not its input's scale times its weight's.
        num_biases_outside: of a bias, channels that int32 cannot hold at that product, or that stand at int32's end.
    """

    num_scales_not_positive: int = 0
    num_scales_denormal: int = 0
    num_zero_points_outside: int = 0
    num_zero_points_fractional: int = 0
    num_values_not_finite: int = 0
    num_dead_channels: int = 0
    num_scales_not_product: int = 0
    num_biases_outside: int = 0


@dataclass(frozen=True, kw_only=True)
class TensorReport:
    """One tensor of a node, with its numbers.

    Attributes:
        role: what it is to the node.
        name: its name in the file or the stamp; untrusted text.
        dtype: of its codes, or of its values where it is not quantized.
        shape: its sizes; None where they are not known.
        num_bytes: what it takes in the file; 0 for a value computed while running.
        is_quantized: it has codes.
        is_in_out: a weight that is stored as (in, out).
        qmin: smallest code it may have; None where nothing says.
        qmax: largest code it may have.
        axis: the channel axis; None for one scale.
        group_size: neighbours along `axis` that share a scale.
        num_scales: how many scales it has; 0 where they are not known.
        scale_min: smallest scale, of those that are finite; as it is in the file.
        scale_max: largest such scale.
        zero_point_min: smallest finite zero point.
        zero_point_max: largest finite zero point.
        seen_min: smallest code that the stored tensor really has.
        seen_max: largest code that it really has.
        values: of a stored weight, its codes, or its floats; of a large one a sample.
        scales: of many scales.
        digest: `stamp.digest.parameter_digest` of the scales and zero points in the file; None where they are not.
        faults: what is wrong with its numbers.
    """

    role: Role
    name: str
    dtype: str
    shape: tuple[int, ...] | None = None
    num_bytes: int = 0
    is_quantized: bool = True
    is_in_out: bool = False
    qmin: int | None = None
    qmax: int | None = None
    axis: int | None = None
    group_size: int | None = None
    num_scales: int = 0
    scale_min: float | None = None
    scale_max: float | None = None
    zero_point_min: float | None = None
    zero_point_max: float | None = None
    seen_min: int | None = None
    seen_max: int | None = None
    values: Histogram | None = None
    scales: Histogram | None = None
    digest: str | None = None
    faults: Faults = Faults()

    @property
    def granularity(self) -> str:
        """How many scales it has, in one word: `tensor`, `channel` or `group`."""
        if self.group_size is not None:
            return "group"
        return "tensor" if self.axis is None else "channel"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found in the numbers of one node.

    Attributes:
        tensors: its tensors, one for each of its operands.
        bounds: what the pair sums of its weight can reach; empty where weight or input codes are not known.
    """

    tensors: tuple[TensorReport, ...]
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """One node of the model.

    Attributes:
        name: what people call it; untrusted text.
        op: qtool's pattern; None where it has none.
        target: the op as the file calls it; untrusted text.
        compute: how it computes.
        origin: whether its target is stamped; `unknown` of a file without stamps.
        backends: the backends it was made for; empty if nothing says.
        reduce_range: its input activations are kept in a reduced range; None if nothing says.
        reduce_range_origin: where that comes from.
        activation: what is fused into it.
        depthwise: a convolution with one input channel per group; True as well where that cannot be told.
        channel_multiplier: output channels per group of a depthwise convolution; None elsewhere, or if not known.
        groups: of a convolution; None if not known.
        packed_class: the class that holds its packed weight.
        requires_full_range: the stamp's own word on it.
        tensors: inputs in argument order, weight, bias, output.
        bounds: what the pair sums of its weight can reach, for each pairing; empty if the weight is not known.
        bounds_origin: `derived` is proved here from the weight itself, `stamped` is what the stamp says.
        reads: names of the nodes whose results it reads.
        why: why it stays float, or what else is to be said.
    """

    name: str
    op: Op | None
    target: str
    compute: Compute
    origin: Origin
    backends: tuple[str, ...] = ()
    reduce_range: bool | None = None
    reduce_range_origin: Origin = Origin.UNKNOWN
    activation: str | None = None
    depthwise: bool = False
    channel_multiplier: int | None = None
    groups: int | None = None
    packed_class: str | None = None
    requires_full_range: bool = False
    tensors: tuple[TensorReport, ...] = ()
    bounds: tuple[Bound, ...] = ()
    bounds_origin: Origin = Origin.UNKNOWN
    reads: tuple[str, ...] = ()
    why: str = ""

    @property
    def is_quantized(self) -> bool:
        """Whether anything of it is quantized."""
        return self.compute is not Compute.FLOAT

    def tensor(self, role: Role) -> TensorReport | None:
        """Return its first tensor of that role."""
        return next((tensor for tensor in self.tensors if tensor.role is role), None)

    @property
    def multiplies_codes(self) -> bool:
        """Whether its kernel multiplies activation codes by weight codes, now or once it is converted."""
        return self.op in MAC_OPS and self.runs_on_codes and self._codes is not None

    @property
    def runs_on_codes(self) -> bool:
        """Whether a backend's int8 kernel is to run it: all but float nodes, and those with codes as weights alone."""
        return self.compute in (Compute.STATIC, Compute.DYNAMIC, Compute.FAKE_QUANTIZED)

    @property
    def layer(self) -> Layer:
        """What its sums depend on, for `qtool.saturation.verdict.judge`.

        Raises:
            RangeError: it multiplies no codes.
        """
        if self.op is None or self._codes is None or not self.multiplies_codes:
            msg = f"{self.name!r} multiplies no codes, so it has no sums"
            raise RangeError(msg)
        low, high = self._codes
        return Layer(
            op=self.op,
            a_lo=low,
            a_hi=high,
            depthwise=self.depthwise,
            channel_multiplier=self.channel_multiplier,
            bounds=self.bounds,
        )

    @property
    def multiplier(self) -> float | None:
        """The largest factor from a sum of products to an output code: input scale * weight scale / output scale."""
        read, weight, made = (self.tensor(role) for role in (Role.INPUT, Role.WEIGHT, Role.OUTPUT))
        scales = [None if each is None else each.scale_max for each in (read, weight)]
        out = None if made is None else made.scale_min
        if out is None or out <= 0 or scales[0] is None or scales[1] is None:
            return None
        return scales[0] * scales[1] / out

    @property
    def _codes(self) -> tuple[int, int] | None:
        """The ends of its input's codes."""
        read = self.tensor(Role.INPUT)
        return None if read is None or read.qmin is None or read.qmax is None else (read.qmin, read.qmax)
