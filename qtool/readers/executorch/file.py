"""ExecuTorch programs: what a .pte holds and which ops it calls, delegates aside, whose blobs only they understand.

A file is a flatbuffer, with a header behind its identifier that says where it ends and where the segments begin.
Source: executorch/schema/program.fbs and executorch/exir/_serialize/_program.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.executorch.calls import TENSOR, steps_of, value_name, values_of
from qtool.readers.executorch.flatbuffer import Flatbuffer
from qtool.readers.executorch.storage import Storage, blob
from qtool.readers.facts import Compute, FileFacts, FileKind, ModelFacts, StampProblem, StampProblemKind
from qtool.readers.programs.trace import nodes_of
from qtool.readers.risks import Risk, RiskKind
from qtool.readers.source import OpenModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qtool.readers.executorch.flatbuffer import Table
    from qtool.readers.facts import Node, Tensor
    from qtool.readers.source import Source

_HEADER_AT: Final = 8
_HEADER_BYTES: Final = 32
_MAGIC: Final = b"eh00"
_MAX_PROGRAM_BYTES: Final = 128 * 2**20
"""Of the flatbuffer, which is held in memory; constants and delegates lie behind it."""

_PLANS, _DELEGATES, _PLAN_NAME = 1, 7, 0
_LIBRARY: Final = "_so_blob"
"""How the names of the compiled libraries end that the delegates made of AOTInductor load.
Source: executorch/backends/aoti/aoti_backend.py."""
_MAX_LINES: Final = 20
_MAX_SHOWN: Final = 80


def open_executorch(source: Source) -> OpenModel:
    """Return what an ExecuTorch program says and holds.

    Raises:
        FileFormatError: it is damaged, or has more parts than are read.
    """
    model = _model(source)
    facts = FileFacts(
        where=source.where,
        kind=FileKind.EXECUTORCH,
        num_bytes=source.num_bytes,
        stamp=None,
        stamp_problem=StampProblem(StampProblemKind.MISSING, "it has no stamp"),
        plan_json=None,
        config_json=None,
        content_digest="",
        risks=model.risks,
        model=model,
    )
    return OpenModel(facts, source.blocks)


def _model(source: Source) -> ModelFacts:
    program_bytes, first_segment = _header(source)
    program = Flatbuffer(source.read(0, program_bytes), source.where).root()
    storage = Storage.of(program, first_segment=first_segment, num_bytes=source.num_bytes)
    tensors: dict[tuple[object, ...], Tensor] = {}
    nodes: list[Node] = []
    delegates: list[str] = []
    for plan in program.tables(_PLANS):
        values = values_of(plan)
        stored = _stored(storage, values)
        tensors |= {(each.place, each.name, each.shape): each for each in stored.values()}
        nodes += nodes_of(steps_of(plan, values), stored)
        for name, held in _delegates(storage, plan):
            delegates.append(name)
            tensors |= {(each.place, each.name, each.shape): each for each in held}
    named = tuple(storage.blobs())
    found = (*tensors.values(), *named)
    return ModelFacts(
        producer="ExecuTorch",
        form=_form(nodes, delegates),
        tensors=found,
        nodes=tuple(nodes),
        risks=tuple(Risk(RiskKind.COMPILED_CODE, "", b.name[:_MAX_SHOWN]) for b in named if b.name.endswith(_LIBRARY)),
        not_understood=tuple(_not_understood(found, delegates))[:_MAX_LINES],
    )


def _header(source: Source) -> tuple[int, int]:
    """Return the bytes of the flatbuffer, and where segments are counted from."""
    header = source.read(0, min(source.num_bytes, _HEADER_AT + _HEADER_BYTES))[_HEADER_AT:]
    num_bytes, first_segment = source.num_bytes, 0
    if header.startswith(_MAGIC) and len(header) == _HEADER_BYTES:
        num_bytes = int.from_bytes(header[8:16], "little")
        first_segment = int.from_bytes(header[16:24], "little")
    if num_bytes > min(source.num_bytes, _MAX_PROGRAM_BYTES):
        allowed = min(source.num_bytes, _MAX_PROGRAM_BYTES)
        msg = (
            f"{source.where}: it looks like an ExecuTorch program, but its flatbuffer has {num_bytes} bytes; "
            f"at most {allowed} are read"
        )
        raise FileFormatError(msg)
    return num_bytes, first_segment


def _stored(storage: Storage, values: Iterable[tuple[int, Table | None]]) -> dict[str, Tensor]:
    """Return the tensors that are stored, by the names of their values."""
    found = {}
    for index, (kind, value) in enumerate(values):
        if kind == TENSOR and value is not None:
            tensor = storage.tensor(value, value_name(index))
            if tensor is not None:
                found[value_name(index)] = tensor
    return found


def _delegates(storage: Storage, plan: Table) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield the name of each delegate, and its blob."""
    for number, each in enumerate(plan.tables(_DELEGATES)):
        name = each.text(0)[:_MAX_SHOWN]
        place = storage.delegate(each.table(1))
        yield name, () if place is None else (blob(f"{plan.text(_PLAN_NAME)[:_MAX_SHOWN]}: {name} {number}", place),)


def _form(nodes: Iterable[Node], delegates: Iterable[str]) -> str:
    computes = {node.compute for node in nodes}
    words = ["quantized program"] if Compute.STATIC in computes else []
    names = list(dict.fromkeys(delegates))
    return ", ".join(words + ([f"delegated to {', '.join(names[:4])}"] if names else []))


def _not_understood(tensors: Iterable[Tensor], delegates: Iterable[str]) -> Iterator[str]:
    for name in dict.fromkeys(delegates):
        yield f"what is delegated to {name}"
    for tensor in tensors:
        if tensor.place is None:
            yield f"values of {tensor.name[:_MAX_SHOWN]}, which lie in a file of their own (.ptd)"
