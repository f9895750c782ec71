import pytest
import torch
from PIL import Image
from torchvision import transforms

from qtool.config.schema import PreprocessConfig
from qtool.data.preprocess import Preprocess
from qtool.errors import DataError


def gradient(width, height):
    """A picture whose values differ everywhere, with detail that a filter without antialias would lose."""
    red, green = Image.linear_gradient("L").resize((width, height)), Image.radial_gradient("L").resize((width, height))
    stripes = Image.effect_noise((width, height), 60)
    return Image.merge("RGB", (red, green, stripes))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
def test_it_is_what_torchvision_does(interpolation):
    settings = PreprocessConfig(
        resize=40, interpolation=interpolation, crop=32, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)
    )
    expected = transforms.Compose(
        [
            transforms.Resize(40, transforms.InterpolationMode(interpolation)),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            transforms.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)),
        ]
    )
    picture = gradient(100, 73)
    result = Preprocess(settings=settings, num_channels=3)(picture, "p")
    assert result.dtype == torch.float32
    assert result.shape == (3, 32, 32)
    assert torch.equal(result, expected(picture))


def test_resize_is_that_of_pil_with_its_wide_filter():
    picture = gradient(100, 100)
    result = Preprocess(settings=PreprocessConfig(resize=20, interpolation="bicubic"), num_channels=3)(picture, "p")
    assert torch.equal(result, transforms.functional.to_tensor(picture.resize((20, 20), Image.Resampling.BICUBIC)))


def test_one_mean_stands_for_all_channels_and_none_of_it_leaves_0_to_1():
    white = Image.new("RGB", (2, 2), "white")
    settings = PreprocessConfig(mean=(0.5,), std=(0.25,))
    assert torch.equal(Preprocess(settings=settings, num_channels=3)(white, "p"), torch.full((3, 2, 2), 2.0))
    assert torch.equal(Preprocess(settings=PreprocessConfig(), num_channels=3)(white, "p"), torch.ones(3, 2, 2))


def test_a_grey_picture_has_one_channel():
    grey = Image.new("L", (2, 3), 51)
    result = Preprocess(settings=PreprocessConfig(mean=(0.2,)), num_channels=1)(grey, "p")
    assert result.shape == (1, 3, 2)
    assert torch.allclose(result, torch.zeros(1, 3, 2), atol=1e-7)


def test_a_crop_larger_than_the_picture_is_refused_not_padded():
    with pytest.raises(DataError, match=r"p\.png: is 9x20, too small for a crop of 10: set preprocess\.resize"):
        Preprocess(settings=PreprocessConfig(crop=10), num_channels=3)(Image.new("RGB", (9, 20)), "p.png")


def test_mean_must_fit_the_channels():
    settings = PreprocessConfig(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    with pytest.raises(DataError, match=r"preprocess\.mean: has 3 values, and the pictures have 1 channels"):
        Preprocess(settings=settings, num_channels=1)
