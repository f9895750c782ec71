"""What a file says about itself: the stamp, version 2, and its JSON form.

A stamp travels inside every file qtool writes, as `extra/qtool/stamp.json`, and says for each node which backend,
integer range and scale it was made with. It is plain data: reading one imports neither torch nor what a file names.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from qtool.errors import RangeError
from qtool.stamp.strict_json import decode
from qtool.stamp.upgrades import STAMP_UPGRADES
from qtool.types import MAC_OPS, Dtype, Granularity, Isa, Op, Spec, Stage, Verdict

FORMAT_VERSION = 2

STAMP_ENTRY = "extra/qtool/stamp.json"
PLAN_ENTRY = "extra/qtool/plan.json"
CONFIG_ENTRY = "extra/qtool/config.json"
TRAINING_GRAPH = "qtool/training.pt2"
"""The model in train mode: an archive inside the archive."""

SaturationWord = Literal["safe", "can_saturate", "unknown"]


@dataclass(frozen=True, kw_only=True)
class InputStamp:
    """One input of the model.

    Attributes:
        name: the name of the argument.
        shape: sizes; a word stands for a dynamic size, and the same word for the same size.
        dtype: the torch dtype's name, for example `float32`.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class SaturationStamp:
    """What the int16 pair sums of one node's kernel can reach.

    Attributes:
        verdict: `safe` is a proof; `can_saturate` names at least one channel; `unknown` promises nothing.
        num_channels: output channels that can saturate.
        worst_pair_sum: the sum of two products that is largest in magnitude, signed; int16 ends at 32767.
    """

    verdict: SaturationWord
    num_channels: int
    worst_pair_sum: int


@dataclass(frozen=True, kw_only=True)
class TensorStamp:
    """How one tensor is quantized; the scale fields are None before calibration.

    Attributes:
        edge: name of the quantized edge, or `<node>.weight`.
        dtype: dtype of the codes.
        qmin: smallest code used, inclusive.
        qmax: largest code used, inclusive.
        granularity: one scale for the tensor, or one per channel.
        axis: the channel axis; None for one scale.
        scale_min: smallest scale, > 0.
        scale_max: largest scale; equal to `scale_min` for one scale.
        zero_point_min: smallest zero point, in qmin..qmax.
        zero_point_max: largest zero point, in qmin..qmax.
        digest: sha256 of all scales and zero points, see `stamp.digest.parameter_digest`.

    Raises:
        RangeError: the fields contradict each other.

    Example:
        >>> x = TensorStamp(edge="x", dtype=Dtype.UINT8, qmin=0, qmax=127, granularity=Granularity.TENSOR)
        >>> x.num_bits, x.is_calibrated
        (7, False)
    """

    edge: str
    dtype: Dtype
    qmin: int
    qmax: int
    granularity: Granularity
    axis: int | None = None
    scale_min: float | None = None
    scale_max: float | None = None
    zero_point_min: int | None = None
    zero_point_max: int | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        # A Spec checks dtype, range, granularity and axis against each other.
        Spec(dtype=self.dtype, qmin=self.qmin, qmax=self.qmax, granularity=self.granularity, axis=self.axis)
        found = (self.scale_min, self.scale_max, self.zero_point_min, self.zero_point_max, self.digest)
        if all(value is None for value in found):
            return
        if self.scale_min is None or self.scale_max is None or not 0 < self.scale_min <= self.scale_max < math.inf:
            msg = f"scales {self.scale_min}..{self.scale_max} of {self.edge!r}: they must be finite, > 0 and in order"
            raise RangeError(msg)
        low, high = self.zero_point_min, self.zero_point_max
        if low is None or high is None or not self.qmin <= low <= high <= self.qmax:
            msg = f"zero points {low}..{high} of {self.edge!r}: they must lie in {self.qmin}..{self.qmax}"
            raise RangeError(msg)
        if self.digest is None:
            msg = f"{self.edge!r} has scales but no digest of them"
            raise RangeError(msg)

    @property
    def num_bits(self) -> int:
        """Bits that the codes need: 7 for 0..127, 8 for 0..255 or -128..127."""
        return (self.qmax - self.qmin).bit_length()

    @property
    def is_calibrated(self) -> bool:
        """Whether its scale is known."""
        return self.scale_min is not None


