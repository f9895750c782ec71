"""How good the fake-quantized model is on data it was not trained on, between two epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from qtool.errors import DataError, ModelError
from qtool.training.loss import check_labels, class_scores, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from qtool.data.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Score:
    """What was measured.

    Attributes:
        accuracy: share of the samples whose class the model chose right, 0..1; of equal scores the first counts.
        loss: mean cross entropy, without smoothing.
        num_samples: samples seen.
    """

    accuracy: float
    loss: float
    num_samples: int


@torch.no_grad()
def score(model: nn.Module, batches: Iterable[Batch], device: torch.device) -> Score:
    """Return how good a model is in eval mode, in which it is left; sums are float64.

    Raises:
        DataError: there is no sample, or one has no label or one of another model's classes.
        ModelError: the first output has no score for each class.

    Example:
        >>> batch = Batch(inputs=(torch.tensor([[2.0, 0.0], [0.0, 2.0]]),), labels=torch.tensor([0, 0]))
        >>> score(torch.nn.Identity(), [batch], torch.device("cpu"))  # ln(1 + e^-2) = 0.127, ln(1 + e^2) = 2.127
        Score(accuracy=0.5, loss=1.1269280433654785, num_samples=2)
    """
    model.eval()
    num_samples, num_right, loss = 0, 0, 0.0
    for batch in batches:
        labels = labels_of(batch, "data.evaluate")
        outputs = model(*(tensor.to(device) for tensor in batch.inputs))
        scores = class_scores(outputs)
        if scores is None:
            msg = "the model's first output is no tensor of shape (samples, classes), so accuracy cannot be measured"
            raise ModelError(msg)
        check_labels(labels, outputs)
        labels = labels.to(device)
        num_samples += len(batch)
        num_right += int((scores.argmax(dim=1) == labels).sum())
        loss += float(functional.cross_entropy(scores, labels, reduction="sum"))
    if num_samples == 0:
        msg = "data.evaluate has no samples"
        raise DataError(msg)
    return Score(accuracy=num_right / num_samples, loss=loss / num_samples, num_samples=num_samples)
