"""A small CNN on Fashion-MNIST: float, PTQ, and QAT by a plain loop, on every engine of this machine and as ONNX.

`make data` fetches the pictures and `make demo` runs this; its files are in out/. The training loop is own_loop.py.
"""

from pathlib import Path

import torch
from fashion_data import Pictures, load_pictures
from fashion_nets import SmallNet
from onnx_runtime import exported, missing_packages
from own_loop import accuracy, calibrated, fit, train_quantized
from torch import nn

import qtool
from qtool.lowering.engine_switch import available_engines

OUT = Path(__file__).parent.parent / "out"
# A target, and what runs its file: on fbgemm's reduced ranges nothing on x86 saturates, whatever the CPU.
TARGETS = {"fbgemm": ("fbgemm", "x86", "onednn", "onnxruntime"), "qnnpack": ("qnnpack",)}


def int8_file(prepared: nn.Module, name: str) -> Path:
    """Convert a prepared net, and return the file that it is saved to."""
    file = OUT / f"fashion-{name}.pt2"
    qtool.save(qtool.convert(prepared), file)
    say(f"{file.relative_to(OUT.parent)}: {file.stat().st_size / 1e3:.0f} kB")
    return file


def run(file: Path, engines: tuple[str, ...], test: Pictures) -> dict[str, float]:
    """Return how many per cent a file gets right on each engine that is here, ONNX Runtime for one."""
    results = {}
    for engine in engines:
        is_onnx = engine == "onnxruntime"
        missing = missing_packages() if is_onnx else {engine} - set(available_engines())
        if missing:
            say(f"NOT MEASURED on {engine}: not here: {', '.join(missing)}")
            continue
        model = exported(file, file.with_suffix(".onnx")) if is_onnx else qtool.load(file, engine=engine)
        results[engine] = accuracy(model, test.images, test.labels)
    return results


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


def main() -> None:
    """Run the whole example."""
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(0)
    train, test = load_pictures("train", limit=12_000), load_pictures("test")
    net = SmallNet()
    fit(net, train.images, train.labels, epochs=5, rate=0.2)
    torch.save(net.state_dict(), OUT / "fashion.pth")
    in_float = accuracy(net, test.images, test.labels)
    say(f"float: trained on {len(train)} pictures of {train.name}, {in_float:.2f} % of {len(test)} others are right")

    ptq, qat = {}, {}
    for backend, engines in TARGETS.items():
        config = {"target": {"backend": backend}}
        ptq |= run(int8_file(calibrated(net, train.images, config), f"{backend}-ptq"), engines, test)
        trained = train_quantized(net, train.images[:6_000], train.labels[:6_000], config)
        qat |= run(int8_file(trained, f"{backend}-qat"), engines, test)

    say(f"\n{'':11}  float    PTQ    QAT")
    for engine in ptq:
        say(f"{engine:11}  {in_float:5.2f}  {ptq[engine]:5.2f}  {qat[engine]:5.2f}")


if __name__ == "__main__":
    main()
