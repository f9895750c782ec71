"""A small convolutional network for scikit-learn's digits, which configs/digits-fbgemm-qat.yaml trains."""

from torch import nn


def digits_net() -> nn.Module:
    """Return a network of 19 258 parameters that takes pictures (N, 1, 8, 8) and gives scores of ten digits (N, 10)."""
    return nn.Sequential(
        *_block(1, 16),
        *_block(16, 32),
        nn.MaxPool2d(2),
        *_block(32, 48),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(48, 10),
    )


def _block(num_inputs: int, num_outputs: int) -> list[nn.Module]:
    conv = nn.Conv2d(num_inputs, num_outputs, 3, padding=1, bias=False)
    return [conv, nn.BatchNorm2d(num_outputs), nn.ReLU()]
