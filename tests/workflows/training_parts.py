"""A model, samples and losses that configs of these tests name; some end a training in the ways of real life."""

import os
import signal

import torch
from torch import nn


def classifier():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16, 3),
    )


def pooled_classifier():
    """Its batch norm sees one position a sample."""
    pool_first = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(1, 4, 1))
    return nn.Sequential(pool_first, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 3))


class Pictures(torch.utils.data.Dataset):
    """Noise around three pictures, drawn anew each time a sample is asked for, with the class as label.

    After `after` samples it does `then` once: `kill` and `interrupt` as a shell would, `nan` hands out NaN.
    """

    def __init__(self, count, then=None, after=0):
        generator = torch.Generator().manual_seed(0)
        self.means = torch.randn(3, 1, 6, 6, generator=generator)
        self.count = count
        self.then = then
        self.after = after

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.after -= 1
        if self.then is not None and self.after == 0:
            self.happen()
        return self.means[index % 3] + torch.randn(1, 6, 6), index % 3

    def happen(self):
        if self.then == "interrupt":
            raise KeyboardInterrupt
        if self.then == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def pictures(count):
    return Pictures(count)


def pictures_with_an_end(count):
    """As `pictures`, but what the environment says happens after some samples."""
    then, _, after = os.environ.get("QTOOL_TEST_END", "").partition(" ")
    return Pictures(count, then or None, int(after or 0))


def listed_batches(count):
    return [(torch.randn(6, 1, 6, 6), torch.zeros(6, dtype=torch.long)) for _ in range(count // 6)]


def loader(count):
    return torch.utils.data.DataLoader(Pictures(count), batch_size=6)


def nan_pictures(count):
    return [(torch.full((1, 6, 6), torch.nan), index % 3) for index in range(count)]


def unlabelled(count):
    source = Pictures(count)
    return [source[index][0] for index in range(count)]


def nan_in_the_end(outputs, labels):
    """A loss that is NaN from the ninth step on."""
    nan_in_the_end.steps = getattr(nan_in_the_end, "steps", 0) + 1
    factor = float("nan") if nan_in_the_end.steps > 8 else 1.0
    return outputs.square().mean() * factor


CONFIG = {
    "model": {
        "factory": "tests.workflows.training_parts:classifier",
        "random_init": True,
        "inputs": [{"name": "x", "shape": ["batch", 1, 6, 6]}],
    },
    "target": {"backend": "fbgemm"},
    "quantize": {"mode": "qat"},
    "data": {
        "train": {
            "kind": "python",
            "factory": "tests.workflows.training_parts:pictures_with_an_end",
            "kwargs": {"count": 24},
            "batch_size": 6,
        },
        "evaluate": {
            "kind": "python",
            "factory": "tests.workflows.training_parts:pictures",
            "kwargs": {"count": 12},
        },
    },
    "train": {
        "epochs": 4,
        "optimizer": {"kind": "sgd", "lr": 0.1},
        "schedule": {"kind": "cosine", "warmup_epochs": 1},
        "freeze_batch_norm_after": 2,
        "freeze_observers_after": 3,
        "log_every": 1,
        "keep": 9,
        "device": "cpu",
    },
}
