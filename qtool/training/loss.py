"""The loss of a batch: cross entropy of the first output, or what the user's own function says.

Shapes: N samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional

from qtool.data.user_code import import_attribute, user_code
from qtool.errors import DataError, ModelError

if TYPE_CHECKING:
    from qtool.config.train import TrainConfig
    from qtool.data.batch import Batch

Loss = Callable[[Any, Tensor], Tensor]
"""Called with what the model returned and the labels (N,); returns a scalar with a gradient."""


def make_loss(settings: TrainConfig, *, where: str = "train.loss") -> Loss:
    """Return the loss of a config.

    Args:
        settings: the config's `train`.
        where: key and place of the loss, for errors.

    Raises:
        DataError: the user's function cannot be imported or called.
    """
    if settings.loss is not None:
        return _user_loss(settings.loss, where)

    def cross_entropy(outputs: object, labels: Tensor) -> Tensor:
        scores = class_scores(outputs)
        if scores is None:
            msg = (
                "the model's first output is no tensor of shape (samples, classes), so there is no cross entropy: "
                "name a function of your own as train.loss, which is called with outputs and labels"
            )
            raise ModelError(msg)
        return functional.cross_entropy(scores, labels, label_smoothing=settings.label_smoothing)

    return cross_entropy


def class_scores(outputs: object) -> Tensor | None:
    """Return the first output if it has a score for each class, float (N, C) with C at least 2; else None."""
    while isinstance(outputs, (tuple, list, Mapping)) and outputs:
        outputs = next(iter(outputs.values())) if isinstance(outputs, Mapping) else outputs[0]
    is_scores = isinstance(outputs, Tensor) and outputs.is_floating_point() and outputs.dim() == 2
    return outputs if is_scores and isinstance(outputs, Tensor) and outputs.shape[1] > 1 else None


def labels_of(batch: Batch, source: str) -> Tensor:
    """Return the labels of a batch.

    Args:
        batch: any batch.
        source: what it comes from, such as `data.train`.

    Raises:
        DataError: it has none.
    """
    if batch.labels is None:
        msg = f"{source} has samples without labels, and training needs one for each: photos take them by `label`"
        raise DataError(msg)
    return batch.labels


def check_labels(labels: Tensor, outputs: object) -> None:
    """Raise DataError if a label names no class of the model's first output."""
    scores = class_scores(outputs)
    if scores is not None and int(labels.max()) >= scores.shape[1]:
        msg = (
            f"there is a label {int(labels.max())}, but the model has {scores.shape[1]} classes "
            f"(0..{scores.shape[1] - 1}); the labels are of another data set than the model's"
        )
        raise DataError(msg)


def _user_loss(name: str, where: str) -> Loss:
    function = import_attribute(name, where)

    def loss(outputs: object, labels: Tensor) -> Tensor:
        with user_code(name, "calling it with outputs and labels"):
            value = function(outputs, labels)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            msg = f"{name}: returned {_in_words(value)}: a loss is a tensor of one number, with a gradient"
            raise DataError(msg)
        return value.reshape(())

    return loss


def _in_words(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of shape {tuple(value.shape)}{'' if value.requires_grad else ' without gradient'}"
