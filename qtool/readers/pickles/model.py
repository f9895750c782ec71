"""What a pickled model consists of, whatever file the pickle is from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import ModelFacts, Tensor
from qtool.readers.pickles.collector import resting_collector
from qtool.readers.pickles.content import content_of
from qtool.readers.pickles.form import form_of, producer_of
from qtool.readers.pickles.layers import layers_of
from qtool.readers.pickles.names import is_harmless
from qtool.readers.pickles.numbers import numbers_of
from qtool.readers.pickles.table import table_of
from qtool.readers.pickles.values import Call, Instance, Name
from qtool.readers.risks import Risk, RiskKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from qtool.readers.facts import Place
    from qtool.readers.pickles.machine import Pickled

_MAX_MISSING: Final = 20
_MAX_DETAIL: Final = 120
_BIG_ENDIAN: Final = "its tensors are stored big-endian, and are not looked at"


@dataclass(frozen=True, kw_only=True)
class StoredBytes:
    """Where the bytes of a pickle's tensors lie.

    Attributes:
        where: what to call the file in messages.
        entry: the archive entry of the pickle; empty if there is none.
        storage_place: place of a storage by its key; None where the file lacks it.
        blocks: yields the bytes at a place.
        is_little_endian: how numbers of several bytes are stored.
    """

    where: str
    entry: str
    storage_place: Callable[[str], Place | None]
    blocks: Callable[[Place], Iterator[bytes]]
    is_little_endian: bool = True


@resting_collector()
def model_facts(pickled: Pickled, stored: StoredBytes) -> ModelFacts:
    """Return what the model in a pickle consists of.

    Raises:
        FileFormatError: a tensor is damaged, or its bytes are cut off.
    """
    missing: dict[str, Risk] = {}

    def place_of(key: str) -> Place | None:
        place = stored.storage_place(key) if stored.is_little_endian else None
        if place is None and stored.is_little_endian and len(missing) < _MAX_MISSING:
            detail = f"storage {key[:_MAX_DETAIL]!r} is not in the file"
            missing.setdefault(key, Risk(RiskKind.MISSING_DATA, stored.entry, detail))
        return place

    for reference in pickled.references:
        if not isinstance(reference.id, tuple | Call | Instance):
            msg = f"{stored.where}: its pickle names something outside itself in another way than torch does"
            raise FileFormatError(msg)
    try:
        content = content_of(pickled.value, place_of)
    except FileFormatError as error:
        msg = f"{stored.where}: {error}"
        raise FileFormatError(msg) from error
    table = table_of(content, lambda tensor: numbers_of(tensor, stored.blocks))
    nodes = layers_of(table)
    not_understood = content.not_understood if stored.is_little_endian else [*content.not_understood, _BIG_ENDIAN]
    return ModelFacts(
        producer=producer_of(table, nodes),
        form=form_of(table, nodes),
        tensors=tuple(_with_their_scales(content.tensors.values())),
        nodes=nodes,
        risks=(*pickled.risks, *missing.values()),
        not_understood=tuple(not_understood),
    )


def _with_their_scales(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield tensors, and the scales and zero points that are stored with them."""
    for tensor in tensors:
        yield tensor
        if tensor.quantization is not None:
            for part in (tensor.quantization.scale, tensor.quantization.zero_point):
                if isinstance(part, Tensor):
                    yield part


def is_object(value: object) -> bool:
    """Return whether a pickled value is a whole module or another object, and not tensors and plain values.

    Example:
        >>> is_object(Instance(Name("__main__", "Net"), ())), is_object({"epoch": 3})
        (True, False)
    """
    name = value.function if isinstance(value, Call) else value.cls if isinstance(value, Instance) else value
    return isinstance(name, Name) and not is_harmless(name)
