"""Reads the messages of an ONNX model into records: operators, tensors without their bytes, subgraphs, functions.

Source: onnx.proto; numbers below are its field numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.protobuf import FIXED32, LENGTH, VARINT, Field, Messages, signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.readers.source import Source

NODE_PREFIX: Final = "qtool."
"""What `qtool export` puts before the keys of a node's metadata."""

SCOPES_KEY: Final = "pkg.torch.onnx.name_scopes"
"""Under which torch.onnx writes the module path of a node, as the text of a list."""

_USEFUL_KEYS: Final = (NODE_PREFIX.encode(), SCOPES_KEY.encode())
_BEFORE_KEY: Final = 2
"""Bytes of an entry before its key: number and size, as every writer puts the key first."""

DTYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip
"""By TensorProto.DataType."""

MAX_FIELDS: Final = 400_000
BYTES_PER_FIELD: Final = 128
"""A file may have one field more for so many bytes: what a small one can cost is bounded, and large models are read."""

MAX_PARTS: Final = 20_000
BYTES_PER_PART: Final = 4096
"""Operators, and tensors: likewise. Each of them costs up to 100 us."""

_MAX_DEPTH: Final = 128
"""Of subgraphs in subgraphs."""

_MAX_RANK: Final = 64
_MAX_ELEMENTS: Final = 1 << 48
_MAX_METADATA_BYTES: Final = 64 << 20
_MAX_NUMBERS_BYTES: Final = 1 << 16
"""Of an attribute with many numbers; what is longer is no parameter of a layer."""

_RAW_DATA, _FLOATS, _INT32S, _STRINGS, _INT64S, _DOUBLES, _UINT64S = 9, 4, 5, 6, 7, 10, 11
NUMBER_FIELDS: Final = (_RAW_DATA, _FLOATS, _INT32S, _INT64S, _DOUBLES, _UINT64S)
"""Fields of a tensor that hold its values."""


@dataclass(frozen=True, slots=True)
class TensorMessage:
    """A tensor as the file states it.

    Attributes:
        name: untrusted text; empty in an attribute.
        dtype: a value of `DTYPES`, or `unknown`.
        dims: its sizes, none below 0.
        values: the fields that hold its values.
        external: what it says of data in another file; None if its data is in this one.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    values: tuple[Field, ...]
    external: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute that is the calling node's attribute of that name, inside a function."""

    name: str


Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | TensorMessage | Reference


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """One operator of a graph.

    Attributes:
        name: untrusted text, as all of these; may be empty.
        domain: empty for ONNX's own operators.
        op: for example `Conv`.
        overload: which of several functions of that name.
        inputs: names of values; empty for what is left out.
        outputs: likewise.
        attributes: by name; what no layer needs is left out.
        graphs: (attribute, graph) of its subgraphs.
        words: its metadata.
    """

    name: str
    domain: str
    op: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    graphs: tuple[tuple[str, GraphMessage], ...]
    words: Mapping[str, str]


