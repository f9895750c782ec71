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

TRAINING_CONSTANTS = "qtool/training_constants"
"""Where a training graph's constants stand; with a slash, so that no attribute of a model bears the name."""

KEPT_META = ("val", "tensor_meta", "nn_module_stack")
"""What a saved node may say of itself: not where on somebody's machine its source line stood."""


@dataclass(frozen=True)
class FloatProgram:
    """A float model as a graph of ATen ops in eval mode, independent of the code it came from.

    Attributes:
        exported: what torch.export gave, with weights of its own.
        inputs: name, shape and dtype of every input in calling order; words in a shape are dynamic sizes.
        trained: the same model in train mode, if it is to be trained; its tensors are those of `exported`.
    """

    exported: ExportedProgram
    inputs: tuple[InputStamp, ...]
    trained: ExportedProgram | None = None

    def graph_module(self, *, computed_weights: bool = False) -> GraphModule:
        """Return a fresh module of the program: in-place ops made functional, weights shared with `exported`.

        The same program gives the same graph with the same node names, also after saving and loading, so a plan
        can refer to nodes by name.

        Args:
            computed_weights: leave weights that are computed from parameters as they are computed, so that gradients
                reach the parameters; False computes them here.
        """
        module = functional_graph(plain_module(self.exported), self._input_names)
        make_padding_explicit(module)
        if not computed_weights:
            fold_computed_weights(module)
        module.recompile()
        return module

    def training_graph_module(self) -> GraphModule:
        """Return a fresh module of the model in train mode, like `graph_module`.

        Constants that are not the model's own stand under `TRAINING_CONSTANTS`: both graphs number theirs from 0.
        """
        assert self.trained is not None
        module = functional_graph(plain_module(self.trained), self._input_names)
        make_padding_explicit(module)
        _move_constants(module, self.trained)
        module.recompile()
        return module

    @property
    def _input_names(self) -> list[str]:
        return [stamp.name for stamp in self.inputs]

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


def tensor_at(module: torch.nn.Module, path: str) -> torch.Tensor:
    """Return the module's own tensor at a path of attributes."""
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def tensor_of(module: torch.nn.Module, node: Any) -> torch.Tensor | None:  # noqa: ANN401 - an argument of a node
    """Return the tensor that a `get_attr` node stands for; None for no node."""
    return tensor_at(module, str(node.target)) if isinstance(node, torch.fx.Node) else None


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


def _move_constants(module: GraphModule, exported: ExportedProgram) -> None:
    specs = exported.graph_signature.input_specs
    names = {str(spec.target) for spec in specs if spec.kind is InputKind.CONSTANT_TENSOR}
    module.add_module(TRAINING_CONSTANTS, torch.nn.Module())
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target in names:
            name = str(node.target).replace(".", "/")
            constant = tensor_at(module, str(node.target))
            getattr(module, TRAINING_CONSTANTS).register_buffer(name, constant, persistent=False)
            node.target = f"{TRAINING_CONSTANTS}.{name}"


def write_tensors(program: FloatProgram, tree: torch.nn.Module) -> None:
    """Let a program have the tensors that `tree` holds by the same names, as they are now, on the CPU.

    Two names of one tensor stay that.
    """
    exported = program.exported
    kinds = {str(spec.target): spec.kind for spec in exported.graph_signature.input_specs}
    for held in (exported.state_dict, exported.constants):
        current: dict[tuple[int, torch.Size], torch.Tensor] = {}
        for name, old in held.items():
            if kinds.get(name) in (InputKind.PARAMETER, InputKind.BUFFER) and _has(tree, name):
                current[old.data_ptr(), old.shape] = _on_cpu(tensor_at(tree, name))
        for name, old in held.items():
            held[name] = current.get((old.data_ptr(), old.shape), old) if old.numel() else old


def _has(tree: torch.nn.Module, path: str) -> bool:
    try:
        tensor_at(tree, path)
    except AttributeError:
        return False
    return True


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    moved = tensor.detach().cpu()
    return torch.nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else moved


def unite_tensors(program: FloatProgram) -> FloatProgram:
    """Let the training graph have the eval graph's tensors, wherever both have one by a name; returns its argument."""
    if program.trained is not None:
        ours, theirs = program.exported, program.trained
        for name in theirs.state_dict:
            theirs.state_dict[name] = ours.state_dict[name]
        for spec in theirs.graph_signature.input_specs:
            if spec.kind is InputKind.BUFFER and spec.target in theirs.constants:
                theirs.constants[str(spec.target)] = ours.constants[str(spec.target)]
    return program


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
