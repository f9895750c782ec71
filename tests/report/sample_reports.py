"""Reports made by hand, as if of files: a small one with everything in it, and as large a one as is asked for."""

from __future__ import annotations

import dataclasses
import math
import random

from qtool.backends.record import Pairing
from qtool.inspection import codes
from qtool.inspection.findings import Content, Duplicate, Report, Target
from qtool.inspection.nodes import Histogram, NodeReport, Origin, TensorReport
from qtool.readers.facts import Compute, FileKind, Role
from qtool.saturation.verdict import Bound
from qtool.types import Isa, Op

CHANNELS = (32, 64, 128, 256)


def bell(rng: random.Random, low: float, high: float, *, bins: int = 64, is_log: bool = False) -> Histogram:
    """Return a histogram with one hump, of about 5000 values."""
    middle, width = bins * rng.uniform(0.4, 0.6), bins * rng.uniform(0.06, 0.18)
    counts = tuple(
        int(600 * math.exp(-((i - middle) ** 2) / (2 * width**2)) * rng.uniform(0.8, 1)) for i in range(bins)
    )
    return Histogram(low=low, high=high, counts=(1, *counts[1:-1], 1), is_log=is_log)


def activation(role: Role, name: str, *, qmax: int = 255, scale: float | None = 0.0235, zero_point: float = 12):
    return TensorReport(
        role=role,
        name=name,
        dtype="uint8",
        shape=(1, 32, 56, 56),
        qmin=0,
        qmax=qmax,
        num_scales=0 if scale is None else 1,
        scale_min=scale,
        scale_max=scale,
        zero_point_min=None if scale is None else zero_point,
        zero_point_max=None if scale is None else zero_point,
    )


def quantized_node(index: int, *, qmax: int = 255, worst: int = 30100, backends=("fbgemm",), **fields) -> NodeReport:
    """Return a convolution with all that can be known of one."""
    rng = random.Random(index)
    channels = CHANNELS[index % len(CHANNELS)]
    shape = (channels, channels // 2, 3, 3)
    name = fields.get("name", f"features.{index}.0")
    smallest = rng.uniform(0.0005, 0.002)
    weight = TensorReport(
        role=Role.WEIGHT,
        name=f"{name}.weight",
        dtype="int8",
        shape=shape,
        num_bytes=math.prod(shape),
        qmin=-127,
        qmax=127,
        axis=0,
        num_scales=channels,
        scale_min=smallest,
        scale_max=smallest * rng.uniform(2, 30),
        zero_point_min=0,
        zero_point_max=0,
        seen_min=-127,
        seen_max=rng.randint(90, 127),
        values=bell(rng, -128, 128),
        scales=bell(rng, smallest, smallest * 30, bins=32, is_log=True),
    )
    bias = TensorReport(
        role=Role.BIAS,
        name=f"{name}.bias",
        dtype="float32",
        shape=(channels,),
        num_bytes=4 * channels,
        is_quantized=False,
    )
    settings = {
        "name": name,
        "op": Op.CONV2D,
        "target": "aten.conv2d.default",
        "compute": Compute.STATIC,
        "origin": Origin.STAMPED if backends else Origin.UNKNOWN,
        "backends": backends,
        "reduce_range": qmax < 255,
        "reduce_range_origin": Origin.STAMPED if backends else Origin.DERIVED,
        "activation": "relu6",
        "groups": 1,
        "tensors": (
            activation(Role.INPUT, f"{name}.x", qmax=qmax),
            weight,
            bias,
            activation(Role.OUTPUT, name, scale=0.0471, zero_point=0),
        ),
        "bounds": (
            Bound(pairing=Pairing.ANY, num_channels=int(worst * 1.2 > 32767) * 4, worst_pair_sum=int(worst * 1.2)),
            Bound(pairing=Pairing.IN_ORDER, num_channels=int(worst > 32767) * 3, worst_pair_sum=worst),
            Bound(pairing=Pairing.CHANNELS, num_channels=0, worst_pair_sum=int(-min(worst * 0.8, 32000))),
        ),
        "bounds_origin": Origin.DERIVED,
    }
    return NodeReport(**(settings | fields))


def float_node(name: str, why: str, target: str = "aten.silu.default") -> NodeReport:
    return NodeReport(name=name, op=None, target=target, compute=Compute.FLOAT, origin=Origin.STAMPED, why=why)


def sample_nodes() -> tuple[NodeReport, ...]:
    """Return some nodes of every kind."""
    dynamic = quantized_node(5, name="lstm", op=None, target="aten.lstm.input", compute=Compute.DYNAMIC, bounds=())
    tensors = (activation(Role.INPUT, "lstm.x", scale=None), *dynamic.tensors[1:])
    return (
        quantized_node(0, name="stem", worst=41200),
        quantized_node(1, depthwise=True, channel_multiplier=1, groups=64, worst=12000),
        quantized_node(2, qmax=127, worst=15030, op=Op.LINEAR, activation=None, target="aten.linear.default"),
        float_node("act", "silu has no int8 kernel"),
        dataclasses.replace(dynamic, tensors=tensors),
        float_node("head.softmax", "softmax is left float by the config", "aten.softmax.int"),
        quantized_node(7, name="classifier", worst=32700, op=Op.LINEAR, activation=None, reads=("head.softmax",)),
    )


def sample_report(nodes: tuple[NodeReport, ...] | None = None, **fields) -> Report:
    """Return a report with findings of every severity."""
    nodes = sample_nodes() if nodes is None else nodes
    first, last = (nodes[0].name, nodes[-1].name) if nodes else (None, None)
    int8 = sum(each.num_bytes for node in nodes for each in node.tensors if each.dtype == "int8")
    float32 = sum(each.num_bytes for node in nodes for each in node.tensors if each.dtype == "float32")
    settings = {
        "name": "models/int8.pt2",
        "kind": FileKind.PT2,
        "num_bytes": int8 + float32 + 51_234,
        "bytes_by_dtype": (("int8", int8), ("float32", float32)),
        "stamp": None,
        "content": Content.UNKNOWN,
        "target": Target(backend="fbgemm", isa=Isa.NO_VNNI, is_asked=True),
        "findings": (
            codes.NO_STAMP.finding("no stamp in the archive"),
            codes.CAN_SATURATE.finding("3 output channels can pass its ends, worst sum 41200", node=first),
            codes.NOT_CALIBRATED.finding("the input's scale is missing", node=last),
            codes.PROVED_SAFE.finding("no pair leaves it, worst sum 32700", node=last),
        ),
        "producer": "torch.ao (eager) 2.14.1",
        "form": "statically quantized program",
        "nodes": nodes,
        "num_tensors": 12,
        "float_bytes": 4 * int8 + float32,
        "duplicates": (Duplicate(names=("a.weight", "b.weight"), num_bytes=4096, wasted_bytes=4096),),
        "not_understood": ("operator com.example::Foo",),
    }
    return Report(**(settings | fields))


def large_report(num_nodes: int) -> Report:
    """Return a report on a model with that many layers."""
    nodes = tuple(quantized_node(i, name=f"model.layers.{i}.attention.q_proj") for i in range(num_nodes))
    return sample_report(nodes)
