"""Makes a stamp of the marks in a graph, where the file's own stamp is lost.

What no mark says is filled in so that nothing is taken for right that might be wrong: an unknown CPU is any CPU, an
unknown range is the whole one, a convolution may be depthwise, and no layer is proved safe.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from qtool.readers.marks import CONVOLUTIONS
from qtool.stamp.full_range import requires_full_range
from qtool.stamp.schema import NodeStamp, Stamp, TensorStamp
from qtool.types import Dtype, Granularity, Isa, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from qtool.readers.marks import FileMark, Marks, NodeMark

REASON = "from its node's stamp"


def recovered_stamp(marks: Marks) -> Stamp | None:
    """Return the stamp that marks are left of, with int8 nodes alone; None where there are none."""
    if not marks:
        return None
    nodes: dict[str, NodeStamp] = {}
    for mark in marks.nodes:
        name = _unused(mark.name, nodes)
        nodes[name] = dataclasses.replace(_node_stamp(mark), name=name)
    said: list[FileMark | NodeMark] = [*marks.files, *marks.nodes]
    return Stamp(
        tool_version="",
        stage=marks.files[0].stage if marks.files else _stage(marks.nodes),
        backends=tuple(dict.fromkeys(name for mark in said for name in mark.backends)),
        isa=_isa(mark.isa for mark in said),
        config_digest="",
        source_digest="",
        inputs=(),
        nodes=tuple(nodes.values()),
    )


def _unused(name: str, taken: Container[str]) -> str:
    """Return a name for a node; two models in one file may have one name for two nodes."""
    names = itertools.chain([name], (f"{name} ({number})" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def _stage(nodes: Iterable[NodeMark]) -> Stage:
    """Return how far the model had come: only what exporters write says the CPU."""
    return Stage.EXPORTED if any(mark.isa is not None for mark in nodes) else Stage.CONVERTED


def _isa(found: Iterable[Isa | None]) -> Isa:
    words = {isa for isa in found if isa is not None}
    return words.pop() if len(words) == 1 else Isa.ANY


def _node_stamp(mark: NodeMark) -> NodeStamp:
    low, high = mark.qmin, mark.qmax
    if low is None or high is None:
        low, high = (0, 127) if mark.reduce_range else (0, 255)
    dtype = Dtype.INT8 if low < 0 else Dtype.UINT8
    read = TensorStamp(edge=mark.name, dtype=dtype, qmin=low, qmax=high, granularity=Granularity.TENSOR)
    stamp = NodeStamp(
        name=mark.name,
        op=mark.op,
        target="" if mark.op is None else mark.op.value,
        verdict=Verdict.INT8,
        reason=REASON,
        backends=mark.backends,
        inputs=(read,),
        depthwise=mark.op in CONVOLUTIONS and mark.depthwise is not False,
        channel_multiplier=mark.channel_multiplier,
        reduce_range=mark.reduce_range,
        saturation=mark.saturation,
    )
    return dataclasses.replace(stamp, requires_full_range=requires_full_range(stamp))
