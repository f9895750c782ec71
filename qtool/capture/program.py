"""The captured float model: an exported program, and the functional graph all passes start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from qtool.capture.functional import functional_graph

if TYPE_CHECKING:
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
        return functional_graph(plain_module(self.exported), [stamp.name for stamp in self.inputs])


def plain_module(exported: ExportedProgram) -> GraphModule:
    """Return a program as an ordinary module: its graph and tensors, without torch.export's own checks of inputs.

    What `ExportedProgram.module()` gives refuses train() and eval() and cannot be copied.
    """
    module = exported.module(check_guards=False)
    return torch.fx.GraphModule(module, module.graph)


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
