"""Two small nets for grey pictures of 28x28 (or 8x8): one as most are built, and one that is hard to quantize."""

import torch
from torch import Tensor, nn


def conv(num_in: int, num_out: int, size: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return convolution, batch norm and relu."""
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, size, stride=stride, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(),
    )


def separable(num_in: int, num_out: int, *, stride: int = 1) -> nn.Sequential:
    """Return a depthwise convolution and a pointwise one, each with batch norm and relu."""
    return nn.Sequential(conv(num_in, num_in, stride=stride, groups=num_in), conv(num_in, num_out, 1))


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, num_channels: int) -> None:
        super().__init__()
        self.first = conv(num_channels, num_channels)
        self.second = nn.Sequential(
            nn.Conv2d(num_channels, num_channels, 3, padding=1, bias=False), nn.BatchNorm2d(num_channels)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return `relu(x + second(first(x)))`."""
        return torch.relu(x + self.second(self.first(x)))


class SmallNet(nn.Module):
    """Convolutions, a residual block, a depthwise-separable stage; 16 thousand parameters."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv(1, 16, stride=2), Residual(16), conv(16, 32, stride=2), separable(32, 64), separable(64, 64)
        )
        self.classifier = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, classes)."""
        return self.classifier(self.features(x).mean((2, 3)))


class DepthwiseNet(nn.Module):
    """Depthwise-separable stages and little else, as MobileNet: with one scale a tensor int8 costs it accuracy."""

    def __init__(self, num_classes: int = 10, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        stages = [separable(2 * width, 2 * width) for _ in range(depth)]
        self.features = nn.Sequential(conv(1, width, stride=2), separable(width, 2 * width, stride=2), *stages)
        self.classifier = nn.Linear(2 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (N, classes)."""
        return self.classifier(self.features(x).mean((2, 3)))
