import pytest
import torch

from qtool.config.schema import InputConfig
from qtool.data.batch import Sample
from qtool.data.shapes import check_sample, torch_dtype
from qtool.errors import DataError

IMAGE = InputConfig(name="image", shape=("batch", 3, "side", "side"))
IDS = InputConfig(name="ids", shape=("batch", "length"), dtype="int64")


def sample(*tensors):
    return Sample(name="a.jpg", inputs=tensors)


def test_what_fits_passes():
    check_sample(sample(torch.zeros(3, 5, 5)), (IMAGE,))
    check_sample(sample(torch.zeros(3, 5, 5), torch.zeros(7, dtype=torch.int64)), (IMAGE, IDS))
    check_sample(sample(torch.zeros(1)), ())


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((torch.zeros(1, 5, 5),), r"shape \[1, 5, 5\], but model input 'image' takes \[3, side, side\].*resize"),
        ((torch.zeros(3, 5),), r"shape \[3, 5\]"),
        ((torch.zeros(3, 5, 6),), r"shape \[3, 5, 6\]"),
        ((torch.zeros(3, 5, 5, dtype=torch.float64),), "dtype float64, but model input 'image' takes float32"),
        ((torch.zeros(3, 5, 5), torch.zeros(1)), "has 2 tensors, and the model takes 1: 'image'"),
    ],
)
def test_what_does_not_fit_is_named(tensors, message):
    with pytest.raises(DataError, match=f"a.jpg has {message}" if not message.startswith("has") else message):
        check_sample(sample(*tensors), (IMAGE,))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"])
def test_every_dtype_of_the_config_is_one_of_torch(name):
    dtype = torch_dtype(InputConfig(name="x", shape=("batch",), dtype=name))
    assert str(dtype) == f"torch.{name}"
