"""The model in a .pt2: its stored tensors, and its layers as the graph tells them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, ModelFacts
from qtool.readers.programs.graph import steps_of, stored_names
from qtool.readers.programs.tables import stored_tensors
from qtool.readers.programs.trace import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qtool.readers.archive import Archive
    from qtool.readers.facts import Node, Tensor

_FORMS: Final = (
    (Compute.STATIC, "quantized program"),
    (Compute.DYNAMIC, "dynamically quantized program"),
    (Compute.FAKE_QUANTIZED, "training program (fake-quantized)"),
    (Compute.WEIGHT_ONLY, "program with quantized weights"),
)


def program_model(archive: Archive) -> ModelFacts:
    """Return the tensors and layers of a .pt2.

    Raises:
        FileFormatError: a graph or a table in it is not of the form torch writes.
    """
    tensors = stored_tensors(archive)
    by_name = {tensor.name: tensor for tensor in tensors}
    programs = [archive.json(name) for name in archive.names if _is_program(name)]
    nodes = list(itertools.chain.from_iterable(_nodes(program, by_name) for program in programs))
    return ModelFacts(producer=_producer(programs), form=_form(nodes), tensors=tensors, nodes=tuple(nodes))


def _is_program(name: str) -> bool:
    return name.startswith("models/") and name.endswith(".json")


def _nodes(program: object, tensors: dict[str, Tensor]) -> Iterator[Node]:
    if isinstance(program, dict):
        names = stored_names(program)
        yield from nodes_of(steps_of(program), {name: tensors[key] for name, key in names.items() if key in tensors})


def _producer(programs: Iterable[object]) -> str | None:
    versions = [program.get("torch_version") for program in programs if isinstance(program, dict)]
    known = [version for version in versions if isinstance(version, str)]
    return f"torch.export {known[0][:40]}" if known else None


def _form(nodes: Iterable[Node]) -> str:
    found = {node.compute for node in nodes}
    return next((words for compute, words in _FORMS if compute in found), "")
