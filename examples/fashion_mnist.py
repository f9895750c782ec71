"""A small CNN on Fashion-MNIST: float, PTQ, QAT by a plain loop, on every engine of this machine.

`make data` fetches the pictures and `make demo` runs this; its files are in out/. The training loop is own_loop.py.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from fashion_data import Pictures, load_pictures
from fashion_nets import SmallNet
from own_loop import accuracy, fit, train_quantized
from torch import nn

import qtool
from qtool.lowering.engine_switch import available_engines

OUT = Path(__file__).parent.parent / "out"
ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")


def calibrate_only(net: nn.Module, train: Pictures, config: dict) -> nn.Module:
    """Return the net prepared for PTQ and calibrated on 1000 pictures."""
    prepared = qtool.prepare(net, train.images[:2], config)
    qtool.calibrate(prepared, train.images[:1000].split(100))
    return prepared


def int8_accuracy(prepared: nn.Module, name: str, test: Pictures) -> float:
    """Return how many per cent the int8 model gets right, converted, saved, loaded, and run on its engine."""
    file = OUT / f"fashion-{name}.pt2"
    qtool.save(qtool.convert(prepared), file)
    percent = accuracy(qtool.load(file), test.images, test.labels)
    say(f"{name}: {percent:.2f} %, {file.stat().st_size / 1e3:.0f} kB")
    return percent


def engines_here() -> Iterator[str]:
    """Yield the engines that this machine has, and say which it has not."""
    for engine in ENGINES:
        if engine in available_engines():
            yield engine
        else:
            say(f"NOT MEASURED: this torch has no engine {engine} on this machine")


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


def main() -> None:
    """Run the whole example."""
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(0)
    train, test = load_pictures("train", limit=12_000), load_pictures("test")
    net = SmallNet()
    fit(net, train.images, train.labels, epochs=5, rate=0.1)
    torch.save(net.state_dict(), OUT / "fashion.pth")
    before = accuracy(net, test.images, test.labels)
    say(f"float: {before:.2f} %, trained on {len(train)} pictures, {len(test)} others to test")

    rows = {}
    for engine in engines_here():
        config = {"target": {"backend": engine}}
        ptq = int8_accuracy(calibrate_only(net, train, config), f"{engine}-ptq", test)
        qat = int8_accuracy(train_quantized(net, train.images, train.labels, config), f"{engine}-qat", test)
        rows[engine] = ptq, qat

    say(f"\n{train.name + ', %':18}  float    PTQ    QAT")
    for engine, (ptq, qat) in rows.items():
        say(f"{engine:18}  {before:5.2f}  {ptq:5.2f}  {qat:5.2f}")


if __name__ == "__main__":
    main()
