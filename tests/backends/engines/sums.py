"""How far the integer sums of a real convolution or linear are from the exact ones.

All scales are 1 and a bias moves the exact sum of a full window to code 128, so that a sum which is off by 1 shows as
a code which is off by 1, however large the sum. Cases are made by `tests.backends.engines.cases`.
"""

import torch


def largest_errors(cases):
    """Return the largest distance of any output code to the exact sum's, one number a case."""
    return [_largest_error(case) for case in cases]


def _largest_error(case):
    num_channels, per_group = case["out_channels"], case["in_channels"] // case["groups"]
    weight = torch.tensor(case["weight"], dtype=torch.int8).reshape(num_channels, per_group, *case["kernel"])
    one_each = [1] * len(case["kernel"])
    spatial = [size + 2 + 2 * dilation for size, dilation in zip(case["kernel"], case["dilation"], strict=True)]
    column = torch.tensor(case["activation"], dtype=torch.uint8).reshape(1, -1, *one_each)
    x = column.expand(case["batch"], -1, *spatial).contiguous()
    exact = _exact_sums(case, x[:1], weight)
    full_window = exact.flatten(1).reshape(num_channels, -1)
    full_window = full_window[:, full_window.shape[1] // 2]
    bias = (128 - full_window).float()
    expected = (exact + bias.double().reshape(1, -1, *one_each)).clamp(0, 255)
    run = _run_plain if case["way"] == "plain" else _run_packed
    return int((run(case, x, weight, bias).double() - expected).abs().max())


def _exact_sums(case, x, weight):
    """Every product and every partial sum is an integer far below 2**53: float64 is exact."""
    x, weight = x.double(), weight.double()
    if case["op"] == "linear":
        return x @ weight.T
    conv = getattr(torch.nn.functional, case["op"])
    return conv(x, weight, None, case["stride"], case["padding"], case["dilation"], case["groups"])


def _geometry(case):
    return case["stride"], case["padding"], case["dilation"], case["groups"]


def _run_plain(case, x, weight, bias):
    """The ops that x86 and onednn are lowered to: plain uint8 tensors."""
    scale, zero_point = torch.ones(weight.shape[0]), torch.zeros(weight.shape[0], dtype=torch.long)
    output = (1.0, 0, torch.uint8, "none", [], "")
    ops = torch.ops.onednn
    if case["op"] == "linear":
        packed = ops.qlinear_prepack(weight, list(x.shape))
        return ops.qlinear_pointwise(x, 1.0, 0, packed, scale, zero_point, bias, *output)
    packed = ops.qconv_prepack(weight, scale, 1.0, 0, *_geometry(case), list(x.shape))
    return ops.qconv_pointwise(x, 1.0, 0, packed, scale, zero_point, bias, *_geometry(case), *output)


def _run_packed(case, x, weight, bias):
    """The ops that fbgemm and qnnpack are lowered to, and TorchScript has for all four engines."""
    torch.backends.quantized.engine = case["way"]
    x = torch._make_per_tensor_quantized_tensor(x, 1.0, 0)
    weight = _quantized_weight(weight, per_channel=case["per_channel"])
    ops = torch.ops.quantized
    if case["op"] == "linear":
        return ops.linear(x, ops.linear_prepack(weight, bias), 1.0, 0).int_repr()
    packed = getattr(ops, f"{case['op']}_prepack")(weight, bias, *_geometry(case))
    return getattr(ops, case["op"])(x, packed, 1.0, 0).int_repr()


def _quantized_weight(weight, *, per_channel):
    if not per_channel:
        return torch._make_per_tensor_quantized_tensor(weight, 1.0, 0)
    ones, zeros = torch.ones(len(weight), dtype=torch.double), torch.zeros(len(weight), dtype=torch.long)
    return torch._make_per_channel_quantized_tensor(weight, ones, zeros, 0)
