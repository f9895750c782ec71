"""What an op writes into, and what its result shares storage with, by the op's own schema."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from torch.fx import Node

if TYPE_CHECKING:
    from collections.abc import Iterable


def written_argument(node: Node) -> Node | None:
    """Return the argument that the op writes into, if it writes into one.

    Example:
        For `add_(y, 1)` that is `y`; for `add(y, 1)` there is none.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
        if isinstance(value, Node):
            return value
    return None


def viewed_argument(node: Node) -> Node | None:
    """Return the argument that the op's result shares its storage with.

    Example:
        For `view(y, [-1])` that is `y`; for `relu(y)` there is none.
    """
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return viewed_argument(node.args[0])  # a piece of a list of views is a view of what was cut
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.returns or schema.returns[0].alias_info is None:
        return None
    for index, argument in enumerate(schema.arguments):
        viewed = node.args[index] if index < len(node.args) else None
        if argument.alias_info is not None and isinstance(viewed, Node):
            return viewed
    return None


def written_tensors(nodes: Iterable[Node]) -> set[str]:
    """Return the paths of the module's own tensors that some op writes into, directly or through a view."""
    found = set()
    for node in nodes:
        root = written_argument(node)
        while root is not None and root.op == "call_function":
            root = written_argument(root) or viewed_argument(root)
        if root is not None and root.op == "get_attr":
            found.add(str(root.target))
    return found
