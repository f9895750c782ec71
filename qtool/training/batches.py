"""The batches of an epoch: every sample once, in an order and with random changes that follow from seed and epoch."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from qtool.data.batch import Batch, stack
from qtool.data.draws import drawing_from, seed_of
from qtool.data.python_source import UserStream
from qtool.data.shapes import check_sample
from qtool.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qtool.config.train import TrainConfig
    from qtool.data.batch import Sample
    from qtool.data.sources import DataSource


@dataclass(frozen=True, kw_only=True)
class TrainingBatches:
    """The shuffled batches of a source.

    What a sample draws (augmentation, code of the user's) follows from seed, epoch and its number, so batches are the
    same with any number of worker processes, and after any resume.

    Attributes:
        source: `data.train`, opened.
        settings: seed, number of workers, and whether a last batch that is not full is left out.

    Raises:
        DataError: the source is a stream, which cannot be shuffled; or no batch is left.
    """

    source: DataSource
    settings: TrainConfig

    def __post_init__(self) -> None:
        if isinstance(self.source.samples, UserStream):
            has_batches = self.source.samples.is_sequence_of_batches
            advice = "single samples, not batches" if has_batches else "a list or a torch Dataset of single samples"
            what = "gives batches" if has_batches else "is a stream"
            msg = f"data.train {what}, which cannot be shuffled: return {advice}"
            raise DataError(msg)
        if not self.num_batches:
            raise DataError(self._too_few())

    def _too_few(self) -> str:
        num_samples, batch_size = len(self.source), self.source.batch_size
        if num_samples == 1:
            return (
                "data.train has 1 sample, and a last batch of one is left out, since a batch norm has nothing to "
                "normalize over in it: give more samples, or set data.train.batch_size to 1"
            )
        return (
            f"data.train has {num_samples} samples, less than one batch of {batch_size}: lower data.train.batch_size, "
            "or set train.drop_last: false"
        )

    @property
    def num_batches(self) -> int:
        """Optimizer steps of an epoch."""
        return -(-self.num_samples // self.source.batch_size)

    @property
    def num_samples(self) -> int:
        """Samples of an epoch.

        A last batch of one sample is always left out (batch norm has nothing to normalize over in it), unless all
        batches have one.
        """
        num_samples, batch_size = len(self.source), self.source.batch_size
        rest = num_samples % batch_size
        is_left_out = rest > 0 and (self.settings.drop_last or rest == 1)
        return num_samples - rest if is_left_out else num_samples

    def of(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, counted from 1.

        Raises:
            DataError: a sample cannot be read or does not fit the model.
        """
        # RandomState's stream is promised never to change: NEP 19.
        order = np.random.RandomState(seed_of(self.settings.seed, epoch)).permutation(len(self.source)).tolist()
        size = self.source.batch_size
        batches = [order[start : start + size] for start in range(0, self.num_samples, size)]
        loader = DataLoader(
            _EpochOfBatches(self.source, self.settings.seed, epoch),
            sampler=batches,
            batch_size=None,
            collate_fn=_as_it_is,
            num_workers=self.settings.num_workers,
            generator=torch.Generator().manual_seed(seed_of(self.settings.seed, epoch)),
        )
        for batch in loader:
            if isinstance(batch, DataError):
                raise batch
            yield batch


@contextmanager
def worker_deaths_named() -> Iterator[None]:
    """Say of a worker process that dies while batches are read and used what to lower.

    torch raises at whatever line this process is then: in a handler of SIGCHLD.

    Raises:
        DataError: a worker was killed, or ended by itself.
    """
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker (pid"):  # torch/utils/data/dataloader.py, DataLoader.cpp
            raise
        first = str(error).splitlines()[0].rstrip(". ")
        msg = (
            f"a worker process of data.train died (out of memory?): {first}; lower train.num_workers or "
            "data.train.batch_size"
        )
        raise DataError(msg) from error


class _EpochOfBatches(Dataset[Batch | DataError]):
    """Makes batches from the numbers of their samples, in a worker process or in this one."""

    def __init__(self, source: DataSource, seed: int, epoch: int) -> None:
        self._source = source
        self._seed = seed
        self._epoch = epoch

    def __getitem__(self, numbers: Sequence[int]) -> Batch | DataError:
        """Return a batch. Errors are returned, since a worker that raises them adds its stack to their message."""
        try:
            return stack([self._sample(number) for number in numbers])
        except DataError as error:
            return error

    def _sample(self, number: int) -> Sample:
        selected = self._source.samples
        assert not isinstance(selected, UserStream)
        with drawing_from(self._seed, self._epoch, number):
            sample = selected.samples[selected.indices[number]]
        check_sample(sample, self._source.inputs)
        return sample


def _as_it_is(batch: Any) -> Any:  # noqa: ANN401 - torch calls it with batches or errors, and types it for lists
    return batch
