"""Reads an ONNX model with the standard library alone: its stamp, the marks on its nodes, its weights by dtype.

A protobuf message is a row of fields, each a number with a kind, and either a varint, some bytes or fixed bits. Only
the fields below are looked at, two levels deep; weights are stepped over. Source: onnx.proto, and protobuf's encoding.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import FileFacts, FileKind, StampProblem, StampProblemKind
from qtool.readers.int8_layers import Step, int8_layers
from qtool.readers.marks import GraphFacts, Marks, node_mark
from qtool.readers.onnx_file import STAMP_KEY
from qtool.readers.qtool_file import stamp_from
from qtool.readers.source import OpenModel
from qtool.stamp.schema import Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.readers.source import Source

NODE_PREFIX: Final = "qtool."
"""What `qtool export` puts before the keys of a node's metadata."""

KEYS: Final = {"node": "name", "backend": "backends"}
"""Words of a mark that bear another name in a node's metadata."""

_MULTIPLIES: Final = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul", "QGemm",
                                "ConvInteger", "MatMulInteger", "FusedConv", "FusedGemm"})  # fmt: skip
_DTYPES: Final = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
                  10: "float16", 11: "float64", 16: "bfloat16"}  # fmt: skip
_BYTES: Final = {
    "float32": 4,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
}
_MAX_FIELDS: Final = 3_000_000
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class OnnxFacts:
    """What can be known of an ONNX model without running it.

    Attributes:
        num_bytes: size of the file, without weights beside it.
        bytes_by_dtype: (dtype, bytes) of its weights, most bytes first.
        stamp_json: the stamp, not parsed; None if there is none.
        graph: the marks on its nodes.
    """

    num_bytes: int
    bytes_by_dtype: tuple[tuple[str, int], ...]
    stamp_json: bytes | None
    graph: GraphFacts


@dataclass(frozen=True)
class _Node:
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    words: Mapping[str, str]


@dataclass(frozen=True)
class _Weight:
    name: str
    dtype: str
    dims: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.dims) * _BYTES.get(self.dtype, 1)


def open_onnx(source: Source) -> OpenModel:
    """Return what an ONNX file says and holds.

    Raises:
        FileFormatError: the file is damaged, or has more parts than are read.
    """
    facts = read_onnx(source)
    missing = StampProblem(StampProblemKind.MISSING, "it has no stamp")
    stamp = missing if facts.stamp_json is None else stamp_from(facts.stamp_json)
    found = FileFacts(
        where=source.where,
        kind=FileKind.ONNX,
        num_bytes=source.num_bytes,
        stamp=stamp if isinstance(stamp, Stamp) else None,
        stamp_problem=stamp if isinstance(stamp, StampProblem) else None,
        plan_json=None,
        config_json=None,
        content_digest="",
        risks=(),
        graph=facts.graph,
    )
    return OpenModel(found, source.blocks)


def read_onnx(source: Source) -> OnnxFacts:
    """Return what an ONNX file says and holds.

    Raises:
        FileFormatError: the file is damaged, or has more parts than are read.
    """
    try:
        return _Reader(memoryview(source.read(0, source.num_bytes))).facts()
    except (IndexError, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        msg = f"{source.where}: it looks like an ONNX file, but is damaged; get it again from its source"
        raise FileFormatError(msg) from error


class _Reader:
    """Steps through the fields of a model; counts them, so that a file cannot keep it busy for ever."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.num_fields = 0

    def facts(self) -> OnnxFacts:
        stamp_json = None
        nodes: list[_Node] = []
        weights: list[_Weight] = []
        for number, start, end in self._parts(0, len(self.data)):
            if number == 7:
                for kind, first, last in self._parts(start, end):
                    if kind == 1:
                        nodes.append(self._node(first, last))
                    elif kind == 5:
                        weights.append(self._weight(first, last))
            elif number == 14:
                key, value = self._entry(start, end)
                stamp_json = value if key == STAMP_KEY.encode() else stamp_json
        sizes: Counter[str] = Counter()
        for weight in weights:
            sizes[weight.dtype] += weight.num_bytes
        by_dtype = tuple(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))
        return OnnxFacts(len(self.data), by_dtype, stamp_json, _graph_facts(nodes, weights))

    def _node(self, start: int, end: int) -> _Node:
        texts: dict[int, list[str]] = {1: [], 2: [], 4: []}
        words = {}
        for number, first, last in self._parts(start, end):
            if number in texts:
                texts[number].append(self._text(first, last))
            elif number == 9:
                key, value = (each.decode("utf-8", "replace") for each in self._entry(first, last))
                if key.startswith(NODE_PREFIX):
                    key = key.removeprefix(NODE_PREFIX)
                    words[KEYS.get(key, key)] = value
        return _Node(texts[4][-1] if texts[4] else "", tuple(texts[1]), tuple(texts[2]), words)

    def _weight(self, start: int, end: int) -> _Weight:
        dims: list[int] = []
        dtype, name = 0, ""
        for number, first, last, value in self._fields(start, end):
            if number == 1:  # one number, or several packed into bytes
                dims += [value] if last == first else self._varints(first, last)
            elif number == 2:
                dtype = value
            elif number == 8:
                name = self._text(first, last)
        return _Weight(name, _DTYPES.get(dtype, "other"), tuple(dims))

    def _entry(self, start: int, end: int) -> tuple[bytes, bytes]:
        found = {number: bytes(self.data[first:last]) for number, first, last in self._parts(start, end)}
        return found.get(1, b""), found.get(2, b"")

    def _text(self, start: int, end: int) -> str:
        return bytes(self.data[start:end]).decode("utf-8", "replace")

    def _varints(self, start: int, end: int) -> list[int]:
        found = []
        while start < end:
            value, start = self._varint(start)
            found.append(value)
        return found

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (number, first byte, behind the last byte) of each field that holds bytes."""
        for number, first, last, _ in self._fields(start, end):
            if last > first:
                yield number, first, last

    def _fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (number, first byte, behind the last byte, value) of each field; a varint has no bytes."""
        while start < end:
            self.num_fields += 1
            if self.num_fields > _MAX_FIELDS:
                msg = f"an ONNX file of more than {_MAX_FIELDS} parts is not read"
                raise FileFormatError(msg)
            tag, start = self._varint(start)
            kind = tag & 7
            if kind == _VARINT:
                value, start = self._varint(start)
                yield tag >> 3, start, start, value
                continue
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if size is None:
                if kind != _LENGTH:
                    raise ValueError
                size, start = self._varint(start)
            if size > end - start:
                raise ValueError
            yield tag >> 3, start, start + size, 0
            start += size

    def _varint(self, start: int) -> tuple[int, int]:
        """Return a number, and where it ends: seven bits in each byte, the lowest first."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.data[start]
            start += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, start
        raise ValueError


def _graph_facts(nodes: list[_Node], weights: list[_Weight]) -> GraphFacts:
    marks = tuple(dict.fromkeys(mark for node in nodes if (mark := node_mark(node.words)) is not None))
    steps = (Step(i, node.op in _MULTIPLIES, node.inputs, node.outputs) for i, node in enumerate(nodes))
    stored = (weight.name for weight in weights if weight.dtype == "int8" and len(weight.dims) > 1)
    layers = list(int8_layers(steps, stored))
    num_unmarked = sum(node_mark(nodes[layer.index].words) is None for layer in layers)
    return GraphFacts(Marks((), marks), len(layers), num_unmarked)
