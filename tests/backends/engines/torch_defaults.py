"""What torch.ao does by default on each engine, and its range helper, to compare ours with."""

import torch
from torch.ao.quantization import get_default_qconfig
from torch.ao.quantization.utils import calculate_qmin_qmax

ENGINES = ("fbgemm", "x86", "onednn", "qnnpack")


def all_engines(_):
    """Return the default ranges of activations and weights, engine by engine."""
    return {engine: _defaults(get_default_qconfig(engine)) for engine in ENGINES}


def _defaults(qconfig):
    activation, weight = qconfig.activation(), qconfig.weight()
    per_channel = weight.qscheme in (torch.per_channel_affine, torch.per_channel_symmetric)
    return {
        "activation": [activation.quant_min, activation.quant_max],
        "weight": [weight.quant_min, weight.quant_max],
        "granularity": "channel" if per_channel else "tensor",
    }


def range_helper(arguments):
    """Return what torch's helper makes of (qmin, qmax, dtype's name, reduce_range)."""
    qmin, qmax, dtype, reduce_range = arguments
    return calculate_qmin_qmax(qmin, qmax, qmin is not None, getattr(torch, dtype), reduce_range)
