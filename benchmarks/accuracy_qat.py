"""How accurate training for int8 is: two small nets on Fashion-MNIST, torch's own flow beside it.

Trained in float on 60 000 pictures, then trained on as int8 by the loop of examples/own_loop.py; accuracy on the 10 000
test pictures, on the engine itself. Musts: int8 at most half a point below float; and where one scale a tensor costs
the depthwise net a point or more, training takes back two thirds of that.

    make accuracy     or     python -m benchmarks.accuracy_qat [--seeds 1] [--json FILE] [--without-torch-ao]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table
from torch.ao.nn.intrinsic.qat import freeze_bn_stats
from torch.ao.quantization import disable_observer, get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx

import qtool
from examples.fashion_data import load_pictures
from examples.fashion_nets import DepthwiseNet, SmallNet
from examples.onnx_runtime import exported, missing_packages
from examples.own_loop import accuracy, calibrated, fit, train_quantized
from qtool.lowering.engine_switch import available_engines
from qtool.runtime.module import RuntimeModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from examples.fashion_data import Pictures

ONNX = "onnxruntime"
TARGETS = {"fbgemm": ("fbgemm", "x86", "onednn", ONNX), "qnnpack": ("qnnpack",)}
"""A target, and what runs its file: on fbgemm's reduced ranges nothing on x86 saturates."""
LARGEST_LOSS = 0.5
"""Points that int8 may lie below float after training."""
LEAST_RECOVERY = 2 / 3
"""Share of what calibration loses that training must take back."""
LEAST_PTQ_LOSS = 1.0
"""Points that calibration must lose, before a share of them means anything."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        accuracy: in per cent of the test pictures; None if it could not be measured.
        must: what it must reach, None if nothing.
    """

    name: str
    accuracy: float | None
    must: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the row reaches what it must; what cannot be measured does not."""
        return self.must is None or (self.accuracy is not None and self.accuracy >= self.must)


@dataclass(frozen=True, kw_only=True)
class Data:
    """What the nets are trained and tested on, and the seed of weights and order."""

    train: Pictures
    test: Pictures
    seed: int

    def row(self, name: str, model: Callable[[Tensor], Tensor], must: float | None = None) -> Row:
        """Return the row of a model, measured, and say it."""
        row = Row(name=name, accuracy=accuracy(model, self.test.images, self.test.labels), must=must)
        print(f"seed {self.seed}: {name}: {row.accuracy:.2f} %", file=sys.stderr, flush=True)
        return row

    def float_net(self, kind: type[nn.Module], epochs: int, rate: float) -> nn.Module:
        """Return a net trained in float."""
        torch.manual_seed(self.seed)
        net = kind()
        fit(net, self.train.images, self.train.labels, epochs=epochs, rate=rate, seed=self.seed)
        return net

    def calibrated(self, net: nn.Module, config: dict) -> nn.Module:
        """Return the int8 model without training."""
        return qtool.convert(calibrated(net, self.train.images, config))

    def trained(self, net: nn.Module, config: dict) -> nn.Module:
        """Return the int8 model, trained on."""
        return qtool.convert(train_quantized(net, self.train.images, self.train.labels, config))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-torch-ao", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's flow announces its own end many times
    train, test = load_pictures("train"), load_pictures("test")
    if train.name != "Fashion-MNIST":
        print("the musts are for Fashion-MNIST: nothing is measured, so nothing is met", file=sys.stderr)
        return 1
    rows = []
    for seed in range(options.seeds):
        data = Data(train=train, test=test, seed=seed)
        rows += [*depthwise_net(data), *small_net(data, beside_torch=not options.without_torch_ao)]
    show(rows, options.seeds)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if all(row.is_met for row in rows) else 1


def small_net(data: Data, *, beside_torch: bool) -> Iterator[Row]:
    """Yield the rows of the CNN: float, and for each target calibrated and trained."""
    net = data.float_net(SmallNet, epochs=4, rate=0.2)
    longer = copy.deepcopy(net)
    train_on(longer, data.train)
    floats = data.row("SmallNet, float", net), data.row("SmallNet, float, trained on as long as int8", longer)
    yield from floats
    must = max(row.accuracy for row in floats) - LARGEST_LOSS
    for backend, engines in TARGETS.items():
        config = {"target": {"backend": backend}}
        ptq, qat = data.calibrated(net, config), data.trained(net, config)
        for engine in engines:
            if missing_packages() if engine == ONNX else engine not in available_engines():
                yield Row(name=f"SmallNet, {engine}, trained: not on this machine", accuracy=None, must=must)
                continue
            yield data.row(f"SmallNet, {engine}, calibrated", runtime(ptq, engine))
            yield data.row(f"SmallNet, {engine}, trained", runtime(qat, engine), must)
        if beside_torch and backend in available_engines():
            yield data.row(f"SmallNet, torch.ao {backend}, its defaults, trained", torchs(net, data.train, backend))


def runtime(converted: nn.Module, engine: str) -> Callable[[Tensor], Tensor]:
    """Return what runs a converted model on an engine, ONNX Runtime for one."""
    if engine != ONNX:
        return RuntimeModel(converted, engine)
    with tempfile.TemporaryDirectory() as folder:
        return exported(converted, Path(folder) / "int8.onnx")


def depthwise_net(data: Data) -> Iterator[Row]:
    """Yield the rows of the depthwise net: float, and with one scale a tensor calibrated and trained."""
    net = data.float_net(DepthwiseNet, epochs=3, rate=0.4)
    in_float = data.row("DepthwiseNet, float", net)
    per_channel, per_tensor = (
        {"target": {"backend": "fbgemm"}, "quantize": {"weights": {"granularity": granularity}}}
        for granularity in ("channel", "tensor")
    )
    yield in_float
    yield data.row("DepthwiseNet, fbgemm, calibrated", RuntimeModel(data.calibrated(net, per_channel)))
    ptq = data.row("DepthwiseNet, fbgemm, one scale, calibrated", RuntimeModel(data.calibrated(net, per_tensor)))
    yield ptq
    lost = in_float.accuracy - ptq.accuracy
    if lost < LEAST_PTQ_LOSS:
        yield Row(
            name=f"DepthwiseNet: calibration loses {lost:.2f} points, too few to take back", accuracy=None, must=0
        )
    must = in_float.accuracy - (1 - LEAST_RECOVERY) * lost
    trained = RuntimeModel(data.trained(net, per_tensor))
    yield data.row("DepthwiseNet, fbgemm, one scale, trained", trained, must)


def train_on(model: nn.Module, train: Pictures, between: Callable[[], object] = lambda: None) -> None:
    """Train a model on as `train_quantized` does, calling `between` where that freezes observers and batch norms."""
    fit(model, train.images, train.labels, epochs=1, rate=0.01)
    between()
    fit(model, train.images, train.labels, epochs=1, rate=0.001)


def torchs(net: nn.Module, train: Pictures, engine: str) -> nn.Module:
    """Return torch's int8 model of the net, trained by the same loop with its own defaults."""
    torch.backends.quantized.engine = engine
    mapping = get_default_qat_qconfig_mapping(engine)
    prepared = prepare_qat_fx(copy.deepcopy(net).train(), mapping, (train.images[:2],))
    train_on(prepared, train, lambda: prepared.apply(disable_observer).apply(freeze_bn_stats))
    return convert_fx(prepared)


def show(rows: list[Row], num_seeds: int) -> None:
    table = Table(title=f"Fashion-MNIST, 10 000 test pictures, {num_seeds} seed{'s' if num_seeds > 1 else ''}")
    for heading in ("", "accuracy %", "must"):
        table.add_column(heading, justify="left" if not heading else "right")
    for row in rows:
        found = "" if row.accuracy is None else f"{row.accuracy:.2f}"
        must = "" if row.must is None else f"{row.must:.2f}: {'met' if row.is_met else 'MISSED'}"
        table.add_row(row.name, found, must)
    Console(width=110).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
