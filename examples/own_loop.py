"""QAT in a training loop of one's own: prepare, train like any module, convert.

    python examples/own_loop.py

takes some seconds, on scikit-learn's digits. A prepared model is a torch.nn.Module: the loop that trained the float
model trains it too.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import qtool
from qtool.config.schema import DigitsSource
from qtool.data.sources import open_source

OUT = Path(__file__).parent.parent / "out"
BATCH = 128


def fit(model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, rate: float, seed: int = 0) -> None:
    """Train with SGD; the learning rate falls along half a cosine. The model is left in eval mode."""
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
    num_whole = len(images) // BATCH * BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * num_whole // BATCH)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=draw)[:num_whole].split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    model.eval()


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> float:
    """Return how many per cent are right."""
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True))
    return 100 * right / len(images)


def calibrated(net: nn.Module, images: Tensor, config: dict) -> nn.Module:
    """Return the net prepared, with ranges from the first thousand pictures."""
    prepared = qtool.prepare(net, images[:2], config)
    qtool.calibrate(prepared, images[:1000].split(100))
    return prepared


def train_quantized(net: nn.Module, images: Tensor, labels: Tensor, config: dict) -> nn.Module:
    """Return a trained float net prepared for QAT, with ranges to start from, and trained on."""
    prepared = calibrated(net, images, {**config, "quantize": {"mode": "qat", **config.get("quantize", {})}})
    fit(prepared, images, labels, epochs=1, rate=0.01)
    prepared.freeze_observers()  # the last epoch trains for the very scales, means and deviations that are kept
    prepared.freeze_batch_norms()
    fit(prepared, images, labels, epochs=1, rate=0.001)
    return prepared


def digits(split: str) -> tuple[Tensor, Tensor]:
    """Return pictures (N, 1, 8, 8) and classes (N,)."""
    (batch,) = open_source(DigitsSource(kind="digits", split=split, batch_size=2000), inputs=(), base=OUT).batches()
    return batch.inputs[0], batch.labels


def small_net() -> nn.Module:
    """Return an untrained net for 8x8 pictures."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def main() -> None:
    """Train in float, train on quantized, and compare what runs."""
    torch.manual_seed(0)
    train, test = digits("train"), digits("test")
    net = small_net()
    fit(net, *train, epochs=20, rate=0.1)
    prepared = train_quantized(net, *train, {"target": {"backend": "fbgemm"}})
    OUT.mkdir(exist_ok=True)
    qtool.save(qtool.convert(prepared), OUT / "digits-fbgemm.pt2")
    int8 = qtool.load(OUT / "digits-fbgemm.pt2")
    print(f"float          {accuracy(net, *test):.2f} %")
    print(f"int8, trained  {accuracy(int8, *test):.2f} %, on {int8.engine}")


if __name__ == "__main__":
    main()
