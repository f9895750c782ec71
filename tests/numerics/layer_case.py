"""A layer with all its tensors, and what the textbook says of its parts."""

from math import inf

import torch
from torch.nn.functional import conv2d, conv_transpose2d, hardtanh, linear, relu

from qtool.numerics.coded import Coded
from qtool.numerics.grid import NO_BOUNDS, Bounds, Grid
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.layer import Kept, Layer, LayerTensors, run_layer
from qtool.numerics.product import Convolution, Linear

EPS = 1e-3
PARAMETERS = ["x", "weight", "bias", "gamma", "beta"]


def convolution(groups=1, *, transposed=False, stride=1):
    return Convolution(
        stride=(stride, stride),
        padding=(1, 1),
        dilation=(1, 1),
        output_padding=(0, 0),
        groups=groups,
        transposed=transposed,
    )


PRODUCTS = {
    "convolution": (convolution(), (5, 4, 3, 3)),
    "strided": (convolution(stride=2), (6, 4, 3, 3)),
    "depthwise": (convolution(4), (4, 1, 3, 3)),
    "groups": (convolution(2), (6, 2, 3, 3)),
    "transposed": (convolution(transposed=True), (4, 5, 3, 3)),
    "transposed groups": (convolution(2, transposed=True), (4, 3, 3, 3)),
    "linear": (Linear(), (5, 4)),
}
ACTIVATIONS = {"none": NO_BOUNDS, "relu": Bounds(0.0, inf), "relu6": Bounds(0.0, 0.6)}
NORMS = ["batch", "frozen", "none"]
KEPT = [Kept(codes=codes, result=result) for codes in (False, True) for result in (False, True)]


def grid_of(low, high, qmin=0, qmax=255):
    scale = torch.tensor((high - low) / (qmax - qmin), dtype=torch.float32)
    return Grid(scale, torch.round(qmin - low / scale).to(torch.int32), qmin, qmax)


def weight_grid_of(weight, axis):
    amax = weight.detach().movedim(axis, 0).flatten(1).abs().amax(1)
    scale = (0.9 * amax / 127).float().clamp(min=1e-12)  # so that some are clamped
    return Grid(scale, torch.zeros_like(scale, dtype=torch.int32), -127, 127, axis)


class Case:
    """A layer with its tensors: gammas of 0, 1e-12 and below 0, a result clamped at both ends."""

    def __init__(self, kind, norm, activation, dtype=torch.float64, seed=0, channels_last=False):
        generator = torch.Generator().manual_seed(seed)

        def randn(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        self.product, shape = PRODUCTS[kind]
        self.is_linear = kind == "linear"
        transposed = not self.is_linear and self.product.transposed
        num_channels = shape[1] * self.product.groups if transposed else shape[0]
        self.norm, self.bounds = norm, ACTIVATIONS[activation]
        self.x_grid = grid_of(-1.0, 1.5)
        size = (8, 4) if self.is_linear else (2, 4, 7, 6)
        codes = torch.randint(0, 256, size, generator=generator).to(torch.uint8)
        if channels_last and not self.is_linear:
            codes = codes.contiguous(memory_format=torch.channels_last)
        self.codes = codes
        self.x = decode(codes, self.x_grid, dtype).requires_grad_()
        self.weight = randn(*shape).requires_grad_()
        per_channel = not (transposed and self.product.groups > 1)
        self.weight_grid = weight_grid_of(self.weight, 1 if transposed else 0) if per_channel else None
        self.bias = randn(num_channels).requires_grad_()
        self.gamma = self.beta = self.running = None
        if norm != "none":
            gamma = randn(num_channels)
            gamma[:3] = torch.tensor([0.0, 1e-12, -0.7], dtype=dtype)
            self.gamma, self.beta = gamma.requires_grad_(), randn(num_channels).requires_grad_()
        if norm == "frozen":
            self.running = (randn(num_channels), randn(num_channels).abs() + 0.5)
        self.grid = grid_of(0.0 if activation != "none" else -0.8, 0.5)
        self.target = None

    def layer(self, kept):
        return Layer(product=self.product, bounds=self.bounds, eps=None if self.norm == "none" else EPS, kept=kept)

    def tensors(self):
        return LayerTensors(self.weight, self.weight_grid, self.bias, self.gamma, self.beta, self.running)

    def run(self, kept):
        return run_layer(self.layer(kept), Coded(self.x, self.codes, self.x_grid), self.tensors(), self.grid)

    def leaves(self):
        return {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}

    def gradients(self, values):
        if self.target is None:
            generator = torch.Generator().manual_seed(5)
            self.target = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values.dtype)
        leaves = self.leaves()
        found = torch.autograd.grad(values, list(leaves.values()), self.target, allow_unused=True)
        return dict(zip(leaves, found, strict=True))


def product(case, weight, bias):
    """The product by torch's own functions."""
    if case.is_linear:
        return linear(case.x, weight, bias)
    function = conv_transpose2d if case.product.transposed else conv2d
    return function(case.x, weight, bias, case.product.stride, case.product.padding, groups=case.product.groups)


def spread(case, factor):
    """One number per output channel, laid out to fit the weight."""
    shape = case.weight.shape
    if case.is_linear or not case.product.transposed:
        return factor.view(-1, *[1] * (len(shape) - 1))
    per_group = factor.view(case.product.groups, -1).repeat_interleave(shape[0] // case.product.groups, dim=0)
    return per_group[:, :, None, None]


def activated(case, y):
    if case.bounds == NO_BOUNDS:
        return y
    return relu(y) if case.bounds.high == inf else hardtanh(y, *case.bounds)


def statistics(z):
    dims = [d for d in range(z.dim()) if d != 1]
    return z.mean(dims), z.var(dims, unbiased=False)


def straight_through(x, grid):
    """Fake-quantize by autograd: rounded to the grid, the gradient that of clamping."""
    scale, zero_point = grid.scale.double(), grid.zero_point.double()
    if grid.axis is not None:
        shape = [1] * x.dim()
        shape[grid.axis] = -1
        scale, zero_point = scale.view(shape), zero_point.view(shape)
    steps = (x.detach() * scale.float().reciprocal().double()).round() + zero_point
    codes = steps.clamp(grid.qmin, grid.qmax)
    values = ((codes - zero_point).float() * scale.float()).double()
    passing = torch.where(codes == steps, x, x.detach())
    return values + (passing - passing.detach())


def assert_kept_changes_no_bit(case):
    results = [case.run(kept) for kept in KEPT]
    gradients = [case.gradients(result.coded.values) for result in results]
    for result, found in zip(results[1:], gradients[1:], strict=True):
        assert torch.equal(result.coded.values, results[0].coded.values)
        assert torch.equal(result.coded.codes, results[0].coded.codes)
        for name, gradient in found.items():
            assert torch.equal(gradient, gradients[0][name]), name
