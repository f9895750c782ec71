"""Verify: every node of a converted model alone against the fake-quantized model, in steps of its output scale.

Each node is fed the codes that the fake-quantized model has at its inputs, so that a difference shows where it
arises and not in all nodes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from qtool.lowering.lower import CODES
from qtool.lowering.quint8 import to_quint8
from qtool.numerics.quantize import quantize
from qtool.passes import qdq_ops
from qtool.passes.to_reference import NODE_STAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import GraphModule, Node

    from qtool.passes.points import ActivationPoint
    from qtool.runtime.prepared import PreparedModel


@torch.no_grad()
def step_differences(prepared: PreparedModel, lowered: GraphModule, inputs: tuple[Any, ...]) -> dict[str, int]:
    """Return the largest difference of every quantized edge, in codes.

    Args:
        prepared: a calibrated model, fake-quantizing.
        lowered: the same model's reference program, lowered or not.
        inputs: what the model is called with.

    Returns:
        Edge name to the largest |code - expected code|; 0 is equal.
    """
    return code_differences(lowered, edge_codes(prepared, inputs), inputs)


@torch.no_grad()
def code_differences(module: GraphModule, expected: Mapping[str, Tensor], inputs: tuple[Any, ...]) -> dict[str, int]:
    """Return the largest difference of every quantized edge to the codes expected there, each node fed those codes.

    Args:
        module: a reference program, lowered or not.
        expected: codes by edge name; an edge that is missing is neither compared nor replaced.
        inputs: what the model is called with.
    """
    found = codes_found(module, expected, inputs)
    return {edge: _largest_difference(codes, expected[edge]) for edge, codes in found.items()}


@torch.no_grad()
def codes_found(module: GraphModule, expected: Mapping[str, Tensor], inputs: tuple[Any, ...]) -> dict[str, Tensor]:
    """Return the codes that a module computes at each edge, each node fed the codes expected at its inputs.

    Arguments are those of `code_differences`.
    """
    run = _FedRun(module, expected)
    run.run(*torch.utils._pytree.tree_leaves(inputs), enable_io_processing=False)
    return run.found


def _largest_difference(codes: Tensor, expected: Tensor) -> int:
    return int((codes.int() - expected.int()).abs().max()) if codes.numel() else 0


@torch.no_grad()
def edge_codes(prepared: PreparedModel, inputs: tuple[Any, ...]) -> dict[str, Tensor]:
    """Return the codes that the fake-quantized model has at each calibrated edge, by edge name."""
    found: dict[str, Tensor] = {}
    handles = [
        point.register_forward_hook(lambda _, __, y, name=name, point=point: found.update({name: _codes(point, y)}))
        for name, point in prepared.activations.items()
        if point.is_calibrated
    ]
    try:
        prepared(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _codes(point: ActivationPoint, y: Tensor) -> Tensor:
    """Return the codes of values that lie on the point's grid; rounding them again changes nothing."""
    spec, fake = point.fake_quantize.spec, point.fake_quantize
    dtype = qdq_ops.TORCH_DTYPES[spec.dtype]
    return quantize(y, fake.scale, fake.zero_point, spec.qmin, spec.qmax, dtype=dtype)


class _FedRun(fx.Interpreter):
    """Runs a graph node by node; at each edge, notes the codes and goes on with the expected ones."""

    def __init__(self, module: GraphModule, expected: Mapping[str, Tensor]) -> None:
        super().__init__(module)
        self.expected = expected
        self.found: dict[str, Tensor] = {}

    def run_node(self, n: Node) -> Any:  # noqa: ANN401
        result = super().run_node(n)
        edge = edge_of(n)
        if edge is None or edge not in self.expected:
            return result
        expected = self.expected[edge]
        self.found[edge] = result.int_repr() if result.is_quantized else result
        if result.is_quantized:
            return to_quint8(expected, result.q_scale(), result.q_zero_point())
        return expected


def edge_of(node: Node) -> str | None:
    """Return the name of the quantized edge whose codes a node of a (lowered) reference program holds."""
    if node.target is not qdq_ops.quantize_per_tensor and not node.meta.get(CODES):
        return None
    stamp = node.meta.get("custom", {}).get(NODE_STAMP, {})
    return stamp.get("edge")
