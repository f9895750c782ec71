"""Layers for the tests: each op with kernels of its own, weights near the bound, and how engines run them."""

from dataclasses import dataclass

import numpy as np

from qtool.backends.faults import conv_fault
from qtool.backends.record import Support
from qtool.backends.registry import backend
from qtool.saturation.pairs import bounds_of
from qtool.saturation.verdict import Layer
from qtool.types import TRANSPOSED_CONVOLUTIONS, Op
from tests.backends.engines.cases import WorstCase

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")
WAYS = {"fbgemm": ("fbgemm",), "x86": ("x86", "plain"), "onednn": ("onednn", "plain"), "qnnpack": ("qnnpack",)}


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomLayer:
    """A layer without a model around it; the weight has its output channels first."""

    op: Op
    weight: np.ndarray
    groups: int
    a_hi: int

    @property
    def depthwise(self):
        return self.groups > 1 and self.weight.shape[1] == 1

    @property
    def layer(self):
        return Layer(
            op=self.op,
            a_lo=0,
            a_hi=self.a_hi,
            depthwise=self.depthwise,
            channel_multiplier=len(self.weight) // self.groups if self.depthwise else None,
            bounds=bounds_of(self.weight, 0, self.a_hi),
        )

    def runs_on(self, engine):
        rows = self.weight.shape[1] * self.groups, len(self.weight) // self.groups
        shape = (*rows, *self.weight.shape[2:]) if self.op in TRANSPOSED_CONVOLUTIONS else self.weight.shape
        record = backend(engine)
        is_supported = record.rule(self.op).support is not Support.UNSUPPORTED
        return is_supported and not conv_fault(record, self.op, shape, self.groups)

    def case(self, way):
        return WorstCase(
            way=way,
            op=self.op.value,
            shape=self.weight.shape,
            weight=self.weight.ravel().tolist(),
            groups=self.groups,
            a_hi=self.a_hi,
        )


def random_layer(generator):
    """A layer of any op, whose weights lie around what two of them may add up to."""
    op = generator.choice(
        [Op.LINEAR, Op.CONV1D, Op.CONV2D, Op.CONV2D, Op.CONV2D, Op.CONV3D, Op.CONV_TRANSPOSE1D, Op.CONV_TRANSPOSE2D]
    )
    dims = {Op.LINEAR: 0, Op.CONV1D: 1, Op.CONV3D: 3, Op.CONV_TRANSPOSE1D: 1}.get(op, 2)
    kernel = tuple([int(generator.choice([1, 3, 5] if dims < 3 else [1, 3]))] * dims)
    kind = generator.choice(["dense", "grouped", "depthwise"]) if dims else "dense"
    groups = 1 if kind == "dense" else int(generator.choice([2, 4, 8, 16, 24, 104] if kind == "depthwise" else [2, 4]))
    per_group = 1 if kind == "depthwise" else int(generator.integers(1, 20))
    outputs = int(generator.choice([1, 1, 2, 4])) if kind == "depthwise" else int(generator.integers(1, 20))
    a_hi = int(generator.choice([255, 255, 200, 150, 127]))
    shape = (groups * outputs, per_group, *kernel)
    return RandomLayer(op=Op(op), weight=_weights(shape, a_hi, generator), groups=groups, a_hi=a_hi)


def _weights(shape, a_hi, generator):
    """Small weights, as most layers have; sometimes many at the bound, or two of one channel just past it."""
    most = 32767 // a_hi  # what two weights of one sign may add up to
    weight = np.round(generator.normal(0, generator.choice([5, 15, most / 6]), shape)).clip(-most // 2, most // 2)
    kind = generator.choice(["small", "many at the bound", "two past the bound"])
    if kind == "many at the bound":
        large = generator.random(shape) < generator.choice([0.02, 0.2, 1])
        weight = np.where(
            large, generator.choice([-1, 1], shape) * (most // 2 + generator.choice([-1, 0, 1, 20])), weight
        )
    elif kind == "two past the bound":
        weight = np.trunc(weight / 4)
        rows = np.moveaxis(weight, 1, -1).reshape(len(weight), -1)  # the input channels innermost
        first = int(generator.integers(0, rows.shape[1]))
        second = generator.choice([first ^ 1, first + 1, int(generator.integers(0, rows.shape[1]))])
        places = [first, min(int(second), rows.shape[1] - 1)]
        rows[int(generator.integers(0, len(rows))), places] = generator.choice([-1, 1]) * min(127, most // 2 + 2)
        weight = np.moveaxis(rows.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    return weight.clip(-127, 127).astype(np.int8)
