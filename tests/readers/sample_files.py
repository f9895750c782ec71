"""Small .pt2 files as qtool writes them, made without torch: a plan, its stamp, and a zip around both.

The model is three convolutions and a linear, one convolution depthwise, with a float island in between:

    x -> stem (conv2d + relu6) -> depth (depthwise conv2d) -> act (silu, float) -> head (linear) -> y
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import numpy as np

from qtool.plan import EdgePlan, NodePlan, Plan
from qtool.stamp.build import build_stamp
from qtool.stamp.digest import content_digest
from qtool.stamp.plan_json import plan_to_json
from qtool.stamp.schema import CONFIG_ENTRY, PLAN_ENTRY, STAMP_ENTRY, InputStamp, Stamp, to_json
from qtool.types import Dtype, Granularity, Isa, Op, Spec, Stage, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHTS_TABLE = "data/weights/model_weights_config.json"
GRAPH = "models/model.json"

_LEAF = '{"type": null, "context": null, "children_spec": []}'
TREE = f'[1, {{"type": "builtins.tuple", "context": "null", "children_spec": [{_LEAF}]}}]'


def activation(*, reduced: bool = False) -> Spec:
    why = "fbgemm's conv2d adds pairs in int16 for isa any" if reduced else "exact with all 8 bits"
    return Spec(dtype=Dtype.UINT8, qmin=0, qmax=127 if reduced else 255, reduce_range=reduced, why=why)


def weight(granularity: Granularity = Granularity.CHANNEL) -> Spec:
    axis = 0 if granularity is Granularity.CHANNEL else None
    return Spec(dtype=Dtype.INT8, qmin=-127, qmax=127, granularity=granularity, axis=axis, symmetric=True)


def conv(name: str, reads: str, **fields: object) -> NodePlan:
    settings: dict[str, object] = {
        "name": name,
        "op": Op.CONV2D,
        "target": "aten.conv2d.default",
        "verdict": Verdict.INT8,
        "reason": "the backend has an int8 conv2d",
        "members": (name,),
        "inputs": (reads,),
        "output": name,
        "weight": weight(),
    }
    return NodePlan(**(settings | fields))  # type: ignore[arg-type]


def sample_plan(
    *,
    backend: str = "fbgemm",
    isa: Isa = Isa.ANY,
    reduced: frozenset[str] = frozenset({"stem", "depth", "head"}),
    granularity: Granularity = Granularity.CHANNEL,
) -> Plan:
    """Return the plan; `reduced` names the nodes whose input is in a reduced range."""
    reads = {"x": "stem", "stem": "depth", "act": "head"}
    edges = [
        EdgePlan(name=name, value=name, spec=activation(reduced=reader in reduced), group=name)
        for name, reader in reads.items()
    ]
    edges += [EdgePlan(name=name, value=name, spec=activation(), group=name) for name in ("depth", "head")]
    shared = weight(granularity)
    nodes = (
        conv("stem", "x", weight=shared, activation="relu6", batch_norm=True, reduce_range="stem" in reduced),
        conv("depth", "stem", weight=shared, depthwise=True, channel_multiplier=1, reduce_range="depth" in reduced),
        NodePlan(
            name="act",
            op=None,
            target="aten.silu.default",
            verdict=Verdict.FLOAT,
            reason="silu has no int8 kernel",
            members=("silu",),
        ),
        conv(
            "head",
            "act",
            weight=shared,
            op=Op.LINEAR,
            target="aten.linear.default",
            reason="the backend has an int8 linear",
            reduce_range="head" in reduced,
        ),
    )
    return Plan(backends=(backend,), isa=isa, nodes=nodes, edges=tuple(edges))


def weight_codes(*, safe: frozenset[str] = frozenset()) -> dict[str, np.ndarray]:
    """Return codes that can saturate with 0..255, or in the nodes `safe` codes that cannot."""
    return {name: np.full((4, 9), 10 if name in safe else 100, dtype=np.int8) for name in ("stem", "depth", "head")}


def sample_stamp(
    plan: Plan, *, stage: Stage = Stage.CONVERTED, safe: frozenset[str] = frozenset(), calibrated: bool = True
) -> Stamp:
    """Return the stamp of a file with that plan."""
    one = (np.float32([0.0234375]), np.int32([12]))
    many = (np.float32([0.001, 0.0025, 0.004, 0.0055]), np.zeros(4, dtype=np.int32))
    parameters = {edge.name: one for edge in plan.edges} | {f"{node.name}.weight": many for node in plan.nodes}
    return build_stamp(
        plan,
        parameters if calibrated else {},
        weight_codes(safe=safe) if stage is Stage.CONVERTED else {},
        stage=stage,
        config_digest="c" * 64,
        source_digest="5" * 64,
        preprocessing={"resize": 256, "crop": 224, "mean": [0.5, 0.5, 0.5], "std": None},
        inputs=[InputStamp(name="x", shape=("batch", 3, 224, 224), dtype="float32")],
    )


def _sizes(*numbers: int) -> list[dict[str, int]]:
    return [{"as_int": number} for number in numbers]


def program_entries() -> dict[str, bytes]:
    """Return the entries that torch.export.save writes, for a graph of one op."""
    meta = {"dtype": 2, "sizes": _sizes(4, 9), "strides": _sizes(9, 1), "storage_offset": {"as_int": 0}, "layout": 7}
    of_scale = meta | {"dtype": 7, "sizes": _sizes(4), "strides": _sizes(1)}
    row = {"path_name": "weight_0", "is_param": False, "use_pickle": False, "tensor_meta": meta}
    scales = {"path_name": "weight_1", "is_param": False, "use_pickle": False, "tensor_meta": of_scale}
    table = {"config": {"stem.codes": row, "stem.scale": scales, "stem.codes_again": row}}
    node = {
        "target": "torch.ops.aten.relu.default",
        "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}],
        "outputs": [{"as_tensor": {"name": "relu"}}],
        "metadata": {},
        "name": "relu",
    }
    size = {"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)", "hint": {"as_int": 2}}}
    graph = {
        "graph_module": {
            "graph": {
                "inputs": [{"as_tensor": {"name": "x"}}],
                "outputs": [{"as_tensor": {"name": "relu"}}],
                "nodes": [node],
                "tensor_values": {"x": {"sizes": [size, {"as_int": 3}]}},
                "custom_obj_values": {},
            },
            "signature": {"input_specs": [{"buffer": {"arg": {"name": "b"}, "buffer_name": "stem.codes"}}]},
            "module_call_graph": [{"fqn": "", "signature": {"in_spec": TREE, "forward_arg_names": ["x"]}}],
        },
        "range_constraints": {"s77": {"min_val": 1, "max_val": None}},
        "guards_code": ["L['x'].size()[0] % 2 == 0"],
    }
    return {
        "data/weights/weight_0": np.full((4, 9), 100, dtype=np.int8).tobytes(),
        "data/weights/weight_1": np.ones(4, dtype="<f4").tobytes(),
        WEIGHTS_TABLE: json.dumps(table).encode(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        GRAPH: json.dumps(graph).encode(),
        "data/sample_inputs/model.pt": b"",
        "byteorder": b"little",
        "archive_format": b"pt2",
    }


def file_bytes(
    stamp: Stamp | None,
    plan: Plan | None,
    *,
    changes: Mapping[str, bytes | None] | None = None,
    method: int = zipfile.ZIP_STORED,
) -> bytes:
    """Return a whole file, its stamp holding the digest of the rest.

    Args:
        stamp: the stamp, without digest; None leaves it out.
        plan: the plan; None leaves it out.
        changes: entries set (or, with None, removed) before the digest is taken.
        method: how entries are stored.
    """
    entries: dict[str, bytes] = program_entries() | {CONFIG_ENTRY: b'{"version": 1}'}
    if plan is not None:
        entries[PLAN_ENTRY] = plan_to_json(plan).encode()
    for name, data in (changes or {}).items():
        if data is None:
            del entries[name]
        else:
            entries[name] = data
    if stamp is not None and STAMP_ENTRY not in entries:
        entries[STAMP_ENTRY] = to_json(stamp.with_content(content_digest(entries))).encode()
    return zip_bytes(entries, method=method)


def zip_bytes(entries: Mapping[str, bytes], *, root: str = "archive/", method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(root + name), data, compress_type=method)
    return out.getvalue()


def sample_file(**settings: object) -> bytes:
    """Return a converted file, made for fbgemm on any CPU unless the plan's settings say otherwise."""
    safe = frozenset(settings.pop("safe", ()))  # type: ignore[call-overload]
    plan = sample_plan(**settings)  # type: ignore[arg-type]
    return file_bytes(sample_stamp(plan, safe=safe), plan)
