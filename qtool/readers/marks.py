"""Marks: what a graph itself says of a file and of its int8 nodes, in one line of text each.

The file's stamp is lost as soon as another program saves the model. Exporters therefore write marks into the graph,
as the messages of assertions that always hold (*guards*), which go wherever the graph goes.

    qtool 1 file stage=exported backends=fbgemm isa=any stamp=6bfa...
    qtool 1 node name=features.0.0 op=conv2d backends=fbgemm isa=any reduce_range=true qmin=0 qmax=127

Values are percent-encoded, so that names with any character become ASCII without quotes, backslashes and spaces:
AOTInductor writes the text into C++ source as it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from qtool.stamp.schema import SaturationStamp, SaturationWord, to_json
from qtool.types import MAC_OPS, Isa, Op, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qtool.stamp.schema import NodeStamp, Stamp

VERSION: Final = 1

_NOT_ENCODED: Final = "._-/,#"
_ORDER: Final = ("stage", "name", "op", "backends", "isa", "reduce_range", "qmin", "qmax", "depthwise",
                 "channel_multiplier", "saturation", "stamp")  # fmt: skip
CONVOLUTIONS: Final = MAC_OPS - {Op.LINEAR}
_WORD = r"[A-Za-z0-9%._~/,#-]*"
MARK: Final = re.compile(rf"qtool {VERSION} (file|node)((?: [a-z_]+={_WORD})+)")
"""A mark in any text; the values are checked when it is decoded."""


@dataclass(frozen=True, kw_only=True)
class FileMark:
    """What a graph says of the file it was exported to.

    Attributes:
        stage: how far the model had come.
        backends: the backends it was made for.
        isa: the CPU it was made for.
        stamp: `stamp_digest` of the file's stamp.
    """

    stage: Stage
    backends: tuple[str, ...]
    isa: Isa
    stamp: str


@dataclass(frozen=True, kw_only=True)
class NodeMark:
    """What a graph says of one of its int8 nodes; None is what the carrier does not say.

    Attributes:
        name: the node's name, as in the stamp.
        backends: the backends it was made for.
        reduce_range: its input activations are kept in a reduced range.
        op: the int8 pattern.
        isa: the CPU it was made for.
        qmin: smallest code of its first input.
        qmax: largest code of its first input.
        depthwise: a convolution with one input channel per group.
        channel_multiplier: output channels per group of a depthwise convolution.
        saturation: the proof, where its input uses the whole range.
    """

    name: str
    backends: tuple[str, ...]
    reduce_range: bool
    op: Op | None = None
    isa: Isa | None = None
    qmin: int | None = None
    qmax: int | None = None
    depthwise: bool | None = None
    channel_multiplier: int | None = None
    saturation: SaturationStamp | None = None


@dataclass(frozen=True)
class Marks:
    """The marks in one file.

    Attributes:
        files: of the whole; several where several models were put together, none where all were lost.
        nodes: of the int8 nodes, each once, in the order they were found.
    """

    files: tuple[FileMark, ...] = ()
    nodes: tuple[NodeMark, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.nodes)


@dataclass(frozen=True)
class GraphFacts:
    """What the graph in a file says, whatever the file says.

    Attributes:
        marks: all that were found.
        num_int8_layers: convolutions and linear layers with an int8 weight.
        num_unmarked: how many of them no mark speaks of.
    """

    marks: Marks = Marks()
    num_int8_layers: int = 0
    num_unmarked: int = 0


NOTHING: Final = GraphFacts()
"""Of a file without a graph that can be read, or whose own stamp says it all."""


def marks_of(stamp: Stamp) -> Marks:
    """Return the marks of a stamped model: one of the file, and one of each int8 node."""
    of_file = FileMark(stage=stamp.stage, backends=stamp.backends, isa=stamp.isa, stamp=stamp_digest(stamp))
    return Marks((of_file,), tuple(_node_mark(node, stamp.isa) for node in stamp.int8_nodes()))


def _node_mark(node: NodeStamp, isa: Isa) -> NodeMark:
    read = node.inputs[0] if node.inputs else None
    return NodeMark(
        name=node.name,
        backends=node.backends,
        reduce_range=node.reduce_range,
        op=node.op,
        isa=isa,
        qmin=None if read is None else read.qmin,
        qmax=None if read is None else read.qmax,
        depthwise=node.depthwise if node.op in CONVOLUTIONS else None,
        channel_multiplier=node.channel_multiplier,
        saturation=node.saturation if node.uses_full_range else None,
    )


def stamp_digest(stamp: Stamp) -> str:
    """Return the sha256 of a stamp's JSON, without the digest of the content that it will lie in."""
    return hashlib.sha256(to_json(stamp.with_content("")).encode()).hexdigest()


