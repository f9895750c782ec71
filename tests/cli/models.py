"""Models and data that configs in these tests name, with the bad manners of real ones."""

import os
import sys
import time

import torch
from torch import nn


def noisy_classifier():
    """Return a small classifier, printing in the ways that user code does."""
    print("noise: the factory prints")  # noqa: T201 (what user code does)
    os.write(1, b"noise: from C\n")
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )


def loud_classifier():
    """Return a small classifier whose convolution saturates where pairs are summed in int16; its linear cannot."""
    model = noisy_classifier()
    with torch.no_grad():
        model[0].weight.fill_(0.1)
        model[4].weight.copy_(torch.eye(4, 8))
    return model


def slow_classifier():
    """Say that work began and take long: somebody will press Ctrl-C."""
    sys.stderr.write("the model is being built\n")
    sys.stderr.flush()
    time.sleep(60)
    return noisy_classifier()


def broken_classifier():
    message = "weights of this model moved to another server"
    raise RuntimeError(message)


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError


def unreadable_failure():
    raise UnreadableError


def exiting_classifier():
    sys.exit(0)


def labelled_noise(count=8):
    """Yield samples with labels, printing meanwhile."""
    print("noise: the data prints")  # noqa: T201
    generator = torch.Generator().manual_seed(1)
    for index in range(count):
        yield torch.randn(3, 8, 8, generator=generator), index % 4
