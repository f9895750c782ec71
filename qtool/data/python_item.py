"""What one item of a user's iterable holds: a sample or a batch, with or without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from qtool.data.batch import Sample
from qtool.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qtool.config.schema import InputConfig


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item, taken apart.

    Attributes:
        name: what an error calls it.
        tensors: one for each model input.
        is_batch: the tensors have a batch dimension.
        label: what stands beside the tensors, unchecked; None if nothing does.
    """

    name: str
    tensors: tuple[torch.Tensor, ...]
    is_batch: bool
    label: Any

    def samples(self) -> Iterator[Sample]:
        """Yield the one sample, or those of the batch in order.

        Raises:
            DataError: the batch's tensors and labels differ in number, or a label is not a class index.
        """
        if not self.is_batch:
            yield Sample(name=self.name, inputs=self.tensors, label=_class_index(self.label, self.name))
            return
        labels = self._labels()
        for index in range(len(self.tensors[0])):
            name = f"{self.name}[{index}]"
            label = _class_index(labels[index], name) if labels is not None else None
            yield Sample(name=name, inputs=tuple(t[index] for t in self.tensors), label=label)

    def _labels(self) -> list[Any] | None:
        if self.label is None:
            labels = None
        elif isinstance(self.label, torch.Tensor) and self.label.dim() == 1:
            labels = self.label.tolist()
        elif isinstance(self.label, tuple | list):
            labels = list(self.label)
        else:
            found = _describe(self.label)
            msg = f"{self.name} is a batch, and its label is {found}: give one class index for each sample"
            raise DataError(msg)
        counts = [t.shape[0] if t.dim() else None for t in self.tensors]
        if labels is not None:
            counts.append(len(labels))
        if len(set(counts)) != 1:
            shapes = ", ".join(str(tuple(t.shape)) for t in self.tensors)
            beside = f" and {len(labels)} labels" if labels is not None else ""
            msg = f"{self.name} is a batch of shape {shapes}{beside}: their numbers of samples must be equal"
            raise DataError(msg)
        return labels


def take_apart(item: object, inputs: tuple[InputConfig, ...], name: str) -> Item:
    """Return the tensors and the label of an item.

    An item is a tensor, a tuple or list of one tensor for each model input, or a pair of one of these and its label: a
    class index, or a tensor or list of them for a batch. It is a batch if its first tensor has as many dimensions as
    the model input, and a sample if it has one less.

    Args:
        item: what the user's iterable gave.
        inputs: the model's inputs, at least one.
        name: what an error calls the item.

    Raises:
        DataError: the item has none of these forms.

    Example:
        For the input `x: [batch, 3, 8, 8]` the item `(torch.zeros(4, 3, 8, 8), torch.tensor([0, 1, 1, 0]))` is a
        batch of four samples of shape (3, 8, 8) with labels, and `torch.zeros(3, 8, 8)` is one sample without.
    """
    tensors, label = _parts(item, len(inputs), name)
    num_dimensions, wanted = tensors[0].dim(), len(inputs[0].shape)
    if num_dimensions not in (wanted, wanted - 1):
        msg = (
            f"{name} has shape {tuple(tensors[0].shape)}, but model input {inputs[0].name!r} is "
            f"{list(inputs[0].shape)}: give batches of that shape, or samples without the first dimension"
        )
        raise DataError(msg)
    return Item(name=name, tensors=tensors, is_batch=num_dimensions == wanted, label=label)


def _parts(item: object, num_inputs: int, name: str) -> tuple[tuple[torch.Tensor, ...], Any]:
    """Return the input tensors of an item, and its label or None."""
    tensors = _input_tensors(item, num_inputs, name)
    if tensors is not None:
        return tensors, None
    if isinstance(item, tuple | list) and len(item) == 2:
        tensors = _input_tensors(item[0], num_inputs, name)
        if tensors is not None:
            return tensors, item[1]
    what = "a tensor" if num_inputs == 1 else f"a tuple of {num_inputs} tensors, one for each model input"
    msg = f"{name} is {_describe(item)}: it must be {what}, or a pair of that and a label"
    raise DataError(msg)


def _input_tensors(value: object, num_inputs: int, name: str) -> tuple[torch.Tensor, ...] | None:
    """Return the value as one tensor for each input, or None if it is something else."""
    if isinstance(value, torch.Tensor):
        value = (value,)
    if not isinstance(value, tuple | list) or len(value) != num_inputs:
        return None
    tensors = tuple(_plain(v, name) for v in value if isinstance(v, torch.Tensor))
    return tensors if len(tensors) == num_inputs else None


def _plain(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return the tensor on the CPU; only one whose values lie there, each on its own, can be a sample."""
    kinds = {"meta": tensor.is_meta, "quantized": tensor.is_quantized, "nested": tensor.is_nested}
    kinds[str(tensor.layout).removeprefix("torch.")] = tensor.layout is not torch.strided
    if found := next((kind for kind, is_one in kinds.items() if is_one), None):
        msg = f"{name} is a {found} tensor: give a dense tensor of values"
        raise DataError(msg)
    return tensor.detach().cpu()


def _class_index(label: Any, name: str) -> int | None:  # noqa: ANN401
    if isinstance(label, torch.Tensor) and label.numel() == 1 and not label.is_floating_point():
        label = label.item()
    if label is None or (isinstance(label, int) and not isinstance(label, bool) and label >= 0):
        return label
    msg = f"{name} has the label {label!r}: a label must be a class index, a whole number from 0"
    raise DataError(msg)


def _describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} ({', '.join(type(part).__name__ for part in value[:4])})"
    return f"of type {type(value).__name__}"
