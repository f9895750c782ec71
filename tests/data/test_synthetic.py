import pytest
import torch

from qtool.config.schema import InputConfig, SyntheticSource
from qtool.data.synthetic import NAMED_SIZE, open_synthetic
from qtool.errors import DataError

IMAGE = InputConfig(name="x", shape=("batch", 3, 16, 16))


def opened(inputs=(IMAGE,), **settings):
    return open_synthetic(SyntheticSource(kind="synthetic", **{"count": 50, **settings}), inputs)


def test_the_same_seed_gives_the_same_samples_in_any_order():
    first, second = opened(seed=3), opened(seed=3)
    backwards = [second[i].inputs[0] for i in reversed(range(50))]
    assert all(torch.equal(first[i].inputs[0], backwards[49 - i]) for i in range(50))
    torch.manual_seed(1)
    assert torch.equal(opened(seed=3)[7].inputs[0], backwards[42])


def test_seeds_and_indices_give_different_samples():
    values = [opened(seed=seed)[index].inputs[0][0, 0, 0].item() for seed in (0, 1) for index in range(50)]
    assert len(set(values)) == 100


def test_distributions_are_what_they_say():
    normal = torch.stack([s.inputs[0] for s in map(opened().__getitem__, range(50))])
    assert abs(normal.mean().item()) < 0.02
    assert abs(normal.std().item() - 1) < 0.02
    uniform = torch.stack([s.inputs[0] for s in map(opened(distribution="uniform").__getitem__, range(50))])
    assert (uniform.min().item() >= 0, uniform.max().item() <= 1) == (True, True)
    assert abs(uniform.mean().item() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("dtype", "values"),
    [("int64", {0, 1}), ("int32", {0, 1}), ("bool", {False, True}), ("uint8", set(range(256)))],
)
def test_integers_stay_where_every_model_takes_them(dtype, values):
    synthetic = opened((InputConfig(name="ids", shape=("batch", 64), dtype=dtype),), count=40)
    drawn = [synthetic[i].inputs[0] for i in range(40)]
    assert all(str(d.dtype) == f"torch.{dtype}" for d in drawn)
    assert {v for d in drawn for v in d.tolist()} == values


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_floats_come_in_the_dtype_of_the_input(dtype):
    assert str(opened((InputConfig(name="x", shape=("b", 4), dtype=dtype),))[0].inputs[0].dtype) == f"torch.{dtype}"


def test_named_dimensions_have_one_size_and_there_are_no_labels():
    inputs = (IMAGE, InputConfig(name="text", shape=("batch", "length")))
    sample = opened(inputs)[0]
    assert [tuple(t.shape) for t in sample.inputs] == [(3, 16, 16), (NAMED_SIZE,)]
    assert sample.label is None


def test_without_a_model_there_is_no_shape():
    with pytest.raises(DataError, match=r"takes its shapes from model\.inputs"):
        opened(())
