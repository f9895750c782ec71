"""How far packed transposed convolutions are from the reference arithmetic, in output steps."""

import torch

SIZE = (5, 4)  # of the input
SCALE = 0.02
MAX_SCALE = 0.02  # of the weights


def largest_steps(request):
    """Return the largest distance of any output code for each case, a `Transposed` as dict, run on one engine."""
    engine, cases = request
    torch.backends.quantized.engine = engine
    return [_largest_steps(case) for case in cases]


def _largest_steps(case):
    generator = torch.Generator().manual_seed(0)
    inputs, outputs = case["channels"]
    shape = (inputs, outputs // case["groups"], *case["kernel"])
    num_dims = len(case["kernel"])
    if case["loud"]:
        codes = torch.full(shape, 127, dtype=torch.int8)
        x = torch.full((2, inputs, *SIZE[:num_dims]), case["a_hi"], dtype=torch.uint8)
    else:
        codes = torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator)
        x = torch.randint(0, case["a_hi"] + 1, (2, inputs, *SIZE[:num_dims]), dtype=torch.uint8, generator=generator)
    scales = torch.rand(outputs, generator=generator) * MAX_SCALE + 0.001 if case["per_channel"] else torch.tensor(0.01)
    bias = torch.randn(outputs, generator=generator)
    real = _reference(case, x, codes, scales, bias)
    scale, zero_point = _output_parameters(real)
    expected = (torch.round(real / scale) + zero_point).clamp(0, 255)
    found = _run(case, x, codes, scales, bias, scale, zero_point)
    return int((found.double() - expected).abs().max())


def _reference(case, x, codes, scales, bias):
    dims = [1] * len(case["kernel"])
    weight = codes.double() * (scales.double().view(1, -1, *dims) if case["per_channel"] else scales.double())
    op = torch.nn.functional.conv_transpose1d if len(dims) == 1 else torch.nn.functional.conv_transpose2d
    real = (x.double() - case["zero_point"]) * torch.tensor(SCALE).double()
    return op(real, weight, bias.double(), *_geometry(case, "groups", "dilation"))


def _run(case, x, codes, scales, bias, scale, zero_point):
    ops, num_dims = torch.ops.quantized, len(case["kernel"])
    if case["per_channel"]:
        zeros = torch.zeros(len(scales), dtype=torch.long)
        weight = torch._make_per_channel_quantized_tensor(codes, scales.double(), zeros, 1)
    else:
        weight = torch._make_per_tensor_quantized_tensor(codes, float(scales), 0)
    prepack = ops.conv_transpose1d_prepack if num_dims == 1 else ops.conv_transpose2d_prepack
    packed = prepack(weight, bias, *_geometry(case, "dilation", "groups"))
    op = ops.conv_transpose1d if num_dims == 1 else ops.conv_transpose2d
    x = torch._make_per_tensor_quantized_tensor(x, SCALE, case["zero_point"])
    return op(x, packed, scale, zero_point).int_repr()


def _geometry(case, *last):
    """The order of the last two differs between the float op and the packed one."""
    dims = len(case["kernel"])
    lists = [[case[name]] * dims for name in ("stride", "padding", "output_padding")]
    return (*lists, *([case[name]] * dims if name == "dilation" else case[name] for name in last))


def _output_parameters(real):
    """Parameters that clamp a part of the outputs at both ends."""
    low, high = torch.quantile(real.flatten(), torch.tensor([0.03, 0.97], dtype=torch.double)).tolist()
    low, high = min(low, 0.0), max(high, 1e-3)
    scale = torch.tensor((high - low) / 255, dtype=torch.float32).item()
    return scale, max(0, min(255, round(-low / scale)))
