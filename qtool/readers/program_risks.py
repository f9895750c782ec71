"""Finds what in a .pt2 torch.export.load would execute or unpickle, without loading it.

What qtool writes holds none of it, so one risk is enough to refuse a file. The graph is checked field by field,
wherever the field stands: what is not in a list of harmless forms is a risk, not the other way round.

Source: torch/export/pt2_archive/_package.py and torch/_export/serde/serialize.py, the functions that read each part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qtool.readers.archive import read_archive
from qtool.readers.expressions import is_plain_expression, is_plain_guard
from qtool.readers.risks import Risk, RiskKind
from qtool.stamp import bounded_json
from qtool.stamp.schema import TRAINING_GRAPH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.readers.archive import Archive


_REFUSED_ATEN = (
    "from_file", "save", "_print", "warn", "backward", "dist_backward", "wait", "grad", "confirmed_by_owner", "to_here",
    "local_value", "seed", "initial_seed", "manual_seed", "set_grad_enabled",
)  # fmt: skip
"""Ops that reach out of the graph: to files, the terminal, other processes, or the state of the whole process."""
_ATEN = rf"aten\.(?!(?:{'|'.join(_REFUSED_ATEN)})\b)[a-z_][A-Za-z0-9_]*"
_OPERATOR = re.compile(
    rf"torch\.ops\.(?:{_ATEN}|quantized_decomposed\.[a-z_]+|torchvision\.[a-z_0-9]+)"
    r"(?:\.(?!_)[A-Za-z0-9_]+)?"
    r"|torch\.ops\.higher_order\.(?:cond|while_loop|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|torch\.sym_(?:not|min|max|float|int|ite|sum)"
    r"|_operator\.(?:add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|getitem)"
    r"|math\.(?:ceil|floor|trunc|sqrt)"
)
_DUNDER_OPERATORS = frozenset({"__and__", "__or__", "__xor__", "__lshift__", "__rshift__"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTAINERS = frozenset({"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})
_OBJECTS = ("custom_obj_", "opaque_obj_")
_MAX_DETAIL = 120


def find_risks(archive: Archive) -> tuple[Risk, ...]:
    """Return all that loading the archive with torch would execute; empty for what qtool writes.

    Raises:
        FileFormatError: a graph or a table of weights in it is not JSON of the form torch writes.
    """
    risks: list[Risk] = []
    for name in archive.names:
        risks.extend(_entry_risks(archive, name))
    return tuple(dict.fromkeys(risks))


def _entry_risks(archive: Archive, name: str) -> Iterator[Risk]:
    """Yield the risks of one entry; torch goes by the beginnings of names, so the same is done here."""
    if name.startswith("data/sample_inputs/") and archive.size(name):
        yield Risk(RiskKind.SAMPLE_INPUTS, name, f"{archive.size(name)} bytes")
    elif name.startswith("data/aotinductor/"):
        yield Risk(RiskKind.COMPILED_CODE, name, name.removeprefix("data/aotinductor/"))
    elif name.startswith(("data/weights/", "data/constants/")):
        yield from _payload_risks(archive, name, name.split("/", 2)[2])
    elif name == TRAINING_GRAPH:
        yield from _nested_risks(archive, name)
    elif name.startswith("models/"):
        for risk in _graph_risks(archive.json(name)):
            yield Risk(risk.kind, name, _one_line(risk.detail))


def _nested_risks(archive: Archive, name: str) -> Iterator[Risk]:
    """Yield the risks of an archive inside the archive, which is loaded the same way."""
    with read_archive(archive.read(name), where=f"{archive.where}:{name}") as nested:
        if not nested.root:
            # torch goes by the first entry's folder, so it could see other entries than we do.
            yield Risk(RiskKind.NAME, name, "an archive whose entries lie in several folders")
        for entry in nested.names:
            if entry == TRAINING_GRAPH:  # nothing reads it, so nothing looks into it
                continue
            for risk in _entry_risks(nested, entry):
                yield Risk(risk.kind, f"{name}/{risk.entry}", risk.detail)


def _payload_risks(archive: Archive, name: str, path: str) -> Iterator[Risk]:
    if path.startswith(_OBJECTS):
        yield Risk(RiskKind.CUSTOM_OBJECT, name, path)
    elif path.endswith(".pt"):
        yield Risk(RiskKind.PICKLED_TENSOR, name, "tensors in the form of an older torch")
    elif path.endswith(".json"):
        for part in _dicts(archive.json(name)):
            detail = _one_line(str(part.get("path_name")))
            if part.get("use_pickle", False) is not False:
                yield Risk(RiskKind.PICKLED_TENSOR, name, detail)
            if detail.startswith(_OBJECTS):
                yield Risk(RiskKind.CUSTOM_OBJECT, name, detail)


def _graph_risks(graph: object) -> Iterator[Risk]:
    """Yield the risks of a serialized graph; `entry` is left empty."""
    for part in _dicts(graph):
        for key, value in part.items():
            check = _FIELD_CHECKS.get(key)
            if check is not None:
                yield from check(value)


def _dicts(tree: object) -> Iterator[dict[str, object]]:
    """Yield every JSON object in a tree, without recursion: depth is the file's choice."""
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left.extend(value for value in part.values() if isinstance(value, dict | list))
        elif isinstance(part, list):
            left.extend(value for value in part if isinstance(value, dict | list))


