"""EfficientNet-Lite0 with its ImageNet weights, to int8 for two backends, from Python.

Calibrates on ten of twenty labelled photos, evaluates on the other ten, and shows what `inspect` says of a file that is
asked to run where it does not fit. `make demo` runs this; its files are in out/. examples/lite0.sh does the same by
commands.
"""

from pathlib import Path

import torch

import qtool
from qtool.config.load import load_config
from qtool.data.sources import open_source
from qtool.report.text import render_text
from qtool.workflows.evaluate import Evaluation, evaluate
from qtool.workflows.float_model import build_model

ROOT = Path(__file__).parent.parent
OUT = ROOT / "out"
BACKENDS = ("fbgemm", "qnnpack")


def quantize(backend: str) -> tuple[Path, Evaluation]:
    """Return the int8 file for one backend, and how it compares with the float model."""
    # The config names the model and the photos. With a model and tensors of your own you need neither: see the README.
    config = load_config(ROOT / "configs" / f"efficientnet-lite0-{backend}.yaml")
    model = build_model(config)
    calibration = open_source(config.data.calibrate, inputs=config.model.inputs, base=config.base)
    evaluation = open_source(config.data.evaluate, inputs=config.model.inputs, base=config.base)

    prepared = qtool.prepare(model, torch.zeros(2, 3, 224, 224), config)
    say(f"{backend}: {len(prepared.plan.int8_nodes())} of {len(prepared.plan.nodes)} nodes planned in int8")

    qtool.calibrate(prepared, calibration.batches())
    say(f"{backend}: calibrated on {len(calibration)} photos")

    file = OUT / f"lite0-{backend}.pt2"
    qtool.save(qtool.convert(prepared), file)
    say(f"{backend}: converted and saved as {file.relative_to(ROOT)}")

    result = evaluate(qtool.load(file), model, evaluation.batches())
    say(f"{backend}: loaded and evaluated on {len(evaluation)} other photos")
    return file, result


def show(title: str, report: qtool.Report) -> None:
    """Print what `inspect` found."""
    say(f"\n--- {title}\n{render_text(report)}")


def show_table(results: dict[str, tuple[Path, Evaluation]]) -> None:
    """Print one row for the float model and one for each backend."""
    say(f"{'':8}  accuracy  agreement  SQNR dB     size MB")
    _, one = results[BACKENDS[0]]
    say(f"{'float':8}  {one.float_accuracy:8.2f}  {'':9}  {'':7}  {one.float_bytes / 1e6:10.2f}")
    for backend, (file, int8) in results.items():
        size = file.stat().st_size / 1e6
        say(f"{backend:8}  {int8.accuracy:8.2f}  {int8.agreement:9.2f}  {int8.sqnr_db:7.1f}  {size:10.2f}")


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


def main() -> None:
    """Run the whole example."""
    OUT.mkdir(exist_ok=True)
    results = {backend: quantize(backend) for backend in BACKENDS}
    for file, _ in results.values():
        show(file.name, qtool.inspect(file))
    file, _ = results["qnnpack"]
    show(f"{file.name} on fbgemm, on a CPU without VNNI?", qtool.inspect(file, backend="fbgemm", isa="no-vnni"))
    show_table(results)


if __name__ == "__main__":
    main()
