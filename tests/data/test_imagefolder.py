from pathlib import Path

import pytest
from PIL import Image

from qtool.config.schema import ImageFolderSource, InputConfig
from qtool.data.imagefolder import open_imagefolder
from qtool.errors import DataError

INPUTS = (InputConfig(name="x", shape=("batch", 1, 6, 6)),)


def opened(folder):
    return open_imagefolder(ImageFolderSource(kind="imagefolder", folder=str(folder)), INPUTS, Path())


def test_classes_are_the_sorted_subfolders(tmp_path):
    for name in ("dog/b.png", "dog/a.jpg", "cat/z.png", "dog/more/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 6)).save(tmp_path / name)
    (tmp_path / "dog" / "notes.txt").touch()
    pictures = opened(tmp_path)
    samples = [pictures[i] for i in range(len(pictures))]
    assert [(Path(s.name).name, s.label) for s in samples] == [("z.png", 0), ("a.jpg", 1), ("b.png", 1), ("c.png", 1)]
    assert samples[0].inputs[0].shape == (1, 6, 6)


def test_what_is_no_such_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="gone: does not exist: set folder"):
        opened(tmp_path / "gone")
    with pytest.raises(DataError, match="a subfolder of pictures for each class is needed"):
        opened(tmp_path)
    (tmp_path / "empty_class").mkdir()
    with pytest.raises(DataError, match="empty_class"):
        opened(tmp_path)