@dataclass(frozen=True, kw_only=True)
class NodeStamp:
    """What became of one op of the model, and for which target.

    Attributes:
        name: the node's name for people, unique in the file.
        op: the int8 pattern, or None where the op has none.
        target: the aten op.
        verdict: int8 or float.
        reason: why, in words.
        backends: the backends this node was made for: it is right on each of them.
        inputs: the quantized tensors it reads, in argument order.
        weight: its quantized weight, if it has one.
        output: the quantized tensor it writes; None if its result stays float.
        activation: the fused activation, or None.
        depthwise: a convolution with one input channel per group.
        channel_multiplier: output channels per group of a depthwise convolution; None elsewhere, or if nobody looked.
        reduce_range: its input activations are kept in a reduced range.
        requires_full_range: its input uses more than 7 bits and no proof says that this is safe, so it is right
            only where products are summed in int32: on a CPU with VNNI, or by qnnpack.
        saturation: the proof, where weight codes are known.
    """

    name: str
    op: Op | None
    target: str
    verdict: Verdict
    reason: str
    backends: tuple[str, ...]
    inputs: tuple[TensorStamp, ...] = ()
    weight: TensorStamp | None = None
    output: TensorStamp | None = None
    activation: str | None = None
    depthwise: bool = False
    channel_multiplier: int | None = None
    reduce_range: bool = False
    requires_full_range: bool = False
    saturation: SaturationStamp | None = None

    @property
    def multiplies_codes(self) -> bool:
        """Whether it is an int8 convolution or linear: its kernel multiplies activation codes by weight codes."""
        return self.verdict is Verdict.INT8 and self.op in MAC_OPS and bool(self.inputs)

    @property
    def uses_full_range(self) -> bool:
        """Whether it multiplies activation codes of more than 7 bits, whose pair sums may leave int16."""
        # 127 * (127 + 127) = 32258: with 7 bits no pair of int8 weights reaches 2^15.
        return self.multiplies_codes and self.inputs[0].num_bits > 7

    @property
    def is_proved_safe(self) -> bool:
        """Whether the weights are known, and no pair of products of them leaves int16."""
        return self.saturation is not None and self.saturation.verdict == "safe"


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What a file was made from, how far it has come, and the target of each of its nodes.

    Attributes:
        format_version: version of this schema.
        tool_version: version of qtool that wrote the file.
        stage: how far the file has come.
        backends: the backends it is made for; it is right on each of them.
        isa: the CPU it is made for.
        config_digest: sha256 of the settled config.
        source_digest: sha256 of the float weights and graph it was made from.
        content_digest: sha256 of what is in the file, see `stamp.digest.content_digest`; empty before it is written.
        preprocessing: how samples become inputs, as the config states it; None if it says nothing.
        inputs: the model's inputs in order.
        nodes: every op of the model in execution order.

    Raises:
        RangeError: two nodes bear one name.
    """

    tool_version: str
    stage: Stage
    backends: tuple[str, ...]
    isa: Isa
    config_digest: str
    source_digest: str
    inputs: tuple[InputStamp, ...]
    nodes: tuple[NodeStamp, ...]
    preprocessing: dict[str, Any] | None = None
    content_digest: str = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(node.name for node in self.nodes).items() if count > 1]
        if twice:
            msg = f"two nodes are named {twice[0]!r}; names must be unique"
            raise RangeError(msg)

    def int8_nodes(self) -> tuple[NodeStamp, ...]:
        """Return the nodes that run in int8."""
        return tuple(node for node in self.nodes if node.verdict is Verdict.INT8)

    def with_content(self, content_digest: str) -> Stamp:
        """Return the same stamp with the digest of the archive it will lie in."""
        return dataclasses.replace(self, content_digest=content_digest)


def to_json(stamp: Stamp) -> str:
    """Return the stamp as JSON: sorted keys, ASCII, numbers that read back exactly, so equal stamps are equal text.

    Raises:
        ValueError: `preprocessing` holds a NaN or something JSON has no word for.
    """
    return json.dumps(dataclasses.asdict(stamp), sort_keys=True, allow_nan=False, separators=(",", ":"))


def from_json(text: str | bytes, *, where: str = "stamp") -> Stamp:
    """Return the stamp that `text` states.

    Args:
        text: JSON, UTF-8 if bytes.
        where: what to call the text in errors.

    Raises:
        FileFormatError: not JSON, another format version, or a field that is missing, unknown or out of range.
    """
    return decode(Stamp, text, where=where, newest=FORMAT_VERSION, upgrades=STAMP_UPGRADES)
