"""Fashion-MNIST from the four idx files it is published as: 60 000 and 10 000 grey pictures of 28x28, ten classes."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image

from qtool.config.paths import resolve_path
from qtool.data.batch import Sample
from qtool.data.preprocess import Preprocess
from qtool.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.config.schema import FashionMnistSource

PREFIXES = {"train": "train", "test": "t10k"}
"""What the file names of a split begin with."""

MAX_BYTES = 1 << 28
"""No idx file is read further than this; the largest real one has 47 MB (chosen: five times that)."""


@dataclass(frozen=True, kw_only=True)
class FashionMnist:
    """One split of Fashion-MNIST, held as bytes (47 MB for train).

    Attributes:
        split: its name.
        images: uint8 (samples, 28, 28).
        labels: class indices (samples,).
        preprocess: makes a tensor of a picture.
    """

    split: str
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    preprocess: Preprocess

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        """Return one picture as a sample, float32 (1, 28, 28) before any resize or crop."""
        name = f"fashion_mnist {self.split}[{index}]"
        picture = self.preprocess(Image.fromarray(self.images[index]), name)
        return Sample(name=name, inputs=(picture,), label=int(self.labels[index]))


def open_fashion_mnist(source: FashionMnistSource, base: Path) -> FashionMnist:
    """Return one split.

    `source.folder` holds `train-images-idx3-ubyte.gz`, `train-labels-idx1-ubyte.gz` and the same two with `t10k`.
    Debian's package dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist. Nothing is downloaded.

    Raises:
        DataError: a file is missing or damaged, or the two of a split do not belong together.
    """
    folder = resolve_path(source.folder, base)
    prefix = PREFIXES[source.split]
    images = read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", num_dimensions=3)
    labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", num_dimensions=1)
    if len(images) != len(labels) or len(images) == 0:
        msg = f"{folder}: {len(images)} {source.split} pictures and {len(labels)} labels do not belong together"
        raise DataError(msg)
    preprocess = Preprocess(settings=source.preprocess, augment=source.augment, num_channels=1)
    return FashionMnist(split=source.split, images=images, labels=labels, preprocess=preprocess)


def read_idx(file: Path, *, num_dimensions: int) -> npt.NDArray[np.uint8]:
    """Return the array of one gzipped idx file of unsigned bytes.

    Args:
        file: an idx file: two zero bytes, the type (8: unsigned byte), the number of dimensions, their sizes as
            big-endian int32, the bytes.
        num_dimensions: how many dimensions it must have.

    Raises:
        DataError: the file is missing, not gzip, cut off, or not such an array.

    Source: "THE IDX FILE FORMAT" on the MNIST page, http://yann.lecun.com/exdb/mnist/

    Example:
        The bytes 00 00 08 01 00 00 00 03 07 08 09, gzipped, are `array([7, 8, 9], dtype=uint8)`.
    """
    try:
        with gzip.open(file) as stream:
            content = stream.read(MAX_BYTES)
    except FileNotFoundError as error:
        msg = f"{file}: does not exist: set folder to where it is, or install Debian's package dataset-fashion-mnist"
        raise DataError(msg) from error
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{file}: is not a whole gzip file ({error}): get it again"
        raise DataError(msg) from error
    header = 4 + 4 * num_dimensions
    shape = tuple(np.frombuffer(content[4:header], dtype=">i4").tolist()) if len(content) >= header else ()
    wanted = header + int(np.prod(shape, dtype=np.int64))
    if content[:4] != bytes([0, 0, 8, num_dimensions]) or len(content) != wanted or min(shape) < 0:
        msg = f"{file}: is not an idx file of bytes with {num_dimensions} dimensions, or is cut off: get it again"
        raise DataError(msg)
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