def _check_expression(value: object) -> Iterator[Risk]:
    if not isinstance(value, str) or not is_plain_expression(value):
        yield Risk(RiskKind.EXPRESSION, "", str(value))


def _check_guards(value: object) -> Iterator[Risk]:
    for guard in value if isinstance(value, list) else [value]:
        if not isinstance(guard, str) or not is_plain_guard(guard):
            yield Risk(RiskKind.EXPRESSION, "", str(guard))


def _check_symbols(value: object) -> Iterator[Risk]:
    for symbol in value if isinstance(value, dict) else [str(value)]:
        if not _NAME.fullmatch(symbol):
            yield Risk(RiskKind.EXPRESSION, "", symbol)


def _check_operator(value: object) -> Iterator[Risk]:
    text = str(value)
    dunders = {part for part in text.split(".") if part.startswith("__")}
    if not _OPERATOR.fullmatch(text) or not dunders <= _DUNDER_OPERATORS:
        yield Risk(RiskKind.OPERATOR, "", text)


def _check_name(value: object) -> Iterator[Risk]:
    # The loader writes Python source with these names in it.
    if value not in (None, "") and not (isinstance(value, str) and _NAME.fullmatch(value)):
        yield Risk(RiskKind.NAME, "", str(value))


def _check_path(value: object) -> Iterator[Risk]:
    # Module names are free, and stand quoted in that source.
    if not isinstance(value, str) or not value.isprintable() or set(value) & set("\"'\\"):
        yield Risk(RiskKind.NAME, "", str(value))


def _check_names(value: object) -> Iterator[Risk]:
    for name in value if isinstance(value, list) else [value]:
        yield from _check_name(name)


def _check_custom_object(value: object) -> Iterator[Risk]:
    if value:
        yield Risk(RiskKind.CUSTOM_OBJECT, "", str(value))


def _check_tree_spec(value: object) -> Iterator[Risk]:
    """Check how inputs or outputs nest: builtin containers, whose keys are words or numbers."""
    if value in (None, ""):
        return
    try:
        tree = bounded_json.loads(str(value))
        is_tree = isinstance(tree, list) and len(tree) == 2 and isinstance(tree[1], dict)
        is_plain = is_tree and all(_is_plain_container(part) for part in _dicts(tree))
    except (TypeError, ValueError, RecursionError):
        is_plain = False
    if not is_plain:
        yield Risk(RiskKind.CONTAINER_TYPE, "", str(value))


def _is_plain_container(part: dict[str, object]) -> bool:
    if part.get("type") is None:
        return part.get("context") is None
    keys = bounded_json.loads(str(part.get("context")))
    # An object in the context could name an enum of any module, which the loader would import.
    return part["type"] in _CONTAINERS and (
        keys is None or (isinstance(keys, list) and all(isinstance(key, str | int) for key in keys))
    )


_FIELD_CHECKS: dict[str, Callable[[object], Iterator[Risk]]] = {
    "expr_str": _check_expression,
    "guards_code": _check_guards,
    "range_constraints": _check_symbols,
    "target": _check_operator,
    "as_operator": _check_operator,
    "name": _check_name,
    "forward_arg_names": _check_names,
    "parameter_name": _check_path,
    "buffer_name": _check_path,
    "tensor_constant_name": _check_path,
    "as_custom_obj": _check_custom_object,
    "custom_obj": _check_custom_object,
    "custom_obj_values": _check_custom_object,
    "in_spec": _check_tree_spec,
    "out_spec": _check_tree_spec,
}


def _one_line(text: str) -> str:
    return text if len(text) <= _MAX_DETAIL else text[: _MAX_DETAIL - 3] + "..."
