"""Small models, one per pattern that can run in int8; each with its example input and what to expect of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Pattern:
    """A model and the shape of its input; `islands` counts the nodes that must stay float, for each backend if need be.

    Dimension 0 of the input is the batch, unless `has_batch` is False.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    islands: int | Mapping[str, int] = 0
    has_batch: bool = True

    def islands_on(self, backend):
        return self.islands if isinstance(self.islands, int) else self.islands.get(backend, 0)


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


def bn3d(channels):
    return trained_batch_norm(nn.BatchNorm3d, channels)


def conv(i=4, o=8, k=3, **kwargs):
    return nn.Conv2d(i, o, k, **kwargs)


def up1d(i=4, o=6, k=3, **kwargs):
    return nn.ConvTranspose1d(i, o, k, **kwargs)


def up2d(i=4, o=6, k=3, **kwargs):
    return nn.ConvTranspose2d(i, o, k, **kwargs)


def loud(layer):
    """A layer with large results, so that a function which levels off reaches its ends."""
    layer.weight.data *= 20
    return layer


def tied(model):
    """Two layers of one weight, with a bias each."""
    model[1].weight = model[0].weight
    return model


class Attention(nn.Module):
    """One head, with a mask of the dtype's minimum above the diagonal."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("mask", torch.full((6, 6), torch.finfo().min).triu(1))

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5 + self.mask
        return self.out(scores.softmax(-1) @ self.v(x))


def dead_channels(layer):
    """A channel without weight and without bias, one with a bias alone, and one whose bias dwarfs its weight."""
    layer.weight.data[:2], layer.bias.data[:2] = 0.0, torch.tensor([0.0, 0.7])
    layer.weight.data[2] *= 1e-9
    return layer


IMAGE = (4, 4, 12, 12)
LARGE = (4, 4, 24, 24)
SIGNAL = (4, 4, 40)
VOLUME = (4, 4, 6, 7, 8)
ROW = (16, 24)
NO_TRANSPOSED = {"onednn": 1, "x86": 1}
"""Engines without a kernel for transposed convolutions."""

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
    "conv3d": Pattern(lambda: nn.Conv3d(4, 8, 3), VOLUME),
    "conv3d_bn_relu": Pattern(
        lambda: nn.Sequential(nn.Conv3d(4, 6, (1, 3, 2), stride=(1, 2, 1), padding=(0, 1, 1)), bn3d(6), nn.ReLU()),
        VOLUME,
    ),
    "conv3d_grouped": Pattern(lambda: nn.Conv3d(4, 8, 2, groups=2, dilation=(2, 1, 1), bias=False), VOLUME),
    "conv3d_depthwise": Pattern(
        lambda: nn.Sequential(nn.Conv3d(4, 8, 1), nn.Conv3d(8, 8, 3, padding=1, groups=8), nn.ReLU6()), VOLUME
    ),
    "conv3d_pools": Pattern(
        lambda: nn.Sequential(
            nn.Conv3d(4, 8, 2, padding="same"),
            nn.MaxPool3d(2, 1, dilation=(1, 2, 1)),
            nn.AvgPool3d(2, 1),
            nn.Conv3d(8, 6, 1),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(6, 4),
        ),
        VOLUME,
    ),
    "conv_transpose1d": Pattern(
        lambda: nn.Sequential(nn.Conv1d(4, 4, 3), up1d(stride=2, padding=1), nn.Conv1d(6, 4, 1)),
        SIGNAL,
        islands=NO_TRANSPOSED,
    ),
    "conv_transpose1d_bn_relu": Pattern(
        lambda: nn.Sequential(nn.Conv1d(4, 4, 3), up1d(4, 6, 4, groups=2, dilation=2, bias=False), bn1d(6), nn.ReLU()),
        SIGNAL,
        islands=NO_TRANSPOSED,
    ),
    "conv_transpose2d": Pattern(
        lambda: nn.Sequential(conv(4, 4), up2d(k=(2, 3), stride=2, output_padding=(1, 0)), conv(6, 4, 1)),
        IMAGE,
        islands=NO_TRANSPOSED,
    ),
    "conv_transpose2d_upsampling": Pattern(
        lambda: nn.Sequential(conv(4, 8), up2d(8, 8, 2, stride=2), conv(8, 4, 1)),
        IMAGE,
        islands={**NO_TRANSPOSED, "fbgemm": 1},
    ),
    "conv_transpose2d_bn_relu": Pattern(
        lambda: nn.Sequential(conv(4, 6), up2d(6, 8, bias=False), bn2d(8), nn.ReLU()), IMAGE, islands=NO_TRANSPOSED
    ),
    "conv_transpose2d_grouped_bn_relu6": Pattern(
        lambda: nn.Sequential(conv(4, 6), up2d(6, 4, 3, stride=2, groups=2), bn2d(4), nn.ReLU6()),
        IMAGE,
        islands=NO_TRANSPOSED,
    ),
    "conv_transpose2d_depthwise": Pattern(
        lambda: nn.Sequential(conv(4, 8), up2d(8, 8, 3, padding=1, groups=8), conv(8, 4, 1)),
        IMAGE,
        islands=NO_TRANSPOSED,
    ),
    "conv_transpose3d": Pattern(
        lambda: nn.Sequential(nn.Conv3d(4, 4, 1), nn.ConvTranspose3d(4, 4, 2), nn.Conv3d(4, 4, 1)), VOLUME, islands=1
    ),
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
    "upsample_1d": Pattern(
        lambda: nn.Sequential(
            nn.Conv1d(4, 8, 3),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(8, 4, 3),
            nn.Upsample(scale_factor=2, mode="linear"),
            nn.Conv1d(4, 4, 1),
        ),
        SIGNAL,
    ),
    "upsample_3d": Pattern(
        lambda: nn.Sequential(
            nn.Conv3d(4, 4, 1),
            nn.Upsample(scale_factor=2),
            nn.Conv3d(4, 4, 2),
            nn.Upsample(scale_factor=2, mode="trilinear"),
            nn.Conv3d(4, 4, 1),
        ),
        VOLUME,
    ),
    "upsample_bilinear": Pattern(
        lambda: nn.Sequential(
            conv(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            conv(8, 4),
            nn.Upsample(size=(7, 15), mode="bilinear", align_corners=True),
            conv(4, 4),
        ),
        IMAGE,
    ),
    "upsample_nearest_exact": Pattern(
        lambda: nn.Sequential(conv(), nn.Upsample(size=(13, 7), mode="nearest-exact"), conv(8, 4)), IMAGE
    ),
    "sigmoid": Pattern(lambda: nn.Sequential(loud(conv()), nn.Sigmoid(), conv(8, 4, 1)), IMAGE),
    "hardsigmoid": Pattern(lambda: nn.Sequential(loud(conv()), nn.Hardsigmoid(), conv(8, 4, 1, bias=False)), IMAGE),
    "tanh": Pattern(lambda: nn.Sequential(loud(conv()), nn.Tanh(), conv(8, 4)), IMAGE),
    "softmax": Pattern(lambda: nn.Sequential(loud(nn.Linear(24, 8)), nn.Softmax(-1), nn.Linear(8, 4)), ROW),
    "sigmoid_moved": Pattern(
        lambda: nn.Sequential(loud(conv(4, 2)), nn.Sigmoid(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(50, 4)), IMAGE
    ),
    "sigmoid_in_a_cat": Pattern(
        lambda: Lambda(lambda m, x: torch.cat([m.a(x).sigmoid(), m.b(x)], 1), a=loud(conv()), b=conv()), IMAGE
    ),
    "squeeze_and_excite": Pattern(
        lambda: Lambda(
            lambda m, x: (t := m.a(x)) * F.hardsigmoid(m.c(F.relu(m.b(F.adaptive_avg_pool2d(t, 1))))),
            a=conv(),
            b=loud(conv(8, 4, 1)),
            c=loud(conv(4, 8, 1)),
        ),
        IMAGE,
    ),
    "hardswish": Pattern(lambda: nn.Sequential(loud(conv()), nn.Hardswish(), conv(8, 4)), IMAGE),
    "leaky_relu": Pattern(lambda: nn.Sequential(conv(), nn.LeakyReLU(0.1), conv(8, 4)), IMAGE),
    "prelu": Pattern(lambda: nn.Sequential(conv(), nn.PReLU(8), conv(8, 4)), IMAGE, islands=1),
    "attention": Pattern(Attention, (4, 6, 8), islands=5),
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
    "one_relu_after_two": Pattern(
        lambda: Lambda(lambda m, x: (m.r(m.a(x)), m.r(m.b(x))), a=conv(), b=loud(conv()), r=nn.ReLU()), IMAGE
    ),
    "tied_linears": Pattern(lambda: tied(nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 24))), ROW),
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
