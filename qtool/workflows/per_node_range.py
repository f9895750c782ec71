"""`reduce_range: per_node`: a node gives up the eighth bit of its input only if its weights can saturate with it.

Which weights can is known once they are quantized, so a calibrated model is planned again with what was proved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.target import target
from qtool.config.select import settings_for
from qtool.saturation.pairs import SaturationVerdict, prove
from qtool.types import DTYPE_LIMITS, MAC_OPS, Reduce, Verdict
from qtool.workflows.replan import replanned

if TYPE_CHECKING:
    from qtool.plan import NodePlan
    from qtool.runtime.prepared import PreparedModel


def reduced_per_node(prepared: PreparedModel) -> PreparedModel:
    """Return the model with the full range at all nodes that ask for `per_node` and are proved safe with it.

    Nodes that share an input with one that is not proved keep the reduced range. It is `prepared` itself where no node
    asks. The codes of a weight may depend on the scale of its input (a floor keeps the bias in int32), so what was
    proved is proved again with the new ranges.

    Args:
        prepared: a calibrated model.
    """
    asking = [node for node in prepared.plan.nodes if _asks(node, prepared)]
    proved = _safe(asking, prepared)
    while asking:
        again = _planned(prepared, proved)
        still = proved & _safe(asking, again)
        if still == proved:
            return again
        proved = still
    return prepared


def _asks(node: NodePlan, prepared: PreparedModel) -> bool:
    if node.op not in MAC_OPS or node.verdict is not Verdict.INT8:
        return False
    return settings_for(prepared.origin.config.quantize, node.name, node.op).reduce_range is Reduce.PER_NODE


def _safe(nodes: list[NodePlan], prepared: PreparedModel) -> frozenset[str]:
    """Return the names of the nodes whose weights are proved safe with all codes of the input."""
    low, high = DTYPE_LIMITS[target(prepared.plan.backends).activation_dtype]
    weights = prepared.parameters_found().weights
    found = set()
    for node in nodes:
        weight = weights[node.name]
        codes = weight.layout.channels_first(weight.codes).numpy()
        if prove(codes, low, high).verdict is SaturationVerdict.SAFE:
            found.add(node.name)
    return frozenset(found)


def _planned(prepared: PreparedModel, proved: frozenset[str]) -> PreparedModel:
    kept = {n.name: n.reason for n in prepared.plan.nodes if n.verdict is Verdict.FLOAT}
    return replanned(prepared, prepared.plan.backends, keep_float=kept, proved_safe=proved)
