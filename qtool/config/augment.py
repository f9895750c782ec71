"""The keys of `augment`: what happens to training pictures at random."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic import field_validator as check

from qtool.config.rules import agree, require
from qtool.config.section import Section


def _check_interval(ends: tuple[float, ...]) -> tuple[float, ...]:
    require(len(ends) == 2 and 0 < ends[0] <= ends[1], "two numbers above 0, the smaller one first")
    return ends


Interval = Annotated[tuple[float, ...], AfterValidator(_check_interval)]


class RandomCropConfig(Section):
    """A square cut from a random place."""

    size: int = Field(ge=1, description="side of the square, in pixels")
    padding: int = Field(default=0, ge=0, description="black border put around the picture before, in pixels")


class RandomResizedCropConfig(Section):
    """A random part of a picture, resized to a square. The defaults are torchvision's."""

    size: int = Field(ge=1, description="side of the square, in pixels")
    scale: Interval = Field(default=(0.08, 1.0), description="smallest and largest share of the area")
    ratio: Interval = Field(default=(0.75, 4 / 3), description="smallest and largest width divided by height")


class AugmentConfig(Section):
    """What is done to a picture at random, another way in every epoch. A crop takes the place of preprocess.crop."""

    random_crop: RandomCropConfig | None = Field(
        default=None, description="a square from a random place, after preprocess.resize"
    )
    random_resized_crop: RandomResizedCropConfig | None = Field(
        default=None, description="a random part resized to a square, in place of preprocess.resize and crop"
    )
    flip: bool = Field(default=False, description="true: every other picture is mirrored left to right")

    @check("random_resized_crop")
    @classmethod
    def _check_one_crop(
        cls, crop: RandomResizedCropConfig | None, info: ValidationInfo
    ) -> RandomResizedCropConfig | None:
        agree(
            crop is None or info.data.get("random_crop") is None,
            "found random_crop and random_resized_crop; allowed: one of them",
        )
        return crop
