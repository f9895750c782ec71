import pytest
import torch

from qtool.config.schema import InputConfig
from qtool.config.train import TrainConfig
from qtool.data.batch import Sample
from qtool.data.python_source import UserStream
from qtool.data.sources import DataSource
from qtool.errors import DataError
from qtool.training.batches import TrainingBatches
from tests.training.stand_in import INPUTS, NoisyPoints, Points, source_of


def batches_of(count=10, batch_size=4, samples=Points, **settings):
    source = source_of(samples(count), batch_size)
    return TrainingBatches(source=source, settings=TrainConfig(epochs=1, **settings))


def numbers(batches, epoch):
    return [[int(n) for n in batch.inputs[0][:, 0]] for batch in batches.of(epoch)]


def flat(lists):
    return [number for each in lists for number in each]


def test_every_epoch_has_every_sample_once_in_another_order():
    batches = batches_of()
    first, second = numbers(batches, 1), numbers(batches, 2)
    assert [len(batch) for batch in first] == [4, 4, 2]
    assert batches.num_batches == 3
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(10))
    assert first != second
    assert flat(first) != sorted(flat(first))


def test_the_order_follows_from_seed_and_epoch_alone():
    torch.manual_seed(1)
    first = numbers(batches_of(seed=3), 5)
    torch.manual_seed(2)
    assert numbers(batches_of(seed=3), 5) == first
    assert numbers(batches_of(seed=4), 5) != first


def test_labels_stay_with_their_samples():
    for batch in batches_of().of(1):
        assert torch.equal(batch.labels, batch.inputs[0][:, 1:].argmax(dim=1))


@pytest.mark.parametrize(
    ("count", "batch_size", "drop_last", "sizes"),
    [
        (10, 4, False, [4, 4, 2]),
        (10, 4, True, [4, 4]),
        (9, 4, False, [4, 4]),  # batch norm has nothing to normalize over in one sample
        (8, 4, True, [4, 4]),
        (3, 1, False, [1, 1, 1]),
        (3, 4, False, [3]),
    ],
)
def test_the_last_batch(count, batch_size, drop_last, sizes):
    batches = batches_of(count, batch_size, drop_last=drop_last)
    assert [len(batch) for batch in batches.of(1)] == sizes
    assert (batches.num_batches, batches.num_samples) == (len(sizes), sum(sizes))


@pytest.mark.parametrize(
    ("count", "drop_last", "message"),
    [
        (1, False, r"data\.train has 1 sample, and a last batch of one is left out.*: give more samples"),
        (
            3,
            True,
            r"3 samples, less than one batch of 4: lower data\.train\.batch_size, or set train\.drop_last: false$",
        ),
    ],
)
def test_no_batch_at_all_is_an_error(count, drop_last, message):
    with pytest.raises(DataError, match=message):
        batches_of(count, drop_last=drop_last)


def test_what_a_sample_draws_depends_on_no_worker_and_on_nothing_drawn_before():
    alone = list(batches_of(samples=NoisyPoints).of(2))
    torch.manual_seed(77)
    state = torch.get_rng_state()
    with_workers = list(batches_of(samples=NoisyPoints, num_workers=2).of(2))
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(alone, with_workers, strict=True):
        assert torch.equal(one.inputs[0], other.inputs[0])
        assert torch.equal(one.labels, other.labels)
    others = list(batches_of(samples=NoisyPoints).of(3))
    by_number = {int(row[0]): row for batch in others for row in batch.inputs[0]}
    assert all(not torch.equal(row, by_number[int(row[0])]) for batch in alone for row in batch.inputs[0])


class Broken(Points):
    def __getitem__(self, index):
        if index == 5:
            message = "pictures/5.jpg: does not decode"
            raise DataError(message)
        return super().__getitem__(index)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_sample_that_cannot_be_read_is_named_the_same_with_workers(num_workers):
    with pytest.raises(DataError) as caught:
        list(batches_of(samples=Broken, num_workers=num_workers).of(1))
    assert str(caught.value) == "pictures/5.jpg: does not decode"


def test_samples_that_do_not_fit_the_model_are_refused():
    source = source_of(Points(4), inputs=(InputConfig(name="x", shape=("batch", 5)),))
    with pytest.raises(DataError, match=r"has shape \[4\], but model input 'x' takes \[5\]"):
        list(TrainingBatches(source=source, settings=TrainConfig(epochs=1)).of(1))


def test_a_stream_cannot_be_shuffled():
    stream = UserStream(None, lambda: iter([Sample(name="a", inputs=(torch.zeros(4),), label=0)]), INPUTS, "a:b", None)
    with pytest.raises(DataError, match="a stream, which cannot be shuffled: return a list or a torch Dataset"):
        TrainingBatches(source=DataSource(stream, 4, INPUTS), settings=TrainConfig(epochs=1))
