"""How many bits an element the masks of quantization-aware training take, on Fashion-MNIST.

A mask says where a gradient passes: nothing, indices, or a bit an element. Counted over all elements that are
fake-quantized in the training steps; a fake-quantize behind a batch norm keeps no mask, for it is found again from the
batch norm's input.

    python -m benchmarks.mask_bits [--steps 60] [--modes compressed] [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from examples.fashion_data import load_pictures
from examples.fashion_nets import SmallNet
from examples.own_loop import BATCH, calibrated, fit
from qtool.numerics import combine, fake_quantize, layer
from qtool.numerics.grid import NO_BOUNDS
from qtool.types import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.numerics.grid import Bounds, Grid

CONFIG = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}}
CLAMP, FUSED, WEIGHTS, ALL = "range clamp alone", "with relu fused", "weights", "all activations"
MUSTS = {CLAMP: 0.1, FUSED: 1.0}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Bits an element of one kind of fake-quantize in one net."""

    net: str
    memory: str
    kind: str
    num_elements: int
    bits_per_element: float
    must: float | None


class InvertedResidual(nn.Module):
    """A wide depthwise convolution between two pointwise ones, beside a shortcut, as in MobileNetV2."""

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        wide = 4 * num_channels
        self.layers = nn.Sequential(
            *_conv_relu6(num_channels, wide, 1),
            *_conv_relu6(wide, wide, 3, groups=wide),
            nn.Conv2d(wide, num_channels, 1, bias=False),
            nn.BatchNorm2d(num_channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the input and what the layers make of it."""
        return x + self.layers(x)


def _conv_relu6(num_in: int, num_out: int, size: int, **options: int) -> list[nn.Module]:
    conv = nn.Conv2d(num_in, num_out, size, padding=size // 2, bias=False, **options)
    return [conv, nn.BatchNorm2d(num_out), nn.ReLU6()]


class Relu6Net(nn.Module):
    """A stem, two inverted residuals, a convolution without batch norm, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_conv_relu6(1, 16, 3, stride=2),
            InvertedResidual(16),
            InvertedResidual(16),
            nn.Conv2d(16, 32, 1),
            nn.ReLU6(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, 10)."""
        return self.layers(x)


@dataclass
class Counted:
    """Elements fake-quantized, and bits kept to mask them."""

    elements: int = 0
    bits: int = 0


@contextmanager
def counted() -> Iterator[dict[str, Counted]]:
    """Yield what counts, by kind, every mask made in the block: the kernels that make one are looked over."""
    kinds: dict[str, Counted] = defaultdict(Counted)
    with ExitStack() as stack:
        for module in (combine, fake_quantize, layer):
            kernel = _counting(module.quantize_values, kinds, of_weights=module is layer)
            stack.enter_context(patch.object(module, "quantize_values", kernel))
        normalize = _counting_elements(layer.normalize_quantize, kinds)
        stack.enter_context(patch.object(layer, "normalize_quantize", normalize))
        yield kinds


def _counting(kernel: Callable[..., Any], kinds: dict[str, Counted], *, of_weights: bool) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def count(x: Tensor, grid: Grid | None, bounds: Bounds = NO_BOUNDS, *rest: object, **wanted: object) -> object:
        result = kernel(x, grid, bounds, *rest, **wanted)
        if grid is not None and result.mask is not None:
            # A layer quantizes its weight without codes, and its result with them.
            is_weight = of_weights and wanted.get("wants_codes") is False
            kind = WEIGHTS if is_weight else CLAMP if bounds == NO_BOUNDS else FUSED
            kinds[kind].elements += x.numel()
            kinds[kind].bits += sum(8 * tensor.nbytes for tensor in result.mask.tensors())
        return result

    return count


def _counting_elements(kernel: Callable[..., Any], kinds: dict[str, Counted]) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def count(x: Tensor, factor: Tensor, shift: Tensor, bounds: Bounds, grid: Grid | None, **wanted: object) -> object:
        if grid is not None:
            kinds[CLAMP if bounds == NO_BOUNDS else FUSED].elements += x.numel()
        return kernel(x, factor, shift, bounds, grid, **wanted)

    return count


def rows_of(name: str, kind: type[nn.Module], memory: Memory, num_steps: int) -> list[Row]:
    """Train a net in float for as long, then on its grids, and return its rows."""
    train = load_pictures("train", num_steps * BATCH)
    torch.manual_seed(0)
    net = kind()
    fit(net, train.images, train.labels, epochs=1, rate=0.1)
    prepared = calibrated(net, train.images, CONFIG)
    prepared.set_memory(memory)
    with counted() as kinds:
        fit(prepared, train.images, train.labels, epochs=1, rate=0.01)
    activations = [count for what, count in kinds.items() if what != WEIGHTS]
    total = Counted(sum(c.elements for c in activations), sum(c.bits for c in activations))
    return [
        Row(
            net=name,
            memory=memory.value,
            kind=what,
            num_elements=count.elements,
            bits_per_element=count.bits / count.elements,
            must=MUSTS.get(what),
        )
        for what, count in [*sorted(kinds.items()), (ALL, total)]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=60, help="of 128 pictures; with few, batch norms have not settled")
    parser.add_argument("--modes", nargs="+", type=Memory, choices=list(Memory), default=[Memory.COMPRESSED])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    nets = {"SmallNet": SmallNet, "Relu6Net": Relu6Net}
    rows = [
        row
        for name, kind in nets.items()
        for memory in options.modes
        for row in rows_of(name, kind, memory, options.steps)
    ]
    table = Table(title=f"bits an element of masks, {load_pictures('train', 1).name}, {options.steps} steps")
    for heading in ("net", "memory", "", "elements", "bits", "must"):
        table.add_column(heading, justify="right" if heading in ("elements", "bits") else "left")
    for row in rows:
        verdict = "" if row.must is None else f"{row.must:g}: {'met' if row.bits_per_element <= row.must else 'MISSED'}"
        table.add_row(row.net, row.memory, row.kind, f"{row.num_elements}", f"{row.bits_per_element:.5f}", verdict)
    Console(width=110).print(table)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return int(any(row.must is not None and row.bits_per_element > row.must for row in rows))


if __name__ == "__main__":
    sys.exit(main())
