"""Opening the data source that a config section describes, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, assert_never

from qtool.config.schema import (
    DigitsSource,
    FashionMnistSource,
    ImageFolderSource,
    PhotosSource,
    PythonSource,
    SyntheticSource,
)
from qtool.data.batch import stack
from qtool.data.digits import open_digits
from qtool.data.fashion_mnist import open_fashion_mnist
from qtool.data.imagefolder import open_imagefolder
from qtool.data.photos import open_photos
from qtool.data.python_source import UserStream, open_python
from qtool.data.select import selected_indices
from qtool.data.shapes import check_sample
from qtool.data.synthetic import open_synthetic
from qtool.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qtool.config.schema import InputConfig, Source
    from qtool.data.batch import Batch, Sample


class Samples(Protocol):
    """Samples that can be fetched by number, each made when it is asked for."""

    def __len__(self) -> int:
        """Return the number of samples, at least 1."""

    def __getitem__(self, index: int) -> Sample:
        """Return one sample."""


@dataclass(frozen=True)
class Selected:
    """Some samples of a set, in the set's order."""

    samples: Samples
    indices: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of selected samples."""
        return len(self.indices)

    def __iter__(self) -> Iterator[Sample]:
        """Yield the selected samples."""
        return (self.samples[index] for index in self.indices)


@dataclass(frozen=True)
class DataSource:
    """The samples of one config section. Each pass gives the same batches, and holds one batch in memory.

    Attributes:
        samples: what is read.
        batch_size: samples in a batch; the last one may have fewer.
        inputs: the model's inputs, which every sample is checked against; empty checks nothing.

    Example:
        >>> source = open_source(config.data.evaluate, inputs=config.model.inputs, base=config.base)
        >>> len(source), [len(batch) for batch in source.batches()]
        (20, [8, 8, 4])
    """

    samples: Selected | UserStream
    batch_size: int
    inputs: tuple[InputConfig, ...]

    def __len__(self) -> int:
        """Return the number of samples. A user's stream is read once to count it."""
        return len(self.samples)

    def batches(self) -> Iterator[Batch]:
        """Yield the batches from the first on.

        Raises:
            DataError: a sample cannot be read or does not fit the model, or there is none.
        """
        waiting: list[Sample] = []
        num_samples = 0
        for sample in self.samples:
            check_sample(sample, self.inputs)
            waiting.append(sample)
            num_samples += 1
            if len(waiting) == self.batch_size:
                yield stack(waiting)
                waiting = []
        if waiting:
            yield stack(waiting)
        if num_samples == 0:
            msg = "the data source gave no samples: a factory must return them anew each time it is called"
            raise DataError(msg)


def open_source(source: Source, *, inputs: tuple[InputConfig, ...], base: Path) -> DataSource:
    """Return the data source of a config section, ready to be read; nothing is decoded yet.

    Args:
        source: `data.calibrate` or `data.evaluate`.
        inputs: the model's inputs: they give synthetic data its shapes, pictures their channels, and are what samples
            are checked against.
        base: folder that relative paths start from.

    Returns:
        The source, after `select` and `limit`.

    Raises:
        DataError: the source is not there or is empty, see the kinds; or the model takes batches of another size.
        MissingDependencyError: it needs a package that is not installed.
    """
    samples = _open(source, inputs, base)
    size = inputs[0].shape[0] if inputs else None
    if isinstance(size, int) and source.batch_size != size:
        msg = (
            f"model input {inputs[0].name!r} takes batches of {size}, and batch_size is {source.batch_size}: set "
            f"batch_size: {size}, or give the first dimension a name such as batch"
        )
        raise DataError(msg)
    if isinstance(samples, UserStream):
        return DataSource(samples, source.batch_size, inputs)
    selected = Selected(samples, selected_indices(len(samples), source.select, source.limit))
    if isinstance(size, int) and len(selected) % size:
        msg = (
            f"model input {inputs[0].name!r} takes batches of {size}, which {len(selected)} samples do not fill: set "
            f"limit: {len(selected) // size * size or size}"
        )
        raise DataError(msg)
    return DataSource(selected, source.batch_size, inputs)


def _open(source: Source, inputs: tuple[InputConfig, ...], base: Path) -> Samples | UserStream:
    match source:
        case PhotosSource():
            return open_photos(source, inputs, base)
        case ImageFolderSource():
            return open_imagefolder(source, inputs, base)
        case DigitsSource():
            return open_digits(source)
        case FashionMnistSource():
            return open_fashion_mnist(source, base)
        case SyntheticSource():
            return open_synthetic(source, inputs)
        case PythonSource():
            return open_python(source, inputs)
        case _:
            assert_never(source)
