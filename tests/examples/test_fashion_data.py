import gzip

import numpy as np
import pytest
import torch

from examples import fashion_data


def write(folder, prefix, images, labels):
    def idx(array):
        return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.astype(np.uint8).tobytes()

    folder.mkdir(exist_ok=True)
    (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    folders = (tmp_path / "fetched", tmp_path / "system")
    monkeypatch.setattr(fashion_data, "FOLDERS", folders)
    return folders


def test_what_make_data_fetched_comes_before_the_systems(folders, capsys):
    for number, folder in enumerate(folders):
        write(folder, "train", np.full((3, 28, 28), 255), np.full(3, number))
    pictures = fashion_data.load_pictures("train", limit=2)
    assert pictures.name == "Fashion-MNIST"
    assert pictures.labels.tolist() == [0, 0]
    assert pictures.images.shape == (2, 1, 28, 28)
    torch.testing.assert_close(pictures.images, torch.full((2, 1, 28, 28), (1 - 0.286) / 0.353))
    assert capsys.readouterr().err == ""


def test_the_systems_are_taken_where_nothing_was_fetched(folders):
    write(folders[1], "t10k", np.zeros((2, 28, 28)), np.array([4, 5]))
    assert fashion_data.load_pictures("test").labels.tolist() == [4, 5]


@pytest.mark.usefixtures("folders")
def test_without_either_there_are_digits_and_it_is_said(capsys):
    pictures = fashion_data.load_pictures("train", limit=5)
    assert pictures.name == "digits"
    assert pictures.images.shape == (5, 1, 8, 8)
    assert "NO FASHION-MNIST" in capsys.readouterr().err
