"""Whether a kernel's integer sums are the ones that are expected, whole numbers that 8 output bits do not show.

All scales are 1. For each output in turn, a bias moves the expected sum to code 128; all others are clamped where they
lie far from it, and compared too.
"""

import torch

from tests.backends.engines.sums import _quantized_weight


def largest_differences(requests):
    """Return for each request the largest |code - expected code| over all outputs."""
    return [_largest_difference(request) for request in requests]


def _largest_difference(request):
    x = torch.tensor(request["x"], dtype=torch.uint8)
    weight = torch.tensor(request["weight"], dtype=torch.int8)  # output channels first
    expected = torch.tensor(request["sums"], dtype=torch.double)
    by_channel = expected.transpose(0, 1).flatten(1)
    largest = 0
    for place in range(by_channel.shape[1]):
        bias = (128 - by_channel[:, place]).float()
        codes = (expected + bias.double().reshape(1, -1, *[1] * (expected.dim() - 2))).clamp(0, 255)
        found = _run(request, x, weight, bias)
        largest = max(largest, int((found.double() - codes).abs().max()))
    return largest


def _run(request, x, weight, bias):
    window, op, zero_point = request["window"], request["op"], request["zero_point"]
    geometry = [window.get(name) for name in ("stride", "padding", "dilation", "groups")]
    if request["way"] == "plain":
        return _run_plain(op, x, weight, bias, geometry, zero_point)
    torch.backends.quantized.engine = request["way"]
    ops = torch.ops.quantized
    x = torch._make_per_tensor_quantized_tensor(x, 1.0, zero_point)
    if op == "linear":
        packed = ops.linear_prepack(_quantized_weight(weight, per_channel=True), bias)
        return ops.linear(x, packed, 1.0, 0).int_repr()
    if "transpose" in op:
        stride, padding, dilation, groups = geometry
        weight = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).contiguous()
        weight = _quantized_weight(weight, per_channel=False)
        output_padding = window["output_padding"]
        packed = getattr(ops, f"{op}_prepack")(weight, bias, stride, padding, output_padding, dilation, groups)
    else:
        packed = getattr(ops, f"{op}_prepack")(_quantized_weight(weight, per_channel=True), bias, *geometry)
    return getattr(ops, op)(x, packed, 1.0, 0).int_repr()


def _run_plain(op, x, weight, bias, geometry, zero_point):
    scale, zeros = torch.ones(len(weight)), torch.zeros(len(weight), dtype=torch.long)
    output = (1.0, 0, torch.uint8, "none", [], "")
    ops = torch.ops.onednn
    if op == "linear":
        packed = ops.qlinear_prepack(weight, list(x.shape))
        return ops.qlinear_pointwise(x, 1.0, zero_point, packed, scale, zeros, bias, *output)
    packed = ops.qconv_prepack(weight, scale, 1.0, zero_point, *geometry, list(x.shape))
    return ops.qconv_pointwise(x, 1.0, zero_point, packed, scale, zeros, bias, *geometry, *output)
