from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from qtool.config.schema import InputConfig
from qtool.data.picture import picture_channels, read_picture
from qtool.errors import DataError


def saved(path, picture):
    picture.save(path)
    return path


def test_a_picture_comes_in_the_mode_the_model_takes(tmp_path):
    file = saved(tmp_path / "a.png", Image.new("RGB", (4, 3), (255, 0, 0)))
    assert read_picture(file, 3).getpixel((0, 0)) == (255, 0, 0)
    assert read_picture(file, 1).mode == "L"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_other_8_bit_modes_become_rgb(tmp_path, mode):
    assert read_picture(saved(tmp_path / "a.png", Image.new(mode, (4, 3))), 3).mode == "RGB"


def whole_png(tmp_path):
    return saved(tmp_path / "whole.png", Image.effect_noise((64, 64), 50)).read_bytes()


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "middle"])
def test_what_does_not_decode_is_named_with_what_to_do(tmp_path, damage):
    whole = whole_png(tmp_path)
    content = {
        "empty": b"",
        "text": b"<html>404</html>",
        "cut": whole[: len(whole) // 2],
        "middle": whole[:60] + bytes(200) + whole[260:],
    }[damage]
    file = tmp_path / "bad.jpg"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.jpg: does not decode as a picture \(.+\): replace or remove it"):
        read_picture(file, 3)


@pytest.mark.filterwarnings("ignore:.*:UserWarning:PIL")  # Pillow's word on what it can still read
def test_damage_anywhere_is_a_picture_or_a_data_error(tmp_path):
    generator = np.random.default_rng(0)
    file = tmp_path / "bad"
    for suffix in ("png", "jpeg", "gif", "avif", "dds"):
        Image.effect_noise((16, 16), 50).convert("RGB").save(file, suffix)
        whole = bytearray(file.read_bytes())
        for _ in range(60):
            damaged = bytearray(whole)
            for position in generator.integers(0, len(whole), 4):
                damaged[position] = generator.integers(0, 256)
            file.write_bytes(damaged)
            with suppress(DataError):
                assert read_picture(file, 3).mode == "RGB"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png: does not decode.*No such file"):
        read_picture(tmp_path / "gone.png", 3)


def test_16_bits_a_channel_are_refused_not_cut_off(tmp_path):
    file = saved(tmp_path / "deep.png", Image.fromarray(np.full((4, 4), 4000, dtype=np.uint16)))
    with pytest.raises(DataError, match=r"deep\.png: has more than 8 bits a channel \(mode 'I;16'\)"):
        read_picture(file, 1)


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    file = saved(tmp_path / "bomb.png", Image.new("L", (30, 30)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"bomb\.png: does not decode.*bomb"):
        read_picture(file, 3)


def test_channels_are_those_of_the_model_input():
    assert picture_channels((InputConfig(name="x", shape=("n", 1, 8, 8)),)) == 1
    assert picture_channels((InputConfig(name="x", shape=("n", 3, "h", "w")),)) == 3
    assert picture_channels(()) == 3


@pytest.mark.parametrize(
    "inputs",
    [
        (InputConfig(name="x", shape=("n", 4, 8, 8)),),
        (InputConfig(name="x", shape=("n", "c", 8, 8)),),
        (InputConfig(name="x", shape=("n", 3, 8)),),
        (InputConfig(name="x", shape=("n", 3, 8, 8), dtype="uint8"),),
        (InputConfig(name="x", shape=("n", 3, 8, 8)), InputConfig(name="y", shape=("n", 3))),
    ],
)
def test_a_model_that_takes_no_picture_is_refused(inputs):
    with pytest.raises(DataError, match=r"model\.inputs: 'x' is \['n'.*kind python"):
        picture_channels(inputs)
