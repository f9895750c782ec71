"""One way to make a file, and what must be said of it; and the model that all of them begin with."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from qtool.readers.facts import Compute, FileKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

STATIC, DYNAMIC, WEIGHT_ONLY, FAKE, FLOAT = (
    Compute.STATIC,
    Compute.DYNAMIC,
    Compute.WEIGHT_ONLY,
    Compute.FAKE_QUANTIZED,
    Compute.FLOAT,
)
CHANNEL, TENSOR = ("int8", "channel"), ("int8", "tensor")
"""Dtype and granularity of a weight."""


@dataclass(frozen=True)
class Producer:
    """A way to make a file.

    Attributes:
        name: who makes it, and how.
        make: makes it at a path.
        kind: what it is.
        producer: a regular expression for who the report says wrote it; empty where nothing in the file tells.
        nodes: how many nodes with a weight compute in which way.
        weights: dtype and granularity of the quantized ones' weights.
        quick: it is in `make test` too.
    """

    name: str
    make: Callable[[Path], object]
    kind: FileKind
    producer: str
    nodes: Mapping[Compute, int]
    weights: frozenset[tuple[str, str]]
    quick: bool = False


def producer(
    name: str,
    make: Callable[[Path], object],
    kind: FileKind,
    said: str,
    nodes: Mapping[Compute, int],
    *weights: tuple[str, str],
    quick: bool = False,
) -> Producer:
    """Return a row of the table."""
    return Producer(name, make, kind, said, nodes, frozenset(weights), quick)


class Net(nn.Module):
    """A convolution with a ReLU, a depthwise one, and a linear: three nodes with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.relu = nn.ReLU()
        self.depth = nn.Conv2d(8, 8, 3, groups=8)
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.depth(self.relu(self.stem(x))).flatten(1))


def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def batch() -> torch.Tensor:
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))


@contextlib.contextmanager
def engine(name: str) -> Iterator[None]:
    """Have torch pack for an engine, and say none of its warnings."""
    usual = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.quantized.engine = usual
