"""How many output steps the ops without weight are off on each engine, run with that engine as torch's global one."""

import torch
from torch.nn import functional

SHAPES = ((2, 8, 9, 9), (1, 33, 5, 7))


def largest_steps(engine):
    """Return the largest distance in steps to the reference, for each op and variant."""
    torch.backends.quantized.engine = engine
    generator = torch.Generator().manual_seed(0)
    largest = {}
    for shape in SHAPES:
        for layout in (torch.contiguous_format, torch.channels_last):
            a, b = (torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator) for _ in range(2))
            a, b = (codes.contiguous(memory_format=layout) for codes in (a, b))
            suffix = "" if layout is torch.contiguous_format else ", channels_last"
            for name, found, expected in _ops(_Codes(a, 0.013, 17), _Codes(b, 0.021, 130)):
                steps = int((found.int_repr().double() - expected).abs().max())
                largest[name + suffix] = max(largest.get(name + suffix, 0), steps)
    return largest


class _Codes:
    """Codes with their parameters: as torch's quantized tensor, and as real numbers."""

    def __init__(self, codes, scale, zero_point):
        self.codes, self.scale, self.zero_point = codes, scale, zero_point
        self.tensor = torch._make_per_tensor_quantized_tensor(codes, scale, zero_point)
        self.real = (codes.double() - zero_point) * scale

    def quantized(self, real):
        return _quantize(real, self.scale, self.zero_point)


def _quantize(real, scale, zero_point):
    inverse = torch.tensor(1 / scale, dtype=torch.float32).double()
    return (torch.round(real * inverse) + zero_point).clamp(0, 255)


def _output_parameters(real):
    """Parameters that clamp a part of the outputs at both ends."""
    low, high = torch.quantile(real.flatten(), torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
    low, high = min(low, 0.0), max(high, 0.0)
    scale = torch.tensor((high - low) / 255, dtype=torch.float32).item()
    return scale, max(0, min(255, round(-low / scale)))


def _ops(a, b):
    """Yield (name, what the engine gives, what it should give)."""
    ops = torch.ops.quantized
    for name, real in (("add", a.real + b.real), ("mul", a.real * b.real)):
        parameters = _output_parameters(real)
        yield name, getattr(ops, name)(a.tensor, b.tensor, *parameters), _quantize(real, *parameters)
        clamped = real.clamp(min=0)
        yield (
            f"{name} relu",
            getattr(ops, f"{name}_relu")(a.tensor, b.tensor, *parameters),
            _quantize(clamped, *parameters),
        )
    same = _Codes(b.codes, a.scale, a.zero_point)
    joined = torch.cat([a.codes, b.codes], 1).double()
    yield "cat", ops.cat([a.tensor, same.tensor], 1, a.scale, a.zero_point), joined
    for name, dilation in (("max_pool", 1), ("max_pool, dilation 2", 2)):
        arguments = (3, 1, 1, dilation)
        yield name, functional.max_pool2d(a.tensor, *arguments), functional.max_pool2d(a.codes.double(), *arguments)
    for name, counts in (("avg_pool", True), ("avg_pool, padding not counted", False)):
        arguments = (3, 2, 1, False, counts)
        real = functional.avg_pool2d(a.real, *arguments)
        yield name, functional.avg_pool2d(a.tensor, *arguments), a.quantized(real)
    real = functional.adaptive_avg_pool2d(a.real, 2)
    yield "adaptive avg_pool", functional.adaptive_avg_pool2d(a.tensor, 2), a.quantized(real)
    for axes in ((2, 3), (1,)):
        yield f"mean {axes}", torch.mean(a.tensor, axes), a.quantized(a.real.mean(axes))
    yield (
        "bilinear",
        functional.interpolate(a.tensor, scale_factor=2, mode="bilinear"),
        a.quantized(functional.interpolate(a.real, scale_factor=2, mode="bilinear")),
    )
    yield from _functions(a)
    yield "relu", torch.relu(a.tensor), a.quantized(a.real.clamp(min=0))
    yield "hardtanh", torch.clamp(a.tensor, -0.1, 1.0), a.quantized(a.real.clamp(-0.1, 1.0))


def _functions(a):
    """Yield the functions of one value: those whose output parameters are fixed, and those that are given some."""
    ops = torch.ops.quantized
    yield "sigmoid", torch.sigmoid(a.tensor), _quantize(a.real.sigmoid(), 1 / 256, 0)
    yield "hardsigmoid", functional.hardsigmoid(a.tensor), _quantize(functional.hardsigmoid(a.real), 1 / 256, 0)
    yield "tanh", torch.tanh(a.tensor), _quantize(a.real.tanh(), 1 / 128, 128)
    yield "softmax", ops.softmax(a.tensor, 1, 1 / 256, 0), _quantize(a.real.softmax(1), 1 / 256, 0)
    real = functional.hardswish(a.real)
    parameters = _output_parameters(real)
    yield "hardswish", ops.hardswish(a.tensor, *parameters), _quantize(real, *parameters)
    real = functional.leaky_relu(a.real, 0.1)
    parameters = _output_parameters(real)
    yield "leaky_relu", ops.leaky_relu(a.tensor, 0.1, False, *parameters), _quantize(real, *parameters)


def prelu_steps(request):
    """Return the largest distance in steps of prelu with one slope, whose code is the largest or not."""
    engine, slope, code = request
    torch.backends.quantized.engine = engine
    a = _Codes(torch.arange(256, dtype=torch.uint8).view(1, 1, -1), 0.02, 100)
    real = torch.where(a.real > 0, a.real, a.real * slope)
    parameters = _output_parameters(real)
    weight = torch._make_per_tensor_quantized_tensor(torch.tensor([code], dtype=torch.uint8), slope / code, 0)
    found = torch.ops.quantized.prelu(a.tensor, weight, *parameters)
    return int((found.int_repr().double() - _quantize(real, *parameters)).abs().max())
