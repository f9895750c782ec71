"""How accurate training for int8 is: two small nets on Fashion-MNIST, torch's own flow beside it.

Trained in float on 60 000 pictures, then on as int8 for each target; accuracy on the 10 000 test pictures, on the engine
itself. All int8 training is the loop of examples/own_loop.py. Musts: int8 within half a point of the float net; where
one scale a tensor costs the depthwise net a point or more, training takes back two thirds of that.

    make accuracy     or     python -m benchmarks.accuracy_qat [--seeds 1] [--json FILE] [--without-torch-ao]
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table
from torch.ao.quantization import disable_observer, get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_qat_fx
from torch.nn.intrinsic.qat import freeze_bn_stats

import qtool
from examples.fashion_data import load_pictures
from examples.fashion_nets import DepthwiseNet, SmallNet
from examples.own_loop import accuracy, fit, train_quantized
from qtool.lowering.engine_switch import available_engines
from qtool.runtime.module import RuntimeModel

if TYPE_CHECKING:
    from examples.fashion_data import Pictures
    from torch import nn

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
LARGEST_LOSS = 0.5
"""Points that int8 may lie below float after training."""
LEAST_RECOVERY = 2 / 3
"""Share of what calibration loses that training must take back."""
LEAST_PTQ_LOSS = 1.0
"""Points that calibration must lose before a share of it means anything."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table, in per cent; a difference of 0.2 is one standard error of 10 000 pictures and more."""

    net: str
    name: str
    seed: int
    accuracy: float
    must: str = ""
    is_met: bool = True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5, help="of float training")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-torch-ao", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's flow announces its own end many times
    train, test = load_pictures("train"), load_pictures("test")
    if train.name != "Fashion-MNIST":
        print("nothing is measured: the musts are for Fashion-MNIST, see `make data`", file=sys.stderr)
        return 1
    rows = []
    for seed in range(options.seeds):
        rows += small_net(train, test, seed, options.epochs, beside_torch=not options.without_torch_ao)
        rows += depthwise_net(train, test, seed, options.epochs)
    show(rows, options.epochs)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if all(row.is_met for row in rows) else 1


def small_net(train: Pictures, test: Pictures, seed: int, epochs: int, *, beside_torch: bool) -> list[Row]:
    """Return the rows of the CNN: float, and each target calibrated and trained."""
    torch.manual_seed(seed)
    net = SmallNet()
    fit(net, train.images, train.labels, epochs=epochs, rate=0.1, seed=seed)
    longer = copy.deepcopy(net)
    continue_training(longer, train)
    rows = Rows("SmallNet", seed, test)
    rows.add("float", net)
    rows.add("float, trained on as long as int8", longer)
    best = max(row.accuracy for row in rows.rows)
    for engine in ENGINES:
        if engine not in available_engines():
            rows.missing(f"qtool {engine}, trained", "this machine has no such engine")
            continue
        config = {"target": {"backend": engine}}
        rows.add(f"qtool {engine}, calibrated", RuntimeModel(qtool.convert(calibrated(net, train, config))))
        trained = qtool.convert(train_quantized(net, train.images, train.labels, config))
        rows.add(f"qtool {engine}, trained", RuntimeModel(trained), least=best - LARGEST_LOSS)
        if beside_torch:
            rows.add(f"torch.ao {engine}, its defaults, trained", torchs(net, train, engine))
    return rows.rows


def depthwise_net(train: Pictures, test: Pictures, seed: int, epochs: int) -> list[Row]:
    """Return the rows of the depthwise net with one scale a tensor: float, calibrated, trained."""
    torch.manual_seed(seed)
    net = DepthwiseNet()
    fit(net, train.images, train.labels, epochs=epochs, rate=0.4, seed=seed)
    rows = Rows("DepthwiseNet", seed, test)
    best = rows.add("float", net)
    per_channel, per_tensor = (
        {"target": {"backend": "fbgemm"}, "quantize": {"weights": {"granularity": granularity}}}
        for granularity in ("channel", "tensor")
    )
    rows.add("fbgemm, a scale a channel, calibrated", RuntimeModel(qtool.convert(calibrated(net, train, per_channel))))
    lost = best - rows.add("fbgemm, one scale, calibrated", RuntimeModel(qtool.convert(calibrated(net, train, per_tensor))))
    trained = RuntimeModel(qtool.convert(train_quantized(net, train.images, train.labels, per_tensor)))
    if lost < LEAST_PTQ_LOSS:
        rows.missing("fbgemm, one scale, trained", f"calibration loses {lost:.2f} points only")
    else:
        rows.add("fbgemm, one scale, trained", trained, least=best - (1 - LEAST_RECOVERY) * lost)
    return rows.rows
