"""How accurate post-training quantization is: EfficientNet-Lite0 on photos, torch's own flow beside it.

Calibrated on one half of twenty labelled ImageNet photos; SQNR of the logits on all twenty, agreement (same top-1 as
float) on the other half. Mean over halves drawn with seeds 0-9. Everything runs on the engine itself.

    python benchmarks/accuracy.py [--draws 10] [--json FILE]      every engine, beside torch's flow
    python benchmarks/accuracy.py --observers                     every observer, on the fake-quantized model
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.table import Table
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

import qtool
from qtool.backends.host import host_facts
from qtool.config.load import changed, load_config
from qtool.data.sources import open_source
from qtool.observers.registry import OBSERVERS
from qtool.runtime.module import RuntimeModel
from qtool.types import Isa, Reduce
from qtool.workflows.float_model import build_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

CONFIG = Path(__file__).parents[1] / "configs" / "efficientnet-lite0-fbgemm.yaml"


@dataclass(frozen=True, kw_only=True)
class Photos:
    """All photos with the float model's answers."""

    images: Tensor
    labels: Tensor
    logits: Tensor


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: means over all draws."""

    name: str
    sqnr_db: float
    agreement: float
    accuracy: float
    must_db: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the row reaches what it must."""
        return self.must_db is None or (self.sqnr_db >= self.must_db and self.agreement >= 0.95)


OURS = (
    ("onednn, isa vnni", "onednn", Isa.VNNI, "auto", Reduce.AUTO, 18.0),
    ("x86, isa vnni", "x86", Isa.VNNI, "auto", Reduce.AUTO, None),
    ("qnnpack", "qnnpack", Isa.ANY, "auto", Reduce.AUTO, 18.0),
    ("fbgemm, isa any", "fbgemm", Isa.ANY, "auto", Reduce.AUTO, 16.5),
    ("fbgemm, isa any, per node", "fbgemm", Isa.ANY, "auto", Reduce.PER_NODE, 16.5),
    ("onednn, isa vnni, per tensor", "onednn", Isa.VNNI, "tensor", Reduce.AUTO, 7.0),
    ("fbgemm, isa any, per tensor", "fbgemm", Isa.ANY, "tensor", Reduce.AUTO, None),
    ("fbgemm, isa any, per tensor, per node", "fbgemm", Isa.ANY, "tensor", Reduce.PER_NODE, None),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--observers", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's flow announces its own end many times
    model, photos = load()
    draws = [half(seed, len(photos.images)) for seed in range(options.draws)]
    if options.observers:
        rows = [
            observed(model, photos, draws, backend, name) for backend in ("qnnpack", "fbgemm") for name in OBSERVERS
        ]
        show(rows, len(draws))
        return 0
    measurable = [row for row in OURS if may_run(row[1], row[2])]
    rows = [ours(model, photos, draws, *row) for row in measurable]
    rows += [torchs(model, photos, draws, engine) for engine in ("fbgemm", "x86", "onednn", "qnnpack")]
    show(rows, len(draws))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0 if len(measurable) == len(OURS) and all(row.is_met for row in rows) else 1


def load() -> tuple[nn.Module, Photos]:
    config = changed(load_config(CONFIG), {"data.evaluate.select": None}, "accuracy.py")
    model = build_model(config)
    batches = list(open_source(config.data.evaluate, inputs=config.model.inputs, base=config.base).batches())
    images = torch.cat([batch.inputs[0] for batch in batches])
    with torch.no_grad():
        logits = model(images)
    return model, Photos(images=images, labels=torch.cat([b.labels for b in batches]), logits=logits)


def half(seed: int, total: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the photos to calibrate on, and of the others."""
    order = list(range(total))
    random.Random(seed).shuffle(order)
    return order[: total // 2], order[total // 2 :]


def may_run(backend: str, isa: Isa) -> bool:
    if isa is Isa.VNNI and host_facts().isa_of(backend) is not Isa.VNNI:
        print(f"{backend} with isa vnni is left out: this CPU has no VNNI", file=sys.stderr)
        return False
    return True


def ours(
    model: nn.Module,
    photos: Photos,
    draws: list,
    name: str,
    backend: str,
    isa: Isa,
    granularity: str,
    reduce: Reduce,
    must: float | None,
) -> Row:
    config = {
        "target": {"backend": backend, "isa": isa.value},
        "quantize": {"weights": {"granularity": granularity}, "reduce_range": reduce.value},
    }
    prepared = qtool.prepare(model, photos.images[:2], config)

    def quantize(chosen: list[int]) -> Callable[[Tensor], Tensor]:
        prepared.reset()
        qtool.calibrate(prepared, [photos.images[chosen]])
        return RuntimeModel(qtool.convert(prepared))

    return measure(f"qtool {name}", photos, draws, quantize, must)


def observed(model: nn.Module, photos: Photos, draws: list, backend: str, observer: str) -> Row:
    """Return a row of the fake-quantized model, which an engine follows to one step a node."""
    config = {"target": {"backend": backend}, "quantize": {"activations": {"observer": observer}}}
    prepared = qtool.prepare(model, photos.images[:2], config)

    def quantize(chosen: list[int]) -> Callable[[Tensor], Tensor]:
        prepared.reset()
        qtool.calibrate(prepared, [photos.images[chosen]])
        return prepared

    return measure(f"{observer}, {backend}", photos, draws, quantize, None)


def torchs(model: nn.Module, photos: Photos, draws: list, engine: str) -> Row:
    def quantize(chosen: list[int]) -> Callable[[Tensor], Tensor]:
        torch.backends.quantized.engine = engine
        prepared = prepare_fx(model, get_default_qconfig_mapping(engine), (photos.images[:2],))
        prepared(photos.images[chosen])
        return convert_fx(prepared)

    return measure(f"torch.ao {engine}, its defaults", photos, draws, quantize, None)


def measure(name: str, photos: Photos, draws: list, quantize: Callable[[list[int]], Any], must: float | None) -> Row:
    """Return the means over all draws; `quantize` gets the photos to calibrate on and gives the int8 model."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    sqnrs, agreements, accuracies = [], [], []
    with torch.no_grad():
        for chosen, others in draws:
            logits = quantize(chosen)(photos.images)
            sqnrs.append(sqnr(photos.logits, logits))
            same = logits[others].argmax(1) == photos.logits[others].argmax(1)
            agreements.append(float(same.float().mean()))
            accuracies.append(float((logits.argmax(1) == photos.labels).float().mean()))
    means = [sum(values) / len(values) for values in (sqnrs, agreements, accuracies)]
    return Row(name=name, sqnr_db=means[0], agreement=means[1], accuracy=means[2], must_db=must)


def sqnr(exact: Tensor, found: Tensor) -> float:
    exact, found = exact.double(), found.double()
    return 10 * math.log10(float(exact.square().sum() / (exact - found).square().sum()))


def show(rows: list[Row], num_draws: int) -> None:
    table = Table(title=f"EfficientNet-Lite0, mean over {num_draws} draws of ten photos")
    for heading in ("", "SQNR dB", "agreement", "accuracy", "must"):
        table.add_column(heading, justify="left" if not heading else "right")
    for row in rows:
        must = "" if row.must_db is None else f"{row.must_db} dB, .95: {'met' if row.is_met else 'MISSED'}"
        table.add_row(row.name, f"{row.sqnr_db:.2f}", f"{row.agreement:.3f}", f"{row.accuracy:.3f}", must)
    Console(width=110).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
