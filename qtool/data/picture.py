"""Reading one picture file as PIL reads it, with errors that name the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

from qtool.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.config.schema import InputConfig

MODES = {1: "L", 3: "RGB"}
"""PIL's mode for a number of channels: grey or colour, 8 bits each."""


def read_picture(file: Path, num_channels: int) -> Image.Image:
    """Return the decoded picture in mode `L` (1 channel) or `RGB` (3 channels).

    As in torchvision, an alpha channel is dropped, the first frame of an animation is taken, and a rotation noted in
    EXIF is not applied.

    Raises:
        DataError: the file does not decode, or holds more than 8 bits a channel, which Pillow would cut off at 255.
    """
    try:
        with Image.open(file) as picture:
            depth = picture.mode
            converted = picture.convert(MODES[num_channels])
    except Exception as error:
        # Each of Pillow's decoders raises what it likes on a damaged file: OSError, SyntaxError for PNG, RuntimeError
        # for AVIF, NotImplementedError for DDS.
        reason = str(error) or type(error).__name__
        msg = f"{file}: does not decode as a picture ({reason}): replace or remove it"
        raise DataError(msg) from error
    if depth.startswith(("I", "F")):
        msg = f"{file}: has more than 8 bits a channel (mode {depth!r}): save it with 8, or use a source of kind python"
        raise DataError(msg)
    return converted


def picture_channels(inputs: tuple[InputConfig, ...]) -> int:
    """Return how many channels the pictures of a model have, 1 or 3; 3 where the inputs are not known.

    Raises:
        DataError: the model takes something other than one picture.

    Example:
        >>> picture_channels((InputConfig(name="x", shape=("batch", 1, 28, 28)),))
        1
    """
    if not inputs:
        return 3
    shape = inputs[0].shape
    if len(inputs) == 1 and inputs[0].dtype == "float32" and len(shape) == 4 and shape[1] in MODES:
        return int(shape[1])
    found = ", ".join(f"{i.name!r} is {list(i.shape)} of {i.dtype}" for i in inputs)
    msg = (
        f"model.inputs: {found}: pictures go into one input [batch, channels, height, width] of float32 with 1 or 3 "
        "channels. Use a source of kind python for other inputs"
    )
    raise DataError(msg)
