"""Random changes of a training picture: a crop from a random place, a mirror image.

torchvision does them, and draws from torch's global generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvision import transforms
from torchvision.transforms import InterpolationMode

from qtool.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

    from qtool.config.augment import RandomCropConfig, RandomResizedCropConfig


def random_resized_crop(picture: Image.Image, settings: RandomResizedCropConfig, interpolation: str) -> Image.Image:
    """Return a random part of a picture, resized to a square of `settings.size`."""
    filtering = InterpolationMode(interpolation)
    cut: Image.Image = transforms.RandomResizedCrop(settings.size, settings.scale, settings.ratio, filtering)(picture)
    return cut


def random_crop(picture: Image.Image, settings: RandomCropConfig, name: str) -> Image.Image:
    """Return a square from a random place of a picture, which may have got a black border before.

    Args:
        picture: mode `L` or `RGB`.
        settings: side of the square, and width of the border.
        name: what an error calls the picture.

    Raises:
        DataError: the picture is smaller than the square.

    Example:
        With `{size: 28, padding: 4}` a picture of 28x28 is moved by up to 4 pixels each way.
    """
    width, height = picture.size
    if min(width, height) + 2 * settings.padding < settings.size:
        msg = (
            f"{name}: is {width}x{height}, too small for a random_crop of {settings.size} with padding "
            f"{settings.padding}: set preprocess.resize, or more padding"
        )
        raise DataError(msg)
    cut: Image.Image = transforms.RandomCrop(settings.size, padding=settings.padding)(picture)
    return cut


def random_flip(picture: Image.Image) -> Image.Image:
    """Return the picture, or every other time its mirror image, left and right exchanged."""
    flipped: Image.Image = transforms.RandomHorizontalFlip()(picture)
    return flipped