def words_of(mark: FileMark | NodeMark) -> dict[str, str]:
    """Return what a mark says as words by key, without those it does not know."""
    values = {field.name: getattr(mark, field.name) for field in dataclasses.fields(mark)}
    return {key: _word(values[key]) for key in _ORDER if values.get(key) is not None}


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, SaturationStamp):
        return f"{value.verdict},{value.num_channels},{value.worst_pair_sum}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def encode(mark: FileMark | NodeMark) -> str:
    """Return a mark as a line of ASCII without quotes and backslashes.

    Example:
        >>> encode(NodeMark(name="a b", backends=("fbgemm", "x86"), reduce_range=True, qmin=0, qmax=127))
        'qtool 1 node name=a%20b backends=fbgemm,x86 reduce_range=true qmin=0 qmax=127'
    """
    kind = "file" if isinstance(mark, FileMark) else "node"
    words = [f"{key}={quote(word, safe=_NOT_ENCODED)}" for key, word in words_of(mark).items()]
    return f"qtool {VERSION} {kind} {' '.join(words)}"


def decode(text: str) -> FileMark | NodeMark | None:
    """Return the mark that a whole text is; None for any other text, and for a mark with a value out of range."""
    found = MARK.fullmatch(text)
    if found is None:
        return None
    try:
        words = {key: unquote(word, errors="strict") for key, word in (w.split("=", 1) for w in found[2].split())}
    except UnicodeDecodeError:
        return None
    return node_mark(words) if found[1] == "node" else _file_mark(words)


def node_mark(words: Mapping[str, str]) -> NodeMark | None:
    """Return the mark of a node that words state; None if one is missing or out of range."""
    try:
        return NodeMark(
            name=words["name"],
            backends=tuple(words["backends"].split(",")),
            reduce_range=_BOOLS[words["reduce_range"]],
            op=Op(words["op"]) if "op" in words else None,
            isa=Isa(words["isa"]) if "isa" in words else None,
            qmin=int(words["qmin"]) if "qmin" in words else None,
            qmax=int(words["qmax"]) if "qmax" in words else None,
            depthwise=_BOOLS[words["depthwise"]] if "depthwise" in words else None,
            channel_multiplier=int(words["channel_multiplier"]) if "channel_multiplier" in words else None,
            saturation=_saturation(words["saturation"]) if "saturation" in words else None,
        )
    except (KeyError, ValueError):
        return None


_BOOLS: Final = {"true": True, "false": False}


def _saturation(text: str) -> SaturationStamp:
    verdict, num_channels, worst = text.split(",")
    if verdict not in typing.get_args(SaturationWord):
        raise ValueError
    word = typing.cast("SaturationWord", verdict)
    return SaturationStamp(verdict=word, num_channels=int(num_channels), worst_pair_sum=int(worst))


def _file_mark(words: Mapping[str, str]) -> FileMark | None:
    try:
        return FileMark(
            stage=Stage(words["stage"]),
            backends=tuple(words["backends"].split(",")),
            isa=Isa(words["isa"]),
            stamp=words["stamp"],
        )
    except (KeyError, ValueError):
        return None


def collect(texts: Iterable[str]) -> Marks:
    """Return the marks among some texts, each once."""
    found = list(dict.fromkeys(mark for mark in map(decode, texts) if mark is not None))
    return Marks(
        tuple(mark for mark in found if isinstance(mark, FileMark)),
        tuple(mark for mark in found if isinstance(mark, NodeMark)),
    )


def num_marked_layers(texts: Iterable[str]) -> int:
    """Return how many of some texts are marks of a convolution or a linear layer; the same twice counts twice."""
    return sum(isinstance(mark, NodeMark) and mark.op in MAC_OPS for mark in map(decode, texts))
