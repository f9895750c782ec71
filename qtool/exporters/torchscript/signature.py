"""How a model's inputs and outputs nest, in the words of TorchScript.

TorchScript knows tuples of any types, lists and dicts of one type, and keys that are words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from qtool.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils._pytree import TreeSpec

    from qtool.capture.program import Call

_TYPES: Final = {torch.Tensor: "Tensor", int: "int", float: "float", bool: "bool", str: "str"}


@dataclass(frozen=True)
class Shape:
    """What a model takes and returns.

    Attributes:
        call: the arguments, and how they nest.
        result: how what it returns nests.
    """

    call: Call
    result: TreeSpec


@dataclass(frozen=True)
class Signature:
    """The head of a TorchScript method, and where it finds the graph's inputs.

    Attributes:
        parameters: `name: type` of each argument.
        leaves: an expression for each input of the graph, in order.
    """

    parameters: tuple[str, ...]
    leaves: tuple[str, ...]


def signature_of(call: Call, names: Sequence[str]) -> Signature:
    """Return the signature of a model.

    Args:
        call: what the model is called with.
        names: a name for each input of the graph; an argument that is one input bears its name.

    Raises:
        ModelError: the inputs nest in a way TorchScript has no type for.
    """
    arguments, _ = call.structure.children()
    leaves, free = iter(zip(call.leaves, names, strict=True)), set(names)
    parameters, expressions = [], []
    for index, argument in enumerate(arguments.children()):
        mine = [next(leaves) for _ in range(argument.num_leaves)]
        name = mine[0][1] if argument.is_leaf() else _unused(f"argument_{index}", free)
        parameters.append(f"{name}: {_type(argument, iter([leaf for leaf, _ in mine]))}")
        expressions += list(_places(argument, name))
    return Signature(tuple(parameters), tuple(expressions))


def nested(structure: TreeSpec, leaves: Iterator[tuple[str, Any]]) -> str:
    """Return an expression that nests values as a model returns them.

    Args:
        structure: how they nest.
        leaves: an expression and the value, a tensor without data or a number, of each.

    Raises:
        ModelError: TorchScript has no type for it.
    """
    given = list(leaves)
    _type(structure, iter([value for _, value in given]))
    return _built(structure, iter([text for text, _ in given]))


def _built(structure: TreeSpec, texts: Iterator[str]) -> str:
    if structure.is_leaf():
        return next(texts)
    items = [_built(child, texts) for child in structure.children()]
    if structure.type is dict:
        return f"{{{', '.join(f'{_quoted(key)}: {item}' for key, item in zip(structure.context, items, strict=True))}}}"
    if structure.type is tuple:
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return f"[{', '.join(items)}]"


def _places(structure: TreeSpec, expression: str) -> Iterator[str]:
    if structure.is_leaf():
        yield expression
        return
    keys = structure.context if structure.type is dict else range(structure.num_children)
    for key, child in zip(keys, structure.children(), strict=True):
        yield from _places(child, f"{expression}[{_quoted(key) if isinstance(key, str) else key}]")


def _type(structure: TreeSpec, leaves: Iterator[Any]) -> str:
    """Return the TorchScript type of nested values."""
    if structure.is_leaf():
        return _leaf_type(next(leaves))
    items = [_type(child, leaves) for child in structure.children()]
    if structure.type is tuple and items:
        return f"Tuple[{', '.join(items)}]"
    is_one_type = len(set(items)) == 1
    if structure.type is list and is_one_type:
        return f"List[{items[0]}]"
    if structure.type is dict and is_one_type and all(isinstance(key, str) for key in structure.context):
        return f"Dict[str, {items[0]}]"
    msg = (
        f"TorchScript has no type for a {structure.type.__name__} of {', '.join(items) or 'nothing'}: lists and dicts "
        f"hold values of one type, under keys that are words; export to onnx or pt2, or return a tuple"
    )
    raise ModelError(msg)


def _leaf_type(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "Optional[Tensor]"
    if isinstance(value, torch.SymInt):
        return "int"
    if type(value) in _TYPES or isinstance(value, torch.Tensor):
        return _TYPES.get(type(value), "Tensor")
    msg = f"TorchScript has no type for the {type(value).__name__} that the model takes or returns"
    raise ModelError(msg)


def _quoted(text: str) -> str:
    """Return a word as TorchScript writes it; other characters than plain ones stand as octal numbers."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else _octal(c) for c in text)
    return f'"{plain}"'


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
