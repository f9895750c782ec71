"""Whether a sample is what the model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qtool.errors import DataError

if TYPE_CHECKING:
    from qtool.config.schema import InputConfig
    from qtool.data.batch import Sample


def check_sample(sample: Sample, inputs: tuple[InputConfig, ...]) -> None:
    """Raise DataError if the sample does not fit the model's inputs; without `inputs` anything fits.

    Dimension 0 of an input is the batch, so a sample has all but that one. A dimension with a name fits any
    size, the same one wherever the name stands.

    Example:
        For the input `x: [batch, 3, 224, 224]` a sample of shape (3, 512, 512) raises
        "a.jpg has shape [3, 512, 512], but model input 'x' takes [3, 224, 224] after the batch: ...".
    """
    if not inputs:
        return
    if len(sample.inputs) != len(inputs):
        names = ", ".join(repr(i.name) for i in inputs)
        msg = f"{sample.name} has {len(sample.inputs)} tensors, and the model takes {len(inputs)}: {names}"
        raise DataError(msg)
    sizes: dict[str, int] = {}
    for tensor, wanted in zip(sample.inputs, inputs, strict=True):
        if tensor.dtype != torch_dtype(wanted):
            found = str(tensor.dtype).removeprefix("torch.")
            msg = (
                f"{sample.name} has dtype {found}, but model input {wanted.name!r} takes {wanted.dtype}: "
                "convert the data, or correct model.inputs"
            )
            raise DataError(msg)
        if not _fits(tensor.shape, wanted.shape[1:], sizes):
            msg = (
                f"{sample.name} has shape {list(tensor.shape)}, but model input {wanted.name!r} takes "
                f"[{', '.join(map(str, wanted.shape[1:]))}] after the batch: change the data (pictures by "
                "preprocess.resize and preprocess.crop), or correct model.inputs"
            )
            raise DataError(msg)


def torch_dtype(wanted: InputConfig) -> torch.dtype:
    """Return the torch dtype of a model input.

    Example:
        >>> torch_dtype(InputConfig(name="x", shape=("batch", 3), dtype="float32"))
        torch.float32
    """
    dtype = getattr(torch, wanted.dtype)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _fits(shape: torch.Size, wanted: tuple[int | str, ...], sizes: dict[str, int]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(
        size == want if isinstance(want, int) else size == sizes.setdefault(want, size)
        for size, want in zip(shape, wanted, strict=True)
    )
