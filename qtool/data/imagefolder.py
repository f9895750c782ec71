"""Pictures in one folder for each class, the layout of torchvision's ImageFolder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchvision.datasets import ImageFolder

from qtool.config.paths import resolve_path
from qtool.data.photos import Pictures
from qtool.data.picture import picture_channels
from qtool.data.preprocess import Preprocess
from qtool.errors import DataError

if TYPE_CHECKING:
    from qtool.config.schema import ImageFolderSource, InputConfig


def open_imagefolder(source: ImageFolderSource, inputs: tuple[InputConfig, ...], base: Path) -> Pictures:
    """Return the pictures under `source.folder`; its subfolders are the classes, numbered from 0 in sorted order.

    torchvision finds them: class by class, each class's pictures sorted, at any depth, known by their endings.

    Raises:
        DataError: there is no such folder, no class in it, or a class without pictures.
    """
    preprocess = Preprocess(settings=source.preprocess, augment=source.augment, num_channels=picture_channels(inputs))
    folder = resolve_path(source.folder, base)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        msg = f"{folder}: {what}: set folder to one that holds a subfolder of pictures for each class"
        raise DataError(msg)
    try:
        found = ImageFolder(str(folder))
    except FileNotFoundError as error:
        msg = f"{folder}: a subfolder of pictures for each class is needed ({error})"
        raise DataError(msg) from error
    return Pictures(
        files=tuple(Path(file) for file, _ in found.samples),
        labels=tuple(label for _, label in found.samples),
        preprocess=preprocess,
    )
