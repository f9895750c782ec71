"""What can be known of a model file without running anything in it: its tensors, and the layers they belong to.

Every reader ends in these records, whatever the format and whoever wrote the file. A reader says what the file says
and judges nothing: a scale of NaN, or a zero point of 300, is a fact here and a finding in `qtool.inspection`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from qtool.readers.marks import NOTHING, GraphFacts

if TYPE_CHECKING:
    from qtool.readers.risks import Risk
    from qtool.stamp.schema import Stamp
    from qtool.types import Op


class FileKind(StrEnum):
    """What a file is, told from its content alone.

    PT2 is a program of torch.export, AOTI a package that AOTInductor compiled. CHECKPOINT is what torch.save wrote and
    what holds tensors and plain values; MODULE the same with objects of other classes; PICKLE a pickle of anything
    else. ZIP is an archive that is none of these.
    """

    PT2 = "pt2"
    AOTI = "aotinductor"
    MODULE = "module"
    TORCHSCRIPT = "torchscript"
    CHECKPOINT = "checkpoint"
    PICKLE = "pickle"
    ONNX = "onnx"
    SAFETENSORS = "safetensors"
    EXECUTORCH = "executorch"
    ZIP = "zip"


class StampProblemKind(StrEnum):
    """Why a file has no stamp that can be used."""

    MISSING = "missing"
    NEWER = "newer"
    UNREADABLE = "unreadable"


class Role(StrEnum):
    """What a tensor is to the node that uses it."""

    INPUT = "input"
    WEIGHT = "weight"
    BIAS = "bias"
    OUTPUT = "output"


class Compute(StrEnum):
    """How a node computes.

    STATIC: on integer codes, with scales from the file. DYNAMIC: the same, but its input's scale is worked out anew
    for every input. WEIGHT_ONLY: its weight is stored as codes, and it computes in float. FAKE_QUANTIZED: in float, on
    values that are rounded to codes and back, as in training. FLOAT: in float.
    """

    STATIC = "static"
    DYNAMIC = "dynamic"
    WEIGHT_ONLY = "weight_only"
    FAKE_QUANTIZED = "fake_quantized"
    FLOAT = "float"


BITS: Final = {
    "bool": 8, "uint8": 8, "int8": 8, "uint16": 16, "int16": 16, "uint32": 32, "int32": 32, "uint64": 64, "int64": 64,
    "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64, "complex32": 32, "complex64": 64, "complex128": 128,
    "uint4": 4, "int4": 4, "uint2": 2, "int2": 2, "uint1": 1, "int1": 1, "float4_e2m1fn": 4, "float8_e4m3fn": 8,
    "float8_e5m2": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
}  # fmt: skip
"""Bits of one element by dtype. Any other word is a dtype this version does not know."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where bytes lie.

    Attributes:
        part: empty for the file itself; in an archive the name of an entry; else the path of a file beside it, relative
            to its folder.
        offset: first byte.
        num_bytes: how many.
    """

    part: str
    offset: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor that a file holds.

    Attributes:
        name: as the file calls it, for example `features.0.weight`; untrusted text.
        dtype: a key of `BITS`, or another word for what is not known. torch's quint8, qint8 and qint32 are `uint8`,
            `int8` and `int32` with a `quantization`.
        shape: its sizes.
        place: where its bytes lie, in C order and little-endian unless `strides` says otherwise; None where they are
            not in the file, or not as plain bytes.
        strides: in elements, counted from the start of `place`; None for C order.
        quantization: how its codes stand for numbers, where the tensor itself says so.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    place: Place | None
    strides: tuple[int, ...] | None = None
    quantization: Quantization | None = None

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes that its elements need, whatever is stored; 0 for an unknown dtype."""
        return (self.num_elements * BITS.get(self.dtype, 0) + 7) // 8


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How codes stand for numbers: value = (code - zero point) * scale.

    One scale for the tensor where `axis` is None; one per index of `axis`; with `group_size` one for each group of so
    many neighbours along `axis`.

    Attributes:
        dtype: of the codes, a key of `BITS`.
        qmin: smallest code that can occur, by the dtype, or by a clip that the file states.
        qmax: largest such code.
        scale: the scales as they are stored, unchecked; in a file's own tensor where they are many; None where they are
            worked out while running, or not known.
        zero_point: likewise; a float where the file has one. Empty: all are 0, as of a symmetric format.
        axis: the channel axis, as the file states it, unchecked.
        group_size: neighbours along `axis` that share a scale.
    """

    dtype: str
    qmin: int
    qmax: int
    scale: tuple[float, ...] | Tensor | None
    zero_point: tuple[float, ...] | Tensor | None
    axis: int | None = None
    group_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Operand:
    """A tensor as one node uses it.

    Attributes:
        role: what it is to the node.
        name: the value's name in the file; untrusted text.
        tensor: where the file stores it, as a weight or bias; None for a value computed while running.
        quantization: how it is quantized; None where it is float. Of a weight that is dequantized in the graph, what
            the graph says.
    """

    role: Role
    name: str
    tensor: Tensor | None = None
    quantization: Quantization | None = None


@dataclass(frozen=True, kw_only=True)
class Node:
    """A layer or op of the model: every quantized one, and every float one with a weight.

    Attributes:
        name: what people call it: its module path, or its name in the graph; unique in a file where the reader can
            make it so. Untrusted text.
        op: qtool's pattern for it; None where there is none.
        target: the op as the file calls it, for example `quantized::conv2d_relu` or `QLinearConv`; untrusted text.
        compute: how it computes.
        operands: its tensors that are known: inputs in argument order, weight, bias, output.
        activation: what is fused into it, for example `relu`.
        groups: of a convolution; None where it is not known.
        is_weight_in_out: its weight is stored as (in, out), as a matrix that is multiplied from the right; else output
            channels come first, but for transposed convolutions, whose weights are (in, out / groups, *kernel).
        packed_class: the class that holds its packed weight, for example `Conv2dPackedParamsBase`.
        reads: names of the nodes whose results it reads, quantize and dequantize steps aside; empty if not known.
        note: what else the file says of it, in words.
    """

    name: str
    op: Op | None
    target: str
    compute: Compute
    operands: tuple[Operand, ...] = ()
    activation: str | None = None
    groups: int | None = None
    is_weight_in_out: bool = False
    packed_class: str | None = None
    reads: tuple[str, ...] = ()
    note: str = ""

    def operand(self, role: Role) -> Operand | None:
        """Return its first tensor of that role."""
        return next((operand for operand in self.operands if operand.role is role), None)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a file's model consists of, whoever made it.

    Attributes:
        producer: who wrote the file, with a version where it states one, for example `onnx.quantize 0.1.0` or
            `torch.ao (eager)`; None if nothing tells. Untrusted text.
        form: what it is in one phrase, for example `QDQ graph`, `dynamically quantized state dict` or `training
            checkpoint (fake-quantized)`; empty if there is nothing to add to its kind.
        tensors: everything stored, each once; two that share bytes have the same `place`.
        nodes: quantized nodes, and float ones with a weight, in execution order where the file has one.
        risks: what loading it would execute, import or reach for.
        not_understood: what the reader had to leave out, a line each, for example `operator com.example::Foo`.
    """

    producer: str | None = None
    form: str = ""
    tensors: tuple[Tensor, ...] = ()
    nodes: tuple[Node, ...] = ()
    risks: tuple[Risk, ...] = ()
    not_understood: tuple[str, ...] = ()

    @property
    def bytes_by_dtype(self) -> tuple[tuple[str, int], ...]:
        """(dtype, bytes in the file) of its tensors, most bytes first; bytes that tensors share count once."""
        sizes: Counter[str] = Counter()
        ends: dict[str, int] = {}
        placed = [(tensor.place, tensor.dtype) for tensor in self.tensors if tensor.place is not None]
        for place, dtype in sorted(placed, key=lambda each: (each[0].part, each[0].offset)):
            end = place.offset + place.num_bytes
            sizes[dtype] += max(0, end - max(place.offset, ends.get(place.part, 0)))
            ends[place.part] = max(end, ends.get(place.part, 0))
        for tensor in self.tensors:
            sizes[tensor.dtype] += tensor.num_bytes if tensor.place is None else 0
        return tuple(
            sorted(((dtype, size) for dtype, size in sizes.items() if size), key=lambda each: (-each[1], each[0]))
        )


