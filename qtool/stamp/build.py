"""Makes the stamp of a file from its plan and from what calibration and convert found."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from qtool._version import __version__
from qtool.saturation.pairs import bounds_of, prove
from qtool.stamp.digest import parameter_digest
from qtool.stamp.full_range import requires_full_range
from qtool.stamp.schema import InputStamp, NodeStamp, SaturationStamp, Stamp, TensorStamp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from qtool.plan import EdgePlan, NodePlan, Plan
    from qtool.types import Spec, Stage

    Parameters = Mapping[str, tuple[NDArray[np.float32], NDArray[np.int32]]]


def build_stamp(
    plan: Plan,
    parameters: Parameters,
    weight_codes: Mapping[str, NDArray[np.int8]],
    *,
    stage: Stage,
    config_digest: str,
    source_digest: str,
    preprocessing: dict[str, Any] | None,
    inputs: Sequence[InputStamp],
) -> Stamp:
    """Return the stamp of a file made from `plan`; its content digest is filled in by whoever writes the file.

    Args:
        plan: what was decided.
        parameters: scale (float32, > 0) and zero point (int32) of each calibrated tensor, scalars or one per channel,
            by the name of its edge, or of its edge's group, or `<node>.weight`. What is missing is not calibrated.
        weight_codes: int8 codes (out channels first) of each node whose weight is quantized, by node name;
            empty before convert.
        stage: how far the file has come.
        config_digest: sha256 of the settled config.
        source_digest: sha256 of the float weights and graph.
        preprocessing: how samples become inputs, JSON values only.
        inputs: the model's inputs.

    Raises:
        RangeError: a scale or zero point contradicts its range.
    """
    edges = {edge.name: edge for edge in plan.edges}
    nodes = tuple(
        _node_stamp(node, _Context(plan.backends, edges, parameters), weight_codes.get(node.name))
        for node in plan.nodes
    )
    return Stamp(
        tool_version=__version__,
        stage=stage,
        backends=plan.backends,
        isa=plan.isa,
        config_digest=config_digest,
        source_digest=source_digest,
        preprocessing=preprocessing,
        inputs=tuple(inputs),
        nodes=nodes,
    )


class _Context(NamedTuple):
    backends: tuple[str, ...]
    edges: Mapping[str, EdgePlan]
    parameters: Parameters


def _node_stamp(node: NodePlan, context: _Context, codes: NDArray[np.int8] | None) -> NodeStamp:
    weight_name = f"{node.name}.weight"
    stamp = NodeStamp(
        name=node.name,
        op=node.op,
        target=node.target,
        verdict=node.verdict,
        reason=node.reason,
        backends=context.backends,
        inputs=tuple(_edge_stamp(name, context) for name in node.inputs),
        weight=_tensor_stamp(weight_name, node.weight, context.parameters.get(weight_name)) if node.weight else None,
        output=_edge_stamp(node.output, context) if node.output is not None else None,
        activation=node.activation,
        depthwise=node.depthwise,
        channel_multiplier=node.channel_multiplier,
        reduce_range=node.reduce_range,
    )
    if codes is not None and stamp.multiplies_codes:
        stamp = dataclasses.replace(stamp, saturation=_saturation(stamp, codes))
    return dataclasses.replace(stamp, requires_full_range=requires_full_range(stamp))


def _edge_stamp(name: str, context: _Context) -> TensorStamp:
    edge = context.edges[name]
    found = context.parameters.get(name, context.parameters.get(edge.group))
    return _tensor_stamp(name, edge.spec, found)


def _tensor_stamp(name: str, spec: Spec, found: tuple[NDArray[np.float32], NDArray[np.int32]] | None) -> TensorStamp:
    stamp = TensorStamp(
        edge=name,
        dtype=spec.dtype,
        qmin=spec.qmin,
        qmax=spec.qmax,
        granularity=spec.granularity,
        axis=spec.axis,
    )
    if found is None:
        return stamp
    scale, zero_point = found
    return dataclasses.replace(
        stamp,
        scale_min=float(scale.min()),
        scale_max=float(scale.max()),
        zero_point_min=int(zero_point.min()),
        zero_point_max=int(zero_point.max()),
        digest=parameter_digest(scale, zero_point),
    )


def _saturation(node: NodeStamp, codes: NDArray[np.int8]) -> SaturationStamp:
    proof = prove(codes, node.inputs[0].qmin, node.inputs[0].qmax)
    return SaturationStamp(
        verdict=proof.verdict.value,
        num_channels=int(proof.num_channels),
        worst_pair_sum=int(proof.worst_pair_sum),
        bounds=bounds_of(codes, node.inputs[0].qmin, node.inputs[0].qmax),
    )
