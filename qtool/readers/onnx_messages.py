"""The messages of an ONNX model as records: operators, tensors without their bytes, subgraphs, functions.

Source: onnx.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.readers.protobuf import Field

NODE_PREFIX: Final = "qtool."
"""What `qtool export` puts before the keys of a node's metadata."""

SCOPES_KEY: Final = "pkg.torch.onnx.name_scopes"
"""Under which torch.onnx writes the module path of a node, as the text of a list."""

DTYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip
"""By TensorProto.DataType."""


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
