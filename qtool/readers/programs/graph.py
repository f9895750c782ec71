"""The graph of a .pt2 as a row of steps: which op, which arguments by name, whose module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from qtool.stamp import bounded_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PREFIX: Final = "torch.ops."


@dataclass(frozen=True)
class Value:
    """An argument that is a value of the graph, by its name."""

    name: str


Argument = Value | list["Argument"] | float | str | bool | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One op of the graph.

    Attributes:
        op: its name without overload, for example `aten.conv2d`.
        arguments: by name; what is not of a known form is None.
        outputs: names of the values it makes.
        module: path of the module that called it; empty for the model itself.
        stamped: the name of the stamped int8 node that it belongs to; None if it belongs to none.
    """

    op: str
    arguments: Mapping[str, Argument]
    outputs: tuple[str, ...]
    module: str
    stamped: str | None

    def values(self) -> Iterator[str]:
        """Yield the names of the values it reads."""
        for argument in self.arguments.values():
            for each in argument if isinstance(argument, list) else [argument]:
                if isinstance(each, Value):
                    yield each.name


def steps_of(program: Mapping[str, Any]) -> Iterator[Step]:
    """Yield the ops of a serialized program in execution order; what is not of the form torch writes is left out."""
    for node in _items(_part(_part(program, "graph_module"), "graph"), "nodes"):
        if isinstance(node, dict) and isinstance(node.get("target"), str):
            yield _step(node)


def stored_names(program: Mapping[str, Any]) -> dict[str, str]:
    """Return, by its name in the graph, what a parameter, buffer or constant is called in the tables."""
    found = {}
    for spec in _items(_part(_part(program, "graph_module"), "signature"), "input_specs"):
        for kind, key in _STORED.items():
            name, stored = _part(_part(spec, kind), "arg").get("name"), _part(spec, kind).get(key)
            if isinstance(name, str) and isinstance(stored, str):
                found[name] = stored
    return found


_STORED: Final = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}


def _step(node: dict[str, Any]) -> Step:
    metadata = _part(node, "metadata")
    return Step(
        op=_op(node["target"]),
        arguments={
            given["name"]: _argument(given.get("arg"))
            for given in _items(node, "inputs")
            if isinstance(given, dict) and isinstance(given.get("name"), str)
        },
        outputs=tuple(_outputs(node)),
        module=_module(metadata.get("nn_module_stack")),
        stamped=_stamped(metadata.get("custom")),
    )


def _op(target: str) -> str:
    parts = target.removeprefix(_PREFIX).split(".")
    return ".".join(parts[:2])


def _argument(value: object) -> Argument:
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, content),) = value.items()
    if kind == "as_tensor":
        name = content.get("name") if isinstance(content, dict) else None
        return Value(name) if isinstance(name, str) else None
    if kind in ("as_tensors", "as_optional_tensors"):
        found = [each.get("as_tensor", each) if isinstance(each, dict) else None for each in _listed(content)]
        return [_argument({"as_tensor": each}) for each in found]
    if kind in ("as_ints", "as_floats", "as_bools"):
        return [each for each in _listed(content) if isinstance(each, int | float)]
    if kind in ("as_int", "as_float", "as_bool", "as_scalar_type", "as_string"):
        return content if isinstance(content, int | float | str) else None
    return None


def _outputs(node: dict[str, Any]) -> Iterator[str]:
    for each in _items(node, "outputs"):
        found = _argument(each)
        for value in found if isinstance(found, list) else [found]:
            if isinstance(value, Value):
                yield value.name


def _module(stack: object) -> str:
    """Return the path of the innermost module: `key,path,class;key,path,class`."""
    path = str(stack).rpartition(";")[2].split(",", 2)[1:2] if isinstance(stack, str) else []
    return path[0] if path else ""


def _stamped(custom: object) -> str | None:
    if not isinstance(custom, str) or '"node"' not in custom:
        return None
    try:
        name = _part(bounded_json.loads(custom), "qtool").get("node")
    except (ValueError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _part(tree: object, key: str) -> dict[str, Any]:
    """Return an object within another; an empty one where the file has something else."""
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, dict) else {}


def _items(tree: object, key: str) -> list[Any]:
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, list) else []