NO_MODEL: Final = ModelFacts()
"""Of a file whose model was not looked at."""


@dataclass(frozen=True)
class StampProblem:
    """Why a file has no stamp that can be used, with the words of the reader."""

    kind: StampProblemKind
    message: str


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """What a file says and holds.

    Attributes:
        where: what it is called in messages.
        kind: what the archive is.
        num_bytes: size of the file.
        stamp: what it says about itself; None where there is a `stamp_problem`.
        stamp_problem: why there is no stamp.
        plan_json: the stored plan, not parsed; None if there is none.
        config_json: the stored config, not parsed; None if there is none.
        content_digest: digest of what is really in it.
        risks: what loading it would execute.
        graph: what its graph says, looked at only where the file has no stamp.
        model: its tensors and layers, looked at only where somebody asks for them.
    """

    where: str
    kind: FileKind
    num_bytes: int
    stamp: Stamp | None
    stamp_problem: StampProblem | None
    plan_json: str | None
    config_json: str | None
    content_digest: str
    risks: tuple[Risk, ...]
    graph: GraphFacts = NOTHING
    model: ModelFacts = NO_MODEL

    @property
    def states_digest(self) -> bool:
        """Whether its stamp is for a content; an ONNX file is no archive, and has none."""
        return self.kind is not FileKind.ONNX

    @property
    def is_content_verified(self) -> bool:
        """Whether the content is the one the stamp was written for."""
        return self.stamp is not None and self.stamp.content_digest == self.content_digest
