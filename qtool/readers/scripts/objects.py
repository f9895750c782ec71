"""The objects of a TorchScript archive, from its pickles: modules, tensors and packed weights.

Source: torch/csrc/jit/serialization/pickler.cpp; aten/src/ATen/native/quantized/cpu/conv_serialization.h for packed
convolutions and fbgemm_utils.cpp for packed linears.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Place, Tensor
from qtool.readers.pickles.tensors import tensor_of
from qtool.readers.pickles.values import Call, Instance
from qtool.readers.scripts.values import NOTHING, Module, Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qtool.readers.archive import Archive

_QUANTIZED: Final = "__torch__.torch.classes.quantized."
_CONTAINERS: Final = ("torch.jit._pickle.build_", "torch.jit._pickle.restore_type_tag")
_MAX_CONFIG_BYTES: Final = 64
"""Of the numbers of a packed convolution, 16 bits each; there are 2 to 15."""


class Objects:
    """Makes values of what a pickle holds, each once, and keeps every tensor that it met."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self.archive = archive
        self.folder = folder
        self.tensors: dict[int, Tensor] = {}
        self.kept: dict[int, tuple[object, object]] = {}  # by id, with the object itself, so that no id is used twice

    def value(self, raw: object, path: str) -> object:
        """Return the value that a pickled object stands for; a module's attributes are set by who knows its code."""
        if id(raw) in self.kept:
            return self.kept[id(raw)][1]
        made = self._made(raw, path)
        if isinstance(raw, Instance | Call):
            self.kept[id(raw)] = (raw, made)
        return made

    def _made(self, raw: object, path: str) -> object:
        if isinstance(raw, Instance):
            name = raw.name
            return self._packed(raw, path) if name.startswith(_QUANTIZED) else Module(path, name)
        if isinstance(raw, Call):
            if raw.name.startswith(_CONTAINERS):
                return self._made(raw.arguments[0], path) if raw.arguments else NOTHING
            return self.tensor(raw, path) or NOTHING
        if isinstance(raw, list | tuple):
            return [self.value(each, f"{path}.{index}") for index, each in enumerate(raw)]
        return raw if raw is None or isinstance(raw, int | float | str) else NOTHING

    def tensor(self, raw: object, path: str) -> Tensor | None:
        """Return the tensor that a call rebuilds; None if it is no tensor."""
        found = tensor_of(raw, path, self._storage)
        if found is not None:
            self.tensors.setdefault(id(raw), found)
            self.kept[id(raw)] = (raw, found)
        return found

    def _storage(self, key: str) -> Place:
        entry = f"{self.folder}/{key}"
        return Place(part=entry, offset=0, num_bytes=self.archive.size(entry))

    def _packed(self, raw: Instance, path: str) -> Packed:
        cls = raw.name.removeprefix(_QUANTIZED)
        state = self._made(raw.state, path) if isinstance(raw.state, tuple | list) else []
        found = [each for each in _flat(state if isinstance(state, list) else []) if isinstance(each, Tensor)]
        weights = [each for each in found if each.quantization is not None or "float" in each.dtype]
        groups = self._groups(state, found) if cls.startswith("Conv") else None
        bias = weights[1] if len(weights) > 1 and weights[1].quantization is None else None
        return Packed(cls, weights[0] if weights else None, bias, groups)

    def _groups(self, state: object, tensors: list[Tensor]) -> int | None:
        """Return the last but one number of a packed convolution: version 3 has plain ones, version 2 a tensor."""
        numbers = next((each for each in _lists(state) if each and all(isinstance(n, int) for n in each)), None)
        if numbers is None:
            config = next((each for each in tensors if each.dtype == "int16" and each.place is not None), None)
            if config is None or config.place is None or not 2 <= config.place.num_bytes <= _MAX_CONFIG_BYTES:
                return None
            data = b"".join(self.archive.blocks(config.place))
            numbers = list(struct.unpack(f"<{len(data) // 2}h", data[: len(data) // 2 * 2]))
        return numbers[-2] if len(numbers) > 1 and isinstance(numbers[-2], int) else None


def named(raw: object, path: str, visit: Callable[[Instance, str], None]) -> None:
    """Give every instance below a pickled object, once, with its path; without recursion."""
    left, seen = [(raw, path)], set()
    while left:
        each, where = left.pop()
        if id(each) in seen:
            continue
        if isinstance(each, Instance):
            seen.add(id(each))
            visit(each, where)
            left += [(value, f"{where}.{key}" if where else str(key)) for key, value in _parts(each.state)]
        elif isinstance(each, list | tuple):
            left += [(value, f"{where}.{index}") for index, value in enumerate(each)]


def _parts(state: object) -> Iterable[tuple[object, object]]:
    if isinstance(state, dict):
        return state.items()
    return enumerate(state) if isinstance(state, list | tuple) else ()


def _flat(values: list[object]) -> Iterable[object]:
    for each in values:
        if isinstance(each, list):
            yield from (inner for inner in each if not isinstance(inner, list))
        else:
            yield each


def _lists(state: object) -> list[list[object]]:
    return [each for each in state if isinstance(each, list)] if isinstance(state, list) else []
