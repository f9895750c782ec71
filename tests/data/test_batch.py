import pytest
import torch

from qtool.data.batch import Batch, Sample, stack
from qtool.errors import DataError


def test_samples_are_stacked_in_order_with_int64_labels():
    inputs = {i: (torch.full((2, 3), float(i)), torch.tensor(i)) for i in (4, 1)}
    batch = stack([Sample(name=str(i), inputs=inputs[i], label=i) for i in (4, 1)])
    assert [tuple(t.shape) for t in batch.inputs] == [(2, 2, 3), (2,)]
    assert batch.inputs[1].tolist() == [4, 1]
    assert batch.labels is not None
    assert batch.labels.dtype == torch.int64
    assert batch.labels.tolist() == [4, 1]
    assert len(batch) == 2


def test_a_batch_has_labels_only_if_every_sample_has_one():
    x = (torch.zeros(1),)
    assert stack([Sample(name="a", inputs=x, label=0), Sample(name="b", inputs=x)]).labels is None


def test_samples_of_different_shapes_are_named():
    samples = [Sample(name=n, inputs=(torch.zeros(1, s, s),)) for n, s in (("a.jpg", 3), ("b.jpg", 4))]
    with pytest.raises(DataError, match=r"b\.jpg has shape \(1, 4, 4\) and a\.jpg has \(1, 3, 3\).*batch_size: 1"):
        stack(samples)


def test_a_batch_cannot_be_changed():
    with pytest.raises(AttributeError):
        Batch(inputs=(torch.zeros(1),), labels=None).labels = torch.zeros(1)