@dataclass(slots=True)
class GraphMessage:
    """A graph, a subgraph, or the body of a function.

    Attributes:
        inputs: names of its parameters.
        outputs: names of its results.
        nodes: in the order of the file.
        tensors: its initializers.
        sparse: names of initializers that are stored as sparse tensors.
        defaults: of a function: its attributes that have a value if the caller gives none.
    """

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nodes: list[NodeMessage] = field(default_factory=list)
    tensors: list[TensorMessage] = field(default_factory=list)
    sparse: list[str] = field(default_factory=list)
    defaults: dict[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelMessage:
    """A model.

    Attributes:
        producer: name and version of the program that wrote it; untrusted text.
        opsets: version by domain.
        graph: what is run.
        functions: by (domain, name, overload).
        stamp_json: what its metadata holds under the stamp's key; None if nothing.
        has_training: it says how to train the model, in graphs of their own that are not read.
    """

    producer: str
    opsets: Mapping[str, int]
    graph: GraphMessage
    functions: Mapping[tuple[str, str, str], GraphMessage]
    stamp_json: bytes | None
    has_training: bool


def max_parts(num_bytes: int) -> int:
    """Return how many operators, and how many tensors, a file of so many bytes may have."""
    return MAX_PARTS + num_bytes // BYTES_PER_PART


def read_model(source: Source, stamp_key: str) -> ModelMessage:
    """Return the messages of an ONNX file; no bytes of weights are read.

    Raises:
        FileFormatError: the file is damaged, or has more parts than are read.
    """
    return _Reader(source, stamp_key).model(source.num_bytes)


class _Reader:
    """Reads one file. Subgraphs wait in a list until the graph around them is read, so that nothing recurs."""

    def __init__(self, source: Source, stamp_key: str) -> None:
        max_fields = MAX_FIELDS + source.num_bytes // BYTES_PER_FIELD
        self.messages = Messages(source, "an ONNX file", max_fields)
        self.max_parts = max_parts(source.num_bytes)
        self.stamp_key = stamp_key.encode()
        self.where = source.where
        self.num_nodes = 0
        self.num_tensors = 0
        self.waiting: list[tuple[Field, GraphMessage, int]] = []

    def model(self, num_bytes: int) -> ModelMessage:
        producer = {2: "", 3: ""}
        opsets: dict[str, int] = {}
        graph = GraphMessage()
        functions: dict[tuple[str, str, str], GraphMessage] = {}
        stamp_json = None
        has_training = False
        for found in self.messages.fields(0, num_bytes):
            number = found.number
            if number in producer:
                producer[number] = self.messages.text(found)
            elif number == 7:
                self.waiting.append((self._message(found), graph, 0))
            elif number == 8:
                domain, version = self._opset(found)
                opsets[domain] = version
            elif number == 14:
                key, value = self._entry(found)
                stamp_json = value if key == self.stamp_key else stamp_json
            elif number == 20:
                has_training = True
            elif number == 25:
                key_and_body = self._function(found)
                functions[key_and_body[0]] = key_and_body[1]
        self._read_waiting()
        words = " ".join(word for word in producer.values() if word)
        return ModelMessage(words, opsets, graph, functions, stamp_json, has_training)

    def _read_waiting(self) -> None:
        while self.waiting:
            found, graph, depth = self.waiting.pop()
            if depth > _MAX_DEPTH:
                msg = f"{self.where}: subgraphs nested deeper than {_MAX_DEPTH} are not read"
                raise FileFormatError(msg)
            self._graph(found, graph, depth)

    def _graph(self, found: Field, graph: GraphMessage, depth: int) -> None:
        for part in self.messages.fields(found.start, found.end):
            if part.number == 1:
                graph.nodes.append(self._node(part, depth))
            elif part.number == 5:
                graph.tensors.append(self._tensor(part))
            elif part.number in (11, 12):
                names = graph.inputs if part.number == 11 else graph.outputs
                names.append(self._first_text(part, 1))
            elif part.number == 15:
                self._sparse(part, graph)

    def _sparse(self, found: Field, graph: GraphMessage) -> None:
        for part in self.messages.fields(*self._span(found)):
            if part.number in (1, 2):
                tensor = self._tensor(part)
                graph.tensors.append(tensor)
                if part.number == 1:
                    graph.sparse.append(tensor.name)

    def _function(self, found: Field) -> tuple[tuple[str, str, str], GraphMessage]:
        texts = {1: "", 10: "", 13: ""}
        body = GraphMessage()
        for part in self.messages.fields(*self._span(found)):
            if part.number in texts:
                texts[part.number] = self.messages.text(part)
            elif part.number in (4, 5):
                (body.inputs if part.number == 4 else body.outputs).append(self.messages.text(part))
            elif part.number == 7:
                body.nodes.append(self._node(part, 0))
            elif part.number == 11:
                name, value, _ = self._attribute(part, 0)
                if value is not None:
                    body.defaults[name] = value
        return (texts[10], texts[1], texts[13]), body

    def _node(self, found: Field, depth: int) -> NodeMessage:
        self.num_nodes = self._counted(self.num_nodes, "operators")
        texts: dict[int, str] = {3: "", 4: "", 7: "", 8: ""}
        values: dict[int, list[str]] = {1: [], 2: []}
        attributes: dict[str, Attribute] = {}
        graphs: list[tuple[str, GraphMessage]] = []
        words = {}
        for part in self.messages.fields(*self._span(found)):
            number = part.number
            if number in values:
                values[number].append(self.messages.text(part))
            elif number in texts:
                texts[number] = self.messages.text(part)
            elif number == 5:
                name, value, inner = self._attribute(part, depth)
                if value is not None:
                    attributes[name] = value
                graphs += [(name, graph) for graph in inner]
            elif number == 9:
                words.update(self._node_words(part))
        domain = "" if texts[7] == "ai.onnx" else texts[7]
        return NodeMessage(
            texts[3], domain, texts[4], texts[8], tuple(values[1]), tuple(values[2]), attributes, tuple(graphs), words
        )

    def _attribute(self, found: Field, depth: int) -> tuple[str, Attribute | None, list[GraphMessage]]:
        name = ""
        value: Attribute | None = None
        ints: list[int] = []
        floats: list[float] = []
        graphs: list[GraphMessage] = []
        for part in self.messages.fields(*self._span(found)):
            number = part.number
            if number == 1:
                name = self.messages.text(part)
            elif number in (6, 11):
                graphs.append(GraphMessage())
                self.waiting.append((self._message(part), graphs[-1], depth + 1))
            elif number == 7:
                floats += self._floats(part)
            elif number == 8:
                ints += map(signed, self.messages.varints(part))
            else:
                value = self._value(part, value)
        if value is None and (ints or floats):
            value = tuple(ints) or tuple(floats)
        return name, value, graphs

    def _value(self, part: Field, before: Attribute | None) -> Attribute | None:
        """Return the value of an attribute that has one, or the one before if the field holds none."""
        number = part.number
        if number == 2 and part.kind == FIXED32:
            (value,) = struct.unpack("<f", self.messages.bytes_of(part))
            return float(value)
        if number == 3 and part.kind == VARINT:
            return signed(part.value)
        if number == 4 and part.end - part.start <= _MAX_NUMBERS_BYTES:
            return self.messages.text(part)
        if number == 5:
            return self._tensor(part)
        return Reference(self.messages.text(part)) if number == 21 else before

    def _floats(self, found: Field) -> tuple[float, ...]:
        size = found.end - found.start
        if size % 4 or size > _MAX_NUMBERS_BYTES or found.kind == VARINT:
            return ()
        return struct.unpack(f"<{size // 4}f", self.messages.bytes_of(found))

    def _tensor(self, found: Field) -> TensorMessage:
        self.num_tensors = self._counted(self.num_tensors, "tensors")
        dims: list[int] = []
        dtype, name, is_external = 0, "", False
        values: list[Field] = []
        external: dict[str, str] = {}
        for part in self.messages.fields(*self._span(found)):
            number = part.number
            if number == 1:
                dims += [signed(size) for size in self.messages.varints(part)]
            elif number == 2:
                dtype = part.value
            elif number == 8:
                name = self.messages.text(part)
            elif number in NUMBER_FIELDS:
                values.append(part)
            elif number == 13:
                external.update(self._words(part))
            elif number == 14:
                is_external = part.value == 1
        self._check_dims(name, dims)
        word = DTYPES.get(dtype, "unknown")
        return TensorMessage(name, word, tuple(dims), tuple(values), external if is_external else None)

    def _check_dims(self, name: str, dims: list[int]) -> None:
        num_elements = 1
        for size in dims[: _MAX_RANK + 1]:
            num_elements *= size
            if not 0 <= size <= _MAX_ELEMENTS or num_elements > _MAX_ELEMENTS:
                break
        else:
            if len(dims) <= _MAX_RANK:
                return
        msg = f"{self.where}: tensor {name[:80]!r} has sizes that none can have: {dims[:8]}"
        raise FileFormatError(msg)

    def _node_words(self, found: Field) -> dict[str, str]:
        """Return an entry of a node's metadata that is of use; of others, which may be many, only the key is seen."""
        if found.end - found.start > _MAX_NUMBERS_BYTES or found.kind != LENGTH:
            return {}
        head = self.messages.head(found, _BEFORE_KEY + max(map(len, _USEFUL_KEYS)))
        return self._words(found) if head[_BEFORE_KEY:].startswith(_USEFUL_KEYS) else {}

    def _words(self, found: Field) -> dict[str, str]:
        """Return an entry of text, and nothing if it is longer than one that is of use."""
        if found.end - found.start > _MAX_NUMBERS_BYTES:
            return {}
        key, value = self._entry(found)
        return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace")}

    def _entry(self, found: Field) -> tuple[bytes, bytes]:
        pair = {1: b"", 2: b""}
        for part in self.messages.fields(*self._span(found)):
            if part.number in pair and part.end - part.start <= _MAX_METADATA_BYTES:
                pair[part.number] = self.messages.bytes_of(part)
        return pair[1], pair[2]

    def _opset(self, found: Field) -> tuple[str, int]:
        domain, version = "", 0
        for part in self.messages.fields(*self._span(found)):
            if part.number == 1:
                domain = self.messages.text(part)
            elif part.number == 2:
                version = signed(part.value)
        return "" if domain == "ai.onnx" else domain, version

    def _first_text(self, found: Field, number: int) -> str:
        parts = self.messages.fields(*self._span(found))
        return next((self.messages.text(part) for part in parts if part.number == number), "")

    def _span(self, found: Field) -> tuple[int, int]:
        message = self._message(found)
        return message.start, message.end

    def _message(self, found: Field) -> Field:
        if found.kind != LENGTH:
            raise self.messages.damaged()
        return found

    def _counted(self, number: int, what: str) -> int:
        if number == self.max_parts:
            msg = f"{self.where}: an ONNX file of this size with more than {number} {what} has more parts than are read"
            raise FileFormatError(msg)
        return number + 1
