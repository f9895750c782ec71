"""How far a kernel is off on the worst inputs of each output channel: largest codes where its weights have one sign.

Each sample holds, for one output channel of every group, `a_hi` where that channel's weights are positive (and then
where they are negative) and 0 elsewhere: no input has larger pair sums, whichever products the kernel pairs.
"""

import torch

from tests.backends.engines.sums import _quantized_weight, _run_packed, _run_plain

AT_ONCE = 64  # samples


def channel_errors(cases):
    """Return for each `WorstCase` the largest distance to the exact sum, one number an output channel."""
    return [_channel_errors(case) for case in cases]


def _channel_errors(case):
    shape = case["shape"]
    weight = torch.tensor(case["weight"], dtype=torch.int8).reshape(shape)
    errors = torch.zeros(len(weight), dtype=torch.long)
    for sign in (1, -1):
        chosen = (weight * sign > 0).to(torch.uint8) * case["a_hi"]
        samples = chosen.unflatten(0, (case["groups"], -1)).transpose(0, 1).flatten(1, 2)  # (out / groups, in, *kernel)
        own = (chosen.double() * weight.double()).flatten(1).sum(1)
        for start in range(0, len(samples), AT_ONCE):
            part = samples[start : start + AT_ONCE].contiguous()
            errors = torch.maximum(errors, _errors(case, weight, part, (128 - own).float()))
    return errors.tolist()


def _errors(case, weight, samples, bias):
    """Where the sums are out of reach of the output codes, both sides are clamped alike."""
    dims = len(weight.shape) - 2
    geometry = {
        "op": case["op"].replace("_transpose", ""),
        "way": case["way"],
        "groups": case["groups"],
        "stride": [1] * dims,
        "padding": [size // 2 for size in weight.shape[2:]],
        "dilation": [1] * dims,
        "per_channel": True,
    }
    x = samples
    if "transpose" in case["op"]:
        found, exact = _transposed(case, weight, x, bias, dims)
    else:
        run = _run_plain if case["way"] == "plain" else _run_packed
        found = run(geometry, x, weight, bias)
        exact = _exact(geometry, x, weight)
    expected = (exact + bias.double().reshape(1, -1, *[1] * dims)).clamp(0, 255)
    return (found.double() - expected).abs().transpose(0, 1).flatten(1).amax(1).long()


def _exact(geometry, x, weight):
    if geometry["op"] == "linear":
        return x.double() @ weight.double().T
    conv = getattr(torch.nn.functional, geometry["op"])
    arguments = (geometry[name] for name in ("stride", "padding", "dilation", "groups"))
    return conv(x.double(), weight.double(), None, *arguments)


def _transposed(case, weight, x, bias, dims):
    """Its window sees the input mirrored; the weight is (in, out / groups, *kernel)."""
    x = x.flip(tuple(range(2, 2 + dims))).contiguous()
    codes = weight.unflatten(0, (case["groups"], -1)).transpose(1, 2).flatten(0, 1).contiguous()
    ones, zeros = [1] * dims, [0] * dims
    padding = [size // 2 for size in weight.shape[2:]]
    torch.backends.quantized.engine = case["way"]
    prepack = getattr(torch.ops.quantized, f"{case['op']}_prepack")
    packed = prepack(_quantized_weight(codes, per_channel=False), bias, ones, padding, zeros, ones, case["groups"])
    codes_in = torch._make_per_tensor_quantized_tensor(x, 1.0, 0)
    found = getattr(torch.ops.quantized, case["op"])(codes_in, packed, 1.0, 0).int_repr()
    conv = getattr(torch.nn.functional, case["op"])
    return found, conv(x.double(), codes.double(), None, ones, padding, zeros, case["groups"], ones)
