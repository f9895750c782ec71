"""The captured float model: an exported program, and the functional graph all passes start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from qtool.capture.computed_weights import fold_computed_weights
from qtool.capture.functional import functional_graph
from qtool.capture.regions import inline_regions
from qtool.capture.string_padding import make_padding_explicit
from qtool.capture.writes import written_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.export import ExportedProgram
    from torch.fx import GraphModule

    from qtool.stamp.schema import InputStamp

KEPT_META = ("val", "tensor_meta", "nn_module_stack")
"""What a saved node may say of itself: not where on somebody's machine its source line stood."""


@dataclass(frozen=True)
class FloatProgram:
    """A float model as a graph of ATen ops in eval mode, independent of the code it came from.

    Attributes:
        exported: what torch.export gave, with weights of its own.
        inputs: name, shape and dtype of every input in calling order; words in a shape are dynamic sizes.
    """

    exported: ExportedProgram
    inputs: tuple[InputStamp, ...]

    def graph_module(self) -> GraphModule:
        """Return a fresh module of the program: in-place ops made functional, weights shared with `exported`.

        The same program gives the same graph with the same node names, also after saving and loading, so a plan
        can refer to nodes by name.
        """
        module = functional_graph(plain_module(self.exported), [stamp.name for stamp in self.inputs])
        make_padding_explicit(module)
        fold_computed_weights(module)
        module.recompile()
        return module

    @property
    def call(self) -> Call:
        """What the program is called with."""
        return Call.of(self.exported)


@dataclass(frozen=True)
class Call:
    """The arguments of a program: tensors, and numbers, words and None that were fixed when it was captured.

    Attributes:
        structure: how the arguments are nested.
        leaves: the arguments in order: tensors without data, and the fixed values.
    """

    structure: pytree.TreeSpec
    leaves: tuple[Any, ...]

    @staticmethod
    def of(exported: ExportedProgram) -> Call:
        """Return what a program is called with."""
        kinds = {spec.arg.name for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
        leaves = [n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder" and n.name in kinds]
        return Call(exported.call_spec.in_spec, tuple(leaves))

    def arrange(self, tensors: Iterable[Any]) -> tuple[Any, ...]:
        """Return positional arguments with `tensors` where the tensors belong, in order."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        arguments, _ = pytree.tree_unflatten(leaves, self.structure)
        return tuple(arguments)


def plain_module(exported: ExportedProgram) -> GraphModule:
    """Return a program as an ordinary module: its graph and tensors, without torch.export's own checks of inputs.

    What `ExportedProgram.module()` gives refuses train() and eval() and cannot be copied. Weights are shared with
    the program; a buffer that the model writes to is not, so running the module leaves the program as it is.
    """
    module = exported.module(check_guards=False)
    plain = inline_regions(torch.fx.GraphModule(module, module.graph))
    for path in written_tensors(plain.graph.nodes):
        owner, _, name = path.rpartition(".")
        parent = plain.get_submodule(owner)
        setattr(parent, name, getattr(parent, name).detach().clone())
    return plain


def strip_origins(exported: ExportedProgram) -> ExportedProgram:
    """Remove sample inputs, stack traces and everything else that tells of the machine; returns its argument.

    Without this a saved program holds source lines with absolute paths, and a sample input drags its whole
    storage along.
    """
    for module in exported.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            kept = {key: node.meta[key] for key in (*KEPT_META, "custom") if key in node.meta}
            node.meta.clear()
            node.meta.update(kept)
    exported.example_inputs = None
    return exported
