"""Kernel calls for `sums.py`, made without torch: which way, which geometry, which codes."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """One call of a convolution or linear.

    `way` is a torch engine's packed ops (fbgemm, x86, onednn, qnnpack) or `plain`, torch.ops.onednn on uint8 tensors.
    `activation` holds one code per input channel, the same at every position and in every sample.
    """

    way: str
    op: str
    in_channels: int
    out_channels: int
    weight: list[int]
    activation: list[int]
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    groups: int = 1
    batch: int = 1
    per_channel: bool = True


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """A layer for `worst_inputs.py`: a weight with its output channels first, (out, in / groups, *kernel)."""

    way: str
    op: str
    shape: tuple[int, ...]
    weight: list[int]
    groups: int
    a_hi: int


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The shape of a kernel call; no kernel is a linear, one number a conv1d, two a conv2d, three a conv3d."""

    channels: tuple[int, int]  # in, out
    kernel: tuple[int, ...] = ()
    groups: int = 1
    stride: int = 1
    padding: int | None = None  # None: half the kernel, "same" for stride 1
    dilation: int = 1
    batch: int = 1
    per_channel: bool = True

    @property
    def op(self) -> str:
        return f"conv{len(self.kernel)}d" if self.kernel else "linear"

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.channels[0] == self.groups

    @property
    def channel_multiplier(self) -> int:
        return self.channels[1] // self.groups

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.channels[1], self.channels[0] // self.groups, *self.kernel)


def kernel_case(way: str, geometry: Geometry, weight: np.ndarray, activation: int | np.ndarray) -> KernelCase:
    dims = len(geometry.kernel)
    same = tuple(size // 2 for size in geometry.kernel)
    return KernelCase(
        way=way,
        op=geometry.op,
        in_channels=geometry.channels[0],
        out_channels=geometry.channels[1],
        weight=np.asarray(weight).ravel().tolist(),
        activation=np.broadcast_to(activation, geometry.channels[0]).tolist(),
        kernel=geometry.kernel,
        stride=(geometry.stride,) * dims,
        padding=same if geometry.padding is None else (geometry.padding,) * dims,
        dilation=(geometry.dilation,) * dims,
        groups=geometry.groups,
        batch=geometry.batch,
        per_channel=geometry.per_channel,
    )


def weight_patterns(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Worst cases of both signs, and what looks like a weight."""
    generator = np.random.default_rng(0)
    return {
        "positive": np.full(shape, 127),
        "negative": np.full(shape, -127),
        "random": generator.integers(-127, 128, shape),
    }
