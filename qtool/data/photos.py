"""Pictures of one folder, labelled by their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.config.paths import resolve_path
from qtool.data.batch import Sample
from qtool.data.picture import picture_channels, read_picture
from qtool.data.preprocess import Preprocess
from qtool.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from qtool.config.schema import InputConfig, PhotosSource


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Picture files, decoded one at a time when they are asked for.

    Attributes:
        files: in the order of the samples.
        labels: one class index for each file, or None.
        preprocess: makes a tensor of a picture.
    """

    files: tuple[Path, ...]
    labels: tuple[int, ...] | None
    preprocess: Preprocess

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        """Return one picture as a sample, float32 (channels, height, width).

        Raises:
            DataError: the file does not decode, or is smaller than the crop.
        """
        name = str(self.files[index])
        picture = read_picture(self.files[index], self.preprocess.num_channels)
        label = self.labels[index] if self.labels is not None else None
        return Sample(name=name, inputs=(self.preprocess(picture, name),), label=label)


def open_photos(source: PhotosSource, inputs: tuple[InputConfig, ...], base: Path) -> Pictures:
    """Return the pictures in `source.folder` that match `source.glob`, sorted by name.

    Raises:
        DataError: there is no such folder, nothing matches, or a name does not say its class.
    """
    preprocess = Preprocess(settings=source.preprocess, augment=source.augment, num_channels=picture_channels(inputs))
    files = _matching_files(resolve_path(source.folder, base), source.glob)
    labels = None
    if source.label is not None:
        pattern = re.compile(source.label)
        labels = tuple(_label_of(file, pattern) for file in files)
    return Pictures(files=files, labels=labels, preprocess=preprocess)


def _matching_files(folder: Path, glob: str) -> tuple[Path, ...]:
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        msg = f"{folder}: {what}: set folder to where the pictures are, absolute or relative to the config file"
        raise DataError(msg)
    try:
        files = [file for file in folder.glob(glob) if file.is_file()]
    except ValueError as error:
        msg = f"glob: {glob!r} is not a pattern ({error}): write one such as '*.jpg' or '**/*.png'"
        raise DataError(msg) from error
    if not files:
        endings = sorted({file.suffix for file in folder.iterdir() if file.is_file()})
        there = f"its files end in {', '.join(map(repr, endings[:8]))}" if endings else "there are no files in it"
        msg = f"{folder}: no file matches the glob {glob!r}, and {there}: correct folder or glob"
        raise DataError(msg)
    # As text, so that the order is the same on every file system.
    return tuple(sorted(files, key=lambda file: file.as_posix()))


def _label_of(file: Path, pattern: re.Pattern[str]) -> int:
    match = pattern.search(file.name)
    if match is None:
        msg = f"{file}: the label pattern {pattern.pattern!r} does not match this name: correct label, or narrow glob"
        raise DataError(msg)
    found = match.group(1)
    if found is None or not (found.isascii() and found.isdecimal()):
        msg = f"{file}: the label pattern {pattern.pattern!r} finds {found!r} there, not a class index (0, 1 ...)"
        raise DataError(msg)
    return int(found)
