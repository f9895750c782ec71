"""One tree of tensors and points for several graphs: what train mode changes, eval mode reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from torch.fx import GraphModule


def share_tensors(*modules: GraphModule) -> nn.Module:
    """Return one module with everything that the graphs read, by the same paths; the graphs read it from there.

    Where two of them have a tensor or module by one path, the first one's counts. The graphs keep nothing of their own,
    so moving the result to another device moves what they see.
    """
    tree = nn.Module()
    for module in modules:
        for node in module.graph.nodes:
            if node.op in ("get_attr", "call_module"):
                _adopt(tree, module, str(node.target).split("."))
    for module in modules:
        for kind in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            module.__dict__[kind] = tree.__dict__[kind]
    return tree


def _adopt(tree: nn.Module, module: nn.Module, path: list[str]) -> None:
    for part in path[:-1]:
        if part not in tree._modules:
            tree.add_module(part, nn.Module())
        tree, module = tree.get_submodule(part), module.get_submodule(part)
    name = path[-1]
    if hasattr(tree, name):
        return
    if name in module._modules:
        tree.add_module(name, module.get_submodule(name))
    elif name in module._parameters:
        tree.register_parameter(name, module._parameters[name])
    else:
        persistent = name not in module._non_persistent_buffers_set
        tree.register_buffer(name, getattr(module, name), persistent=persistent)
