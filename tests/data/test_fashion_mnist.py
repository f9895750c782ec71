import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.config.augment import AugmentConfig, RandomResizedCropConfig
from qtool.config.schema import FashionMnistSource, PreprocessConfig
from qtool.data.fashion_mnist import open_fashion_mnist, read_idx
from qtool.errors import DataError


def idx(array):
    sizes = np.array(array.shape, dtype=">i4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write(folder, prefix, images, labels):
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


@pytest.fixture
def folder(tmp_path):
    images = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256
    write(tmp_path, "train", images, np.array([9, 0, 3]))
    write(tmp_path, "t10k", images[:1], np.array([5]))
    return tmp_path


def opened(folder, split="train", **settings):
    source = FashionMnistSource(kind="fashion_mnist", folder=str(folder), split=split, **settings)
    return open_fashion_mnist(source, Path())


def test_a_split_is_read_from_its_two_files(folder):
    train = opened(folder)
    assert [train[i].label for i in range(len(train))] == [9, 0, 3]
    expected = (torch.arange(28 * 28) % 256).reshape(1, 28, 28) / 255
    assert torch.equal(train[0].inputs[0], expected)
    assert [opened(folder, "test")[0].label] == [5]


def test_preprocessing_applies(folder):
    sample = opened(folder, preprocess=PreprocessConfig(resize=32, mean=(0.5,), std=(0.5,)))[0]
    assert sample.inputs[0].shape == (1, 32, 32)
    assert sample.inputs[0].min().item() < -0.9


def test_augmentation_applies(folder):
    augment = AugmentConfig(random_resized_crop=RandomResizedCropConfig(size=5))
    assert opened(folder, augment=augment)[0].inputs[0].shape == (1, 5, 5)


def test_a_missing_file_says_where_it_comes_from(tmp_path):
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: does not exist: .*dataset-fashion-mnist"):
        opened(tmp_path)


def test_files_that_do_not_belong_together_are_refused(folder):
    write(folder, "train", np.zeros((2, 28, 28)), np.zeros(3))
    with pytest.raises(DataError, match="2 train pictures and 3 labels do not belong together"):
        opened(folder)


def test_an_empty_split_is_refused(folder):
    write(folder, "train", np.zeros((0, 28, 28)), np.zeros(0))
    with pytest.raises(DataError, match="0 train pictures and 0 labels"):
        opened(folder)


@pytest.mark.parametrize("keep", [1, 3, 12, 300])
def test_a_file_that_is_cut_off_is_refused(folder, keep):
    file = folder / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: is not a whole gzip file"):
        opened(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08",
        idx(np.zeros((2, 3)))[:-1],
        idx(np.zeros((2, 3))) + b"\x00",
        idx(np.zeros(6)),
        b"\x00\x00\x0d" + idx(np.zeros((2, 3)))[3:],
        bytes([0, 0, 8, 2]) + b"\xff\xff\xff\xff" * 2 + b"\x00",
        bytes([0, 0, 8, 2]) + b"\x7f\xff\xff\xff" * 2,
    ],
)
def test_what_is_not_such_an_array_is_refused(tmp_path, content):
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=r"a\.gz: is not an idx file of bytes with 2 dimensions, or is cut off"):
        read_idx(file, num_dimensions=2)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_every_array_comes_back(tmp_path_factory, shape, random):
    array = np.array([random.randrange(256) for _ in range(int(np.prod(shape)))], dtype=np.uint8).reshape(shape)
    file = tmp_path_factory.mktemp("idx") / "a.gz"
    file.write_bytes(gzip.compress(idx(array)))
    read = read_idx(file, num_dimensions=len(shape))
    assert read.dtype == np.uint8
    assert np.array_equal(read, array)
