"""A lowered program as one function that calls its kernels and nothing else.

At batch 1 a layer takes some 50 microseconds, and what Python does between two of them is slow besides, for each layer
turns the caches over: a module's call, its hooks and its attributes cost as much as a third of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.fx import Graph, GraphModule

from qtool.numerics.kernels import native_codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from torch.fx import Node


def straight_line(module: GraphModule) -> Callable[..., Any]:
    """Return a function that computes what a lowered program computes; for `takes_directly` inputs alone.

    Args:
        module: a lowered program whose kernels are final: they are bound, so what is put in their place later is not
            seen.
    """
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "call_module":
            args = tuple(made[source] for source in node.args)
            made[node] = graph.call_function(_direct(module.get_submodule(str(node.target))), args)
        else:
            made[node] = graph.node_copy(node, lambda source: made[source])
    graph.set_codegen(module.graph._codegen)
    return GraphModule(module, graph).forward


def takes_directly(inputs: list[Any]) -> bool:
    """Return whether a program may run on these as `straight_line`: nobody records what is done to tensors."""
    return all(native_codes.takes(leaf) for leaf in inputs if isinstance(leaf, Tensor))


def _direct(kernel: nn.Module) -> Callable[..., Tensor]:
    direct: Any = getattr(kernel, "direct", None)
    return kernel.forward if direct is None else direct()
