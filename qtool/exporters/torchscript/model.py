"""From a converted model to the bytes of a TorchScript archive."""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from qtool.backends.registry import backend as find_backend
from qtool.capture.program import Call, plain_module, tensor_at
from qtool.errors import MismatchError, ModelError, UsageError
from qtool.exporters.formats import ExportedModel
from qtool.exporters.saturating import saturating_nodes
from qtool.exporters.torchscript.packed_graph import pack_weights
from qtool.exporters.torchscript.signature import Shape
from qtool.exporters.torchscript.source import Source, write_source
from qtool.lowering.engine_switch import available_engines, check_engine
from qtool.readers.marks import marks_of
from qtool.runtime.container import stamp_archive
from qtool.runtime.verify import edge_of
from qtool.types import Stage

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from qtool.runtime.converted import ConvertedModel
    from qtool.stamp.schema import Stamp

_CLASS: Final = "__torch__.qtool.Int8Model"

_WORDS: Final[dict[str, Any]] = {
    "torch": torch,
    "Tensor": torch.Tensor,
    "List": typing.List,  # noqa: UP006 - it takes no other
    "Optional": typing.Optional,
    "annotate": torch.jit.annotate,
    "math": math,
    "RuntimeError": RuntimeError,
}
"""What the words of the source mean that TorchScript does not know by itself."""


@dataclass(frozen=True)
class Script:
    """A model in TorchScript, before it is compiled.

    Attributes:
        module: the packed graph, and all that it reads.
        source: the text.
        stamp: what the file will say about itself.
        engine: the engine whose weights it holds.
    """

    module: GraphModule
    source: Source
    stamp: Stamp
    engine: str


def engine_for(stamp: Stamp, engine: str | None) -> str:
    """Return the torch engine to pack weights for: the one asked for, or the first stamped backend's that is here.

    Raises:
        UsageError: no such engine, or the backend has none in torch.
        MissingEngineError: this torch does not have it.
        MismatchError: it would saturate on the CPU that the model was made for; the first node is named.
    """
    name = engine or _first_here(stamp.backends)
    record = find_backend(name)
    if record.engine is None:
        msg = (
            f"backend {name!r} runs in {record.runtime}, and TorchScript packs weights for an engine of torch: "
            f"name one with --engine (in Python engine=...), for example fbgemm or qnnpack"
        )
        raise UsageError(msg)
    check_engine(record.engine, option="--engine")
    wrong = saturating_nodes(stamp, record)
    if wrong:
        msg = (
            f"made for {', '.join(stamp.backends)}, isa {stamp.isa}: on {name} {len(wrong)} nodes can saturate, first "
            f"{wrong[0]!r}, and TorchScript would not say so. Convert the prepared file with --backend {name}"
        )
        raise MismatchError(msg)
    return record.engine


def _first_here(backends: tuple[str, ...]) -> str:
    """Return the first backend whose engine this torch has; else the first with an engine, to be told of."""
    in_torch = [name for name in backends if find_backend(name).engine is not None]
    here = [name for name in in_torch if find_backend(name).engine in available_engines()]
    return next(iter((*here, *in_torch, *backends)))


@torch.no_grad()
def write_script(converted: ConvertedModel, engine: str) -> Script:
    """Return a converted model as the source of a TorchScript module, and what that reads.

    Raises:
        ModelError: TorchScript has no word or type for something in it.
        MismatchError: the engine has no kernel for a node.
    """
    stamp = dataclasses.replace(converted.stamp, stage=Stage.EXPORTED)
    module = plain_module(converted.exported)
    edges = {node: edge for node in module.graph.nodes if (edge := edge_of(node)) is not None}
    replaced = pack_weights(module, engine)
    edges = {replaced.get(node, node): edge for node, edge in edges.items()}
    shape = Shape(Call.of(converted.exported), converted.exported.call_spec.out_spec)
    source = write_source(module, shape, marks_of(stamp), edges)
    return Script(module, source, stamp, engine)


@torch.no_grad()
def torchscript_files(converted: ConvertedModel, engine: str) -> ExportedModel:
    """Return the bytes of a TorchScript archive; the same model gives the same bytes.

    int8 weights are packed for `engine`; TorchScript stores them unpacked, and packs them when it loads them for the
    engine that is set then. The stamp lies in `extra/qtool/stamp.json`, and guards in the code say it again.

    Args:
        converted: the model; it is left as it was.
        engine: a torch engine that is here, see `engine_for`.

    Raises:
        ModelError: TorchScript has no word or type for something in it.
        MismatchError: the engine has no kernel for a node.
    """
    script = write_script(converted, engine)
    return ExportedModel(stamp_archive(_compiled(script).save_to_buffer(), script.stamp))


def _compiled(script: Script) -> Any:  # noqa: ANN401 - a C++ module of torch
    """Return the module. One that `torch.jit.script` makes bears another name each time it is made."""
    module: Any = torch._C.ScriptModule(_CLASS, torch._C.CompilationUnit(), False)  # type: ignore[call-arg]
    module._register_attribute("training", torch._C.BoolType.get(), False)
    for name, path in script.source.held.items():
        value: Any = tensor_at(script.module, path)  # or packed weights
        kind = torch._C.TensorType.get() if isinstance(value, torch.Tensor) else value._type()
        module._register_attribute(name, kind, value)
    own_type = torch._C.ConcreteModuleType.from_jit_type(module._type())
    try:
        module._define(own_type, script.source.text, _WORDS.get)
    except RuntimeError as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), "")
        msg = f"TorchScript does not take the model: {reason.strip()}; export it to pt2 or onnx, and report it"
        raise ModelError(msg) from error
    return module
