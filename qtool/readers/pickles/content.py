"""A pickled value as a flat table: every tensor and number in it, by the name a state dict would have for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from qtool.readers.pickles.modules import children_of, class_of
from qtool.readers.pickles.tensors import is_tensor, parts_of, subclass_of, tensor_of
from qtool.readers.pickles.values import Call, Instance, Name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.readers.facts import Tensor
    from qtool.readers.pickles.tensors import StoragePlace

MAX_DEPTH: Final = 100
"""Of nested modules, dicts and lists."""

MAX_NAME_CHARACTERS: Final = 1000
MAX_CHARACTERS: Final = 16_000_000
"""Of all names that are kept."""

MAX_VALUES: Final = 40_000
"""Tensors and plain values that are kept. A checkpoint of 5000 parameters with an optimizer has some 20 000."""

MAX_PARTS: Final = 200_000
"""Tensors, dicts, lists and objects that are looked at; a module has some five."""

_MAX_TEXT: Final = 200
_MAX_SHOWN: Final = 60
_MAX_NOTES: Final = 20


@dataclass
class Content:
    """What a pickle holds, by name.

    Attributes:
        tensors: the tensors that have bytes, or nothing else that has them for them.
        wrappers: tensors whose bytes are those of others in `tensors`, with longer names.
        plain: numbers, short texts and names of dtypes that say something of a layer.
        classes: classes of modules, packed parameters and tensor subclasses.
        objects: classes of all other objects.
        roots: names of all that holds parameters and is in nothing else that does: modules, and dicts of tensors; the
            empty name is the whole.
        has_optimizer: whether there is the state of an optimizer of torch, which lists groups of parameters.
        not_understood: what was left out, a line each.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    wrappers: dict[str, Tensor] = field(default_factory=dict)
    plain: dict[str, object] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    roots: list[str] = field(default_factory=list)
    has_optimizer: bool = False
    not_understood: list[str] = field(default_factory=list)


def content_of(value: object, storage_place: StoragePlace) -> Content:
    """Return what a pickled value holds.

    Raises:
        FileFormatError: a tensor is damaged.

    Example:
        >>> content_of({"a": {"scale": 0.5}}, storage_place).plain
        {'a.scale': 0.5}
    """
    return _Walk(storage_place).content_of(value)


@dataclass(frozen=True)
class _Open:
    """A container whose parts are being read."""

    name: str
    parts: Iterator[tuple[object, object]]
    is_in_root: bool


class _Walk:
    """Goes through a value, each container once, with a list of the open ones instead of calling itself."""

    def __init__(self, storage_place: StoragePlace) -> None:
        self._storage_place = storage_place
        self._content = Content()
        self._seen: set[int] = set()
        self._open: list[_Open] = []
        self._num_characters = 0
        self._num_values = 0
        self._num_parts = 0

    def content_of(self, value: object) -> Content:
        self._read("", value, is_in_root=False)
        while self._open:
            top = self._open[-1]
            key, part = next(top.parts, (None, _END))
            if part is _END:
                self._open.pop()
            elif type(part) not in _PLAIN or _is_kept(key):
                self._read_part(top, key, part)
        return self._content

    def _read_part(self, top: _Open, key: object, part: object) -> None:
        if key == "param_groups":
            self._content.has_optimizer = True
        text = key if isinstance(key, str) else str(key) if isinstance(key, int | Name) else type(key).__name__
        name = f"{top.name}.{text}" if top.name else text
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            self._leave_out(f"what comes after {MAX_PARTS} dicts, lists and objects")
            self._open.clear()
            return
        if len(name) > MAX_NAME_CHARACTERS or len(self._open) > MAX_DEPTH:
            self._leave_out(f"what is nested too deep or has too long a name, {name[:_MAX_SHOWN]!r}")
            return
        self._read(name, part, is_in_root=top.is_in_root)

    def _read(self, name: str, value: object, *, is_in_root: bool) -> None:
        content = self._content
        if type(value) in _PLAIN:
            if (not isinstance(value, str) or len(value) <= _MAX_TEXT) and self._has_room(name):
                content.plain[name] = value
            return
        if id(value) in self._seen:
            return
        parts = _parts(value)
        tensor = tensor_of(value, name, self._storage_place)
        if tensor is not None and not self._has_room(name):
            return
        if tensor is not None:
            (content.wrappers if parts else content.tensors)[name] = tensor
        if not parts:
            return
        self._seen.add(id(value))
        cls = class_of(value) or subclass_of(value)
        if cls is not None:
            content.classes[name] = cls
        elif isinstance(value, Instance):
            content.objects[name] = value.name
        if not is_in_root and tensor is None and (cls is not None or _has_parameters(parts)):
            content.roots.append(name)
            is_in_root = True
        self._open.append(_Open(name, iter(parts), is_in_root))

    def _leave_out(self, what: str) -> None:
        if len(self._content.not_understood) < _MAX_NOTES:
            self._content.not_understood.append(what)

    def _has_room(self, name: str) -> bool:
        """Count a value that is to be kept; of too many the rest is left out."""
        self._num_characters += len(name)
        self._num_values += 1
        if self._num_characters <= MAX_CHARACTERS and self._num_values <= MAX_VALUES:
            return True
        self._leave_out(f"what comes after {MAX_VALUES} tensors and numbers, or {MAX_CHARACTERS} characters of names")
        self._open.clear()
        return False


_END: Final = object()
_PLAIN: Final = frozenset({bool, int, float, str, Name})
_KEPT: Final = frozenset({
    "scale", "zero_point", "dtype", "groups", "kind", "reduce_range", "quant_min", "quant_max", "ch_axis",
    "target_dtype", "activation_quantization", "pytorch-lightning_version",
})  # fmt: skip
"""Names of plain values that say something of a layer or of the file."""


def _parts(value: object) -> list[tuple[object, object]]:
    """Return (key, value) of all that a value holds, without plain values that nobody asks for."""
    if isinstance(value, dict):
        return [(key, part) for key, part in value.items() if type(part) not in _PLAIN or _is_kept(key)]
    if isinstance(value, list | tuple):
        return [(index, part) for index, part in enumerate(value) if part and type(part) not in _PLAIN]
    if is_tensor(value):
        return parts_of(value)
    if class_of(value) is not None:
        return list(children_of(value))
    if isinstance(value, Instance | Call):
        first = value.attributes.items() if isinstance(value, Instance) else enumerate(value.arguments)
        return [*first, *(value.entries or {}).items(), *enumerate(value.items or ())]
    return []


def _is_kept(key: object) -> bool:
    return isinstance(key, str) and key.rpartition(".")[2] in _KEPT


def _has_parameters(parts: list[tuple[object, object]]) -> bool:
    """Return whether a dict holds parameters by name."""
    return any(
        isinstance(key, str) and ("weight" in key or "bias" in key) and _is_parameter(part) for key, part in parts
    )


def _is_parameter(value: object) -> bool:
    return is_tensor(value) or class_of(value) is not None or isinstance(value, tuple)
