"""What data sources give: one sample, and a batch of them.

Shapes: a sample has no batch dimension, a batch has it in front: (3, 224, 224) and (10, 3, 224, 224).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from qtool.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One thing to run the model on.

    Attributes:
        name: what an error calls it: a file name, or its kind and number.
        inputs: one tensor for each model input, without the batch dimension.
        label: its class index, at least 0, or None.
    """

    name: str
    inputs: tuple[torch.Tensor, ...]
    label: int | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Several samples, ready for the model.

    Attributes:
        inputs: one tensor for each model input, samples along dimension 0.
        labels: int64, one class index a sample, or None if the source has none.

    Example:
        >>> len(Batch(inputs=(torch.zeros(4, 3, 32, 32),), labels=None))
        4
    """

    inputs: tuple[torch.Tensor, ...]
    labels: torch.Tensor | None

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.inputs[0].shape[0]


def stack(samples: Sequence[Sample]) -> Batch:
    """Return the samples as one batch, in their order.

    Args:
        samples: at least one; all with the same number of inputs.

    Returns:
        The batch; its labels are None unless every sample has one.

    Raises:
        DataError: two samples differ in shape.

    Example:
        >>> zeros = Sample(name="a", inputs=(torch.zeros(2),), label=7)
        >>> ones = Sample(name="b", inputs=(torch.ones(2),), label=1)
        >>> stack([zeros, ones])
        Batch(inputs=(tensor([[0., 0.],
                [1., 1.]]),), labels=tensor([7, 1]))
    """
    first = samples[0]
    for sample in samples[1:]:
        for mine, other in zip(sample.inputs, first.inputs, strict=True):
            if mine.shape != other.shape:
                msg = (
                    f"{sample.name} has shape {tuple(mine.shape)} and {first.name} has {tuple(other.shape)}: "
                    "samples of one batch must have one shape. Bring them to one size "
                    "(pictures by preprocess.resize and preprocess.crop), or set batch_size: 1"
                )
                raise DataError(msg)
    labels = [sample.label for sample in samples if sample.label is not None]
    return Batch(
        inputs=tuple(torch.stack(tensors) for tensors in zip(*(s.inputs for s in samples), strict=True)),
        labels=torch.tensor(labels, dtype=torch.int64) if len(labels) == len(samples) else None,
    )
