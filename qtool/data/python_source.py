"""Samples from the user's own Python: `factory: "module:attribute"` returns anything that can be iterated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from qtool.data.python_item import take_apart
from qtool.data.user_code import import_attribute, user_code
from qtool.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.config.schema import InputConfig, PythonSource
    from qtool.data.batch import Sample


class UserSequence:
    """A list, tensor or torch Dataset of samples, fetched one at a time by index."""

    def __init__(self, items: Any, inputs: tuple[InputConfig, ...], name: str) -> None:  # noqa: ANN401
        self._items = items
        self._inputs = inputs
        self._name = name

    def __len__(self) -> int:
        """Return the number of samples."""
        with user_code(self._name, "len()"):
            return len(self._items)

    def __getitem__(self, index: int) -> Sample:
        """Return one sample.

        Raises:
            DataError: the user's code raised, or the item is no sample.
        """
        name = f"{self._name} item {index}"
        with user_code(self._name, f"item {index}"):
            item = self._items[index]
        parts = take_apart(item, self._inputs, name)
        if parts.is_batch:
            msg = f"{name} is a batch, but item 0 is one sample: give samples only, or batches only"
            raise DataError(msg)
        return next(parts.samples())


class UserStream:
    """Anything else: a generator, a DataLoader, a list of batches. Read from its front on every pass."""

    def __init__(
        self,
        items: Any,  # noqa: ANN401
        factory: Callable[[], Any],
        inputs: tuple[InputConfig, ...],
        name: str,
        limit: int | None,
    ) -> None:
        self._items = items
        self._factory = factory
        self._inputs = inputs
        self._name = name
        self._limit = limit

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples, at most `limit`.

        Raises:
            DataError: the user's code raised, or an item is neither sample nor batch.
        """
        return islice(self._samples(), self._limit)

    def __len__(self) -> int:
        """Return the number of samples, found by reading the stream once to its end or limit."""
        return self._num_samples

    @cached_property
    def _num_samples(self) -> int:
        return sum(1 for _ in self)

    @property
    def is_sequence_of_batches(self) -> bool:
        """Whether it is no stream to the user, who gave a list or Dataset whose items are batches."""
        return hasattr(self._items, "__getitem__") and hasattr(self._items, "__len__")

    def _samples(self) -> Iterator[Sample]:
        iterator = self._from_the_front()
        end = object()
        number = 0
        while True:
            with user_code(self._name, f"item {number}"):
                item = next(iterator, end)
            if item is end:
                return
            yield from take_apart(item, self._inputs, f"{self._name} item {number}").samples()
            number += 1

    def _from_the_front(self) -> Iterator[Any]:
        """Return a fresh iterator. A generator can be read only once, so the factory is asked for another."""
        if self._items is None:
            self._items = self._factory()
        with user_code(self._name, "iter()"):
            iterator: Iterator[Any] = iter(self._items)
        if iterator is self._items:
            self._items = None
        return iterator


def open_python(source: PythonSource, inputs: tuple[InputConfig, ...]) -> UserSequence | UserStream:
    """Return the samples that `source.factory(**source.kwargs)` gives.

    Samples with a length and an index can be drawn from with `select`; streams cannot. The same samples must come in
    the same order each time: shuffling is left to `select`.

    Raises:
        DataError: the config has no model inputs to tell samples from batches by, the factory is not there or raises,
            or what it returns cannot be iterated, is empty, or is a stream while `select` is set.
    """
    name = source.factory
    if not inputs:
        msg = f"{name}: a source of kind python needs model.inputs, to tell samples from batches"
        raise DataError(msg)
    attribute = import_attribute(name)
    if not callable(attribute):
        msg = f"{name}: is of type {type(attribute).__name__}, which cannot be called: name a function that returns it"
        raise DataError(msg)

    def factory() -> Any:  # noqa: ANN401
        with user_code(name, "calling it"):
            return attribute(**source.kwargs)

    items = factory()
    can_index = hasattr(items, "__getitem__")
    if isinstance(items, Mapping) or not (hasattr(items, "__iter__") or can_index):
        msg = f"{name}: returned {type(items).__name__}: return a list, tensor, Dataset, DataLoader or generator"
        raise DataError(msg)
    if can_index and hasattr(items, "__len__") and not _holds_batches(items, inputs, name):
        return UserSequence(items, inputs, name)
    stream = UserStream(items, factory, inputs, name, source.limit)
    if source.select is not None:
        what = "of batches" if stream.is_sequence_of_batches else "to read through"
        msg = f"{name}: select needs a list or Dataset of samples, and this is a {type(items).__name__} {what}"
        raise DataError(msg)
    return stream


def _holds_batches(items: Any, inputs: tuple[InputConfig, ...], name: str) -> bool:  # noqa: ANN401
    """Return whether the first item of a sequence is a batch."""
    with user_code(name, "item 0"):
        if len(items) == 0:
            msg = f"{name}: returned an empty {type(items).__name__}: it must hold at least one sample"
            raise DataError(msg)
        first = items[0]
    return take_apart(first, inputs, f"{name} item 0").is_batch
