"""Finds the layers of a graph that compute with int8 weights: whoever wrote the graph, and whatever it lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class Step:
    """One op of a graph.

    Attributes:
        index: its place in the graph.
        multiplies: it is a convolution or a matrix product.
        inputs: names of the values it reads.
        outputs: names of the values it makes.
    """

    index: int
    multiplies: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def int8_layers(steps: Iterable[Step], weights: Iterable[str]) -> Iterator[Step]:
    """Yield each op that multiplies by an int8 weight, or by what was computed from one.

    Args:
        steps: the ops in execution order.
        weights: names of the stored int8 tensors.

    Example:
        w (int8) -> dequantize -> conv2d -> relu -> linear    gives    conv2d: what it returns is no weight
    """
    computed = set(weights)
    for step in steps:
        if computed.isdisjoint(step.inputs):
            continue
        if step.multiplies:
            yield step
        else:
            computed.update(step.outputs)
