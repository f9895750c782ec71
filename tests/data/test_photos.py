from pathlib import Path

import pytest
import torch
from PIL import Image

from qtool.config.schema import InputConfig, PhotosSource, PreprocessConfig
from qtool.data.photos import open_photos
from qtool.errors import DataError

INPUTS = (InputConfig(name="x", shape=("batch", 3, 8, 8)),)
HERE = Path()


@pytest.fixture
def folder(tmp_path):
    for name, shade in (("b_2.jpg", 200), ("a_11.jpg", 100), ("c_0.png", 50)):
        Image.new("RGB", (8, 8), (shade,) * 3).save(tmp_path / name)
    return tmp_path


def source(folder, **settings):
    return PhotosSource(kind="photos", folder=str(folder), **settings)


def test_pictures_are_sorted_by_name_and_labelled_by_it(folder):
    photos = open_photos(source(folder, glob="*", label=r"_(\d+)\."), INPUTS, HERE)
    samples = [photos[i] for i in range(len(photos))]
    assert [(Path(s.name).name, s.label) for s in samples] == [("a_11.jpg", 11), ("b_2.jpg", 2), ("c_0.png", 0)]
    assert [round(s.inputs[0].mean().item() * 255) for s in samples] == [100, 200, 50]
    assert samples[0].inputs[0].shape == (3, 8, 8)


def test_without_label_there_is_none_and_the_folder_is_relative_to_the_config(folder):
    photos = open_photos(source(folder.name), INPUTS, folder.parent)
    assert len(photos) == 2
    assert photos[0].label is None


def test_the_preprocessing_of_the_config_is_applied(folder):
    settings = PreprocessConfig(resize=4, mean=(0.5,), std=(0.5,))
    result = open_photos(source(folder, preprocess=settings), INPUTS, HERE)[1].inputs[0]
    assert torch.allclose(result, torch.full((3, 4, 4), 200 / 255 * 2 - 1), atol=0.01)


def test_nothing_is_decoded_before_it_is_asked_for(folder):
    (folder / "d_9.jpg").write_bytes(b"no picture")
    photos = open_photos(source(folder), INPUTS, HERE)
    assert photos[0].inputs[0].shape == (3, 8, 8)
    with pytest.raises(DataError, match=r"d_9\.jpg: does not decode"):
        photos[2]


def test_subfolders_are_searched_if_the_glob_says_so(folder):
    (folder / "sub").mkdir()
    Image.new("L", (8, 8)).save(folder / "sub" / "a_5.jpg")
    photos = open_photos(source(folder, glob="**/*.jpg", label=r"_(\d+)\."), INPUTS, HERE)
    assert photos.labels == (11, 2, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"glob": "*.webp"}, r"no file matches the glob '\*\.webp', and its files end in '\.jpg', '\.png'"),
        ({"glob": "**.jpg"}, r"glob: '\*\*\.jpg' is not a pattern"),
        ({"label": "([0-9]+)x"}, r"a_11\.jpg: the label pattern '\(\[0-9\]\+\)x' does not match this name"),
        (
            {"label": "^([a-z])"},
            r"a_11\.jpg: the label pattern .* finds 'a' there, not a class index",
        ),
        ({"label": "(z)?a"}, r"a_11\.jpg: the label pattern .* finds None"),
    ],
)
def test_wrong_settings_are_named(folder, settings, message):
    with pytest.raises(DataError, match=message):
        open_photos(source(folder, **settings), INPUTS, HERE)


def test_a_missing_folder_a_file_and_an_empty_folder_are_told_apart(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("gone", "does not exist"),
        ("file", "is not a folder"),
        ("empty", "there are no files in it"),
    ):
        with pytest.raises(DataError, match=rf"{name}: .*{message}"):
            open_photos(source(tmp_path / name), INPUTS, HERE)
