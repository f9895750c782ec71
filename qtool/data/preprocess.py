"""From a decoded picture to the model's input: resize, crop, scale to 0..1, normalise. torchvision does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from qtool.data.augment import random_crop, random_flip, random_resized_crop
from qtool.errors import DataError

if TYPE_CHECKING:
    import torch
    from PIL import Image

    from qtool.config.augment import AugmentConfig
    from qtool.config.schema import PreprocessConfig


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """The preprocessing of one source's pictures.

    Attributes:
        settings: what is done, from the config.
        num_channels: of the pictures, 1 or 3.
        augment: random changes, None outside training.

    Raises:
        DataError: `mean` and `std` have neither one value nor one for each channel.

    Example:
        With `resize: 256, crop: 224, mean: [0.5], std: [0.5]` a photo of 512x400 pixels is resized to 328x256, and
        becomes (3, 224, 224) with values in -1..1.
    """

    settings: PreprocessConfig
    num_channels: int
    augment: AugmentConfig | None = None

    def __post_init__(self) -> None:
        num_values = len(self.settings.mean)
        if num_values not in (1, self.num_channels):
            msg = (
                f"preprocess.mean: has {num_values} values, and the pictures have {self.num_channels} channels: "
                f"give 1 value or {self.num_channels}, in mean and in std"
            )
            raise DataError(msg)

    def __call__(self, picture: Image.Image, name: str) -> torch.Tensor:
        """Return the picture as the model takes it.

        Args:
            picture: mode `L` or `RGB`.
            name: what an error calls it.

        Returns:
            float32 (channels, height, width): `(x - mean) / std` with x in 0..1.

        Raises:
            DataError: it is smaller than the crop.
        """
        picture = self._cut(picture, name)
        if self.augment is not None and self.augment.flip:
            picture = random_flip(picture)
        # normalize broadcasts a single value over the channels.
        return tv.normalize(tv.to_tensor(picture), list(self.settings.mean), list(self.settings.std))

    def _cut(self, picture: Image.Image, name: str) -> Image.Image:
        """Return the picture in the model's size: resized, and cut from its centre or from a random place."""
        settings, augment = self.settings, self.augment
        if augment is not None and augment.random_resized_crop is not None:
            return random_resized_crop(picture, augment.random_resized_crop, settings.interpolation)
        if settings.resize is not None:
            # PIL widens its filter where it shrinks a picture, which torchvision calls antialias and cannot switch off.
            picture = tv.resize(picture, [settings.resize], InterpolationMode(settings.interpolation))
        if augment is not None and augment.random_crop is not None:
            return random_crop(picture, augment.random_crop, name)
        return picture if settings.crop is None else _centre_crop(picture, settings.crop, name)


def _centre_crop(picture: Image.Image, side: int, name: str) -> Image.Image:
    width, height = picture.size
    if min(width, height) < side:
        # torchvision would add a black border without a word.
        msg = f"{name}: is {width}x{height}, too small for a crop of {side}: set preprocess.resize to at least {side}"
        raise DataError(msg)
    return tv.center_crop(picture, [side])
