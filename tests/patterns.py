"""Small models, one per pattern that can run in int8; each with its example input and what to expect of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Pattern:
    """A model and the shape of its input; `islands` counts the nodes that must stay float.

    Dimension 0 of the input is the batch, unless `has_batch` is False.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    islands: int = 0
    has_batch: bool = True


class Lambda(nn.Module):
    """Layers by name, and a function of them."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        return self.function(self, x)


class PaddedConv(nn.Conv2d):
    """A convolution by subclass, with its own forward and uneven padding."""

    def forward(self, x):
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias, self.stride)


def trained_batch_norm(kind, channels):
    """A batch norm whose parameters are not the ones it starts with; one gamma negative, one tiny, one zero."""
    layer = kind(channels)
    generator = torch.Generator().manual_seed(channels)
    layer.running_mean.copy_(torch.randn(channels, generator=generator))
    layer.running_var.copy_(torch.rand(channels, generator=generator) + 0.2)
    gamma = torch.rand(channels, generator=generator) + 0.5
    gamma[0], gamma[1], gamma[2] = -0.7, 1e-12, 0.0
    layer.weight.data.copy_(gamma)
    layer.bias.data.copy_(torch.randn(channels, generator=generator))
    return layer


def bn1d(channels):
    return trained_batch_norm(nn.BatchNorm1d, channels)


def bn2d(channels):
    return trained_batch_norm(nn.BatchNorm2d, channels)


def conv(i=4, o=8, k=3, **kwargs):
    return nn.Conv2d(i, o, k, **kwargs)


def dead_channels(layer):
    """A channel without weight and without bias, one with a bias alone, and one whose bias dwarfs its weight."""
    layer.weight.data[:2], layer.bias.data[:2] = 0.0, torch.tensor([0.0, 0.7])
    layer.weight.data[2] *= 1e-9
    return layer


IMAGE = (4, 4, 12, 12)
LARGE = (4, 4, 24, 24)
SIGNAL = (4, 4, 40)
ROW = (16, 24)

PATTERNS: dict[str, Pattern] = {
    "conv1d": Pattern(lambda: nn.Conv1d(4, 8, 3, padding=1), SIGNAL),
    "conv1d_bn_relu": Pattern(lambda: nn.Sequential(nn.Conv1d(4, 8, 5, stride=2), bn1d(8), nn.ReLU()), SIGNAL),
    "conv1d_depthwise": Pattern(lambda: nn.Conv1d(4, 4, 3, groups=4), SIGNAL),
    "conv2d": Pattern(conv, IMAGE),
    "conv2d_one_by_one": Pattern(lambda: conv(k=1), IMAGE),
    "conv2d_bn": Pattern(lambda: nn.Sequential(conv(bias=False), bn2d(8)), IMAGE),
    "conv2d_bn_relu": Pattern(lambda: nn.Sequential(conv(padding=1), bn2d(8), nn.ReLU()), IMAGE),
    "conv2d_bn_relu_inplace": Pattern(lambda: nn.Sequential(conv(), bn2d(8), nn.ReLU(inplace=True)), IMAGE),
    "conv2d_relu6": Pattern(lambda: nn.Sequential(conv(), Lambda(lambda m, x: x * 1), nn.ReLU6()), IMAGE, islands=2),
    "conv2d_bn_relu6": Pattern(lambda: nn.Sequential(conv(), bn2d(8), nn.ReLU6()), IMAGE),
    "conv2d_hardtanh": Pattern(lambda: nn.Sequential(conv(), nn.Hardtanh(-0.25, 0.5)), IMAGE),
    "conv2d_clamp": Pattern(lambda: Lambda(lambda m, x: torch.clamp(m.a(x), min=-0.1), a=conv()), IMAGE),
    "conv2d_strided_dilated": Pattern(lambda: conv(stride=2, dilation=2, padding=3), IMAGE),
    "conv2d_grouped": Pattern(lambda: conv(groups=2), IMAGE),
    "conv2d_depthwise": Pattern(lambda: nn.Sequential(conv(4, 4, groups=4), bn2d(4), nn.ReLU6()), IMAGE),
    "conv2d_subclass": Pattern(lambda: nn.Sequential(PaddedConv(4, 8, 3), nn.ReLU()), IMAGE),
    "conv2d_chain": Pattern(lambda: nn.Sequential(conv(), nn.ReLU(), conv(8, 6), bn2d(6), conv(6, 8, 1)), IMAGE),
    "linear": Pattern(lambda: nn.Linear(24, 10), ROW),
    "linear_no_bias": Pattern(lambda: nn.Linear(24, 10, bias=False), ROW),
    "linear_bn_relu": Pattern(lambda: nn.Sequential(nn.Linear(24, 10), bn1d(10), nn.ReLU()), ROW),
    "linear_relu6": Pattern(lambda: nn.Sequential(nn.Linear(24, 10), nn.ReLU6()), ROW),
    "linear_three_dims": Pattern(lambda: nn.Linear(24, 10), (4, 7, 24)),
    "add": Pattern(lambda: Lambda(lambda m, x: m.a(x) + m.b(x), a=conv(), b=conv()), IMAGE),
    "add_relu": Pattern(lambda: Lambda(lambda m, x: F.relu(m.a(x) + x), a=conv(4, 4, padding=1)), IMAGE),
    "add_relu_inplace": Pattern(lambda: Lambda(lambda m, x: F.relu_(m.a(x).add_(m.b(x))), a=conv(), b=conv()), IMAGE),
    "mul": Pattern(lambda: Lambda(lambda m, x: m.a(x) * m.b(x), a=conv(), b=conv()), IMAGE),
    "mul_relu": Pattern(lambda: Lambda(lambda m, x: F.relu(m.a(x) * m.b(x)), a=conv(), b=conv()), IMAGE),
    "mul_broadcast": Pattern(
        lambda: Lambda(lambda m, x: m.a(x) * F.adaptive_avg_pool2d(m.b(x), 1), a=conv(), b=conv()), IMAGE
    ),
    "cat": Pattern(lambda: Lambda(lambda m, x: torch.cat([m.a(x), m.b(x)], 1), a=conv(), b=conv()), IMAGE),
    "cat_relu": Pattern(lambda: Lambda(lambda m, x: F.relu(torch.cat([m.a(x), m.b(x)], 1)), a=conv(), b=conv()), IMAGE),
    "max_pool1d": Pattern(lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.MaxPool1d(3, 2, 1)), SIGNAL),
    "max_pool2d": Pattern(lambda: nn.Sequential(conv(), nn.MaxPool2d(3, 2, 1, ceil_mode=True), conv(8, 4)), IMAGE),
    "max_pool2d_large": Pattern(
        lambda: nn.Sequential(conv(), nn.MaxPool2d((3, 2), 2, (1, 0), dilation=2), conv(8, 4)), LARGE
    ),
    "avg_pool1d": Pattern(lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.AvgPool1d(2)), SIGNAL),
    "avg_pool2d": Pattern(lambda: nn.Sequential(conv(), nn.AvgPool2d(3, 2, padding=1), conv(8, 4)), IMAGE),
    "adaptive_avg_pool2d": Pattern(
        lambda: nn.Sequential(conv(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), IMAGE
    ),
    "mean": Pattern(lambda: Lambda(lambda m, x: m.b(m.a(x).mean((2, 3))), a=conv(), b=nn.Linear(8, 5)), IMAGE),
    "view": Pattern(
        lambda: Lambda(lambda m, x: m.b(m.a(x).view(x.size(0), -1)), a=conv(4, 2), b=nn.Linear(200, 5)), IMAGE
    ),
    "permute": Pattern(
        lambda: Lambda(lambda m, x: m.b(m.a(x).permute(0, 2, 3, 1)), a=conv(), b=nn.Linear(8, 5)), IMAGE
    ),
    "transpose": Pattern(
        lambda: Lambda(lambda m, x: m.b(m.a(x).transpose(1, 2)), a=nn.Linear(24, 6), b=nn.Linear(7, 5)), (4, 7, 24)
    ),
    "slice": Pattern(lambda: Lambda(lambda m, x: m.a(x)[:, :4] + m.a(x)[:, 4:], a=conv()), IMAGE),
    "split": Pattern(lambda: Lambda(lambda m, x: m.b(m.a(x).split([3, 5], 1)[1]), a=conv(), b=conv(5, 4)), IMAGE),
    "chunk": Pattern(lambda: Lambda(lambda m, x: torch.cat(m.a(x).chunk(2, 1)[::-1], 1), a=conv()), IMAGE),
    "dropout": Pattern(lambda: nn.Sequential(conv(), nn.Dropout(0.5), conv(8, 4)), IMAGE),
    "pad": Pattern(lambda: nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), conv(), nn.ZeroPad2d(1), conv(8, 4)), IMAGE),
    "pad_reflect": Pattern(
        lambda: nn.Sequential(conv(), nn.ReflectionPad2d(1), conv(8, 4, padding=1, padding_mode="circular")), IMAGE
    ),
    "pad_with_a_number": Pattern(lambda: nn.Sequential(conv(), nn.ConstantPad2d(1, 2.0), conv(8, 4)), IMAGE, islands=1),
    "padding_same": Pattern(
        lambda: nn.Sequential(conv(padding="same"), conv(8, 4, (4, 2), dilation=(1, 3), padding="same")), IMAGE
    ),
    "padding_same_1d": Pattern(lambda: nn.Conv1d(4, 4, 4, padding="same"), SIGNAL),
    "pixel_shuffle": Pattern(lambda: nn.Sequential(conv(), nn.PixelShuffle(2), conv(2, 4)), IMAGE),
    "upsample_nearest": Pattern(lambda: nn.Sequential(conv(), nn.Upsample(scale_factor=2), conv(8, 4)), IMAGE),
    "stack": Pattern(lambda: Lambda(lambda m, x: torch.stack([m.a(x), m.b(x)], 1), a=conv(), b=conv()), IMAGE),
    "without_batch": Pattern(
        lambda: nn.Sequential(conv(), nn.ReLU(), nn.MaxPool2d(2), conv(8, 4)), (4, 40, 40), has_batch=False
    ),
    "without_batch_1d": Pattern(
        lambda: nn.Sequential(nn.Conv1d(4, 8, 3), nn.MaxPool1d(2), nn.Conv1d(8, 4, 3)), (4, 300), has_batch=False
    ),
    "one_row": Pattern(lambda: nn.Linear(24, 200), (24,), has_batch=False),
    "dead_channels": Pattern(lambda: nn.Sequential(dead_channels(conv()), conv(8, 4)), IMAGE),
    "relu_alone": Pattern(lambda: Lambda(lambda m, x: F.relu(t := m.a(x)) + t, a=conv()), IMAGE),
    "called_twice": Pattern(lambda: Lambda(lambda m, x: m.a(m.a(x) * 50), a=conv(4, 4, padding=1)), IMAGE, islands=1),
    "tuple_output": Pattern(lambda: Lambda(lambda m, x: (m.a(x), {"b": m.b(x)}), a=conv(), b=conv()), IMAGE),
    "float_island": Pattern(lambda: nn.Sequential(conv(), nn.SiLU(), conv(8, 4)), IMAGE, islands=1),
}
"""By name. The input shapes are large enough for every end of every range to be met."""


def make_pattern(name: str) -> tuple[nn.Module, torch.Tensor]:
    """Return the model of a pattern with fixed weights, and a calibration input."""
    pattern = PATTERNS[name]
    torch.manual_seed(sum(map(ord, name)))
    model = pattern.build().eval()
    return model, torch.randn(pattern.shape)
