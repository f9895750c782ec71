"""Faults seen in the field, by number."""

import numpy as np
import pytest
import torch

import qtool
from qtool.backends.ranges import Consumer, activation_spec
from qtool.backends.registry import backend
from qtool.inspection.inspect import inspect_file
from qtool.runtime.store import to_bytes
from qtool.saturation.pairs import bounds_of
from qtool.saturation.verdict import Layer, Sums, judge
from qtool.types import Isa, Op
from tests.backends.engines.cases import WorstCase
from tests.backends.engines.client import AVX2, channel_errors


def errors(way, op, weight, a_hi):
    shape = weight.shape
    case = WorstCase(way=way, op=op.value, shape=shape, weight=weight.ravel().tolist(), groups=1, a_hi=a_hi)
    return max(channel_errors([case], AVX2)[0])


@pytest.mark.parametrize("op_and_shape", [(Op.LINEAR, (16, 64)), (Op.CONV2D, (32, 32, 3, 3))], ids=["linear", "conv"])
def test_case_05_onednn_at_full_range_halves_sums_without_vnni(op_and_shape):
    """All activations 255, all weights 127: wrong on a capped oneDNN; right with codes to 127 or weights to 63."""
    op, shape = op_and_shape
    loud, quiet = np.full(shape, 127, dtype=np.int8), np.full(shape, 63, dtype=np.int8)
    for weight, a_hi, is_right in ((loud, 255, False), (loud, 127, True), (quiet, 255, True)):
        layer = Layer(op=op, a_lo=0, a_hi=a_hi, bounds=bounds_of(weight, 0, a_hi))
        assert judge(backend("onednn"), Isa.ANY, layer).is_right is is_right
        assert (errors("plain", op, weight, a_hi) == 0) is is_right
        assert judge(backend("onednn"), Isa.VNNI, layer).sums is Sums.EXACT
    spec = activation_spec(backend("onednn"), Isa.ANY, [Consumer(node="layer", op=op)], observer="minmax")
    assert (spec.qmin, spec.qmax) == (0, 127)


def test_case_05_the_smallest_pair_that_was_seen():
    """211 * 71 + 171 * 107 = 33278: two weights that are both far below 127."""
    bounds = {bound.pairing.value: bound for bound in bounds_of(np.array([[71, 107]], dtype=np.int8), 0, 211)}
    assert {bound.worst_pair_sum for bound in bounds.values()} == {211 * (71 + 107)}
    assert {bound.num_channels for bound in bounds.values()} == {1}


def linear_file(isa):
    generator = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(64, 64)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(64, 64, generator=generator))
    x = torch.randn(32, 64, generator=generator)
    prepared = qtool.prepare(layer.eval(), (x,), {"target": {"backend": "onnxruntime", "isa": isa}})
    qtool.calibrate(prepared, [(x,)])
    return to_bytes(qtool.convert(prepared))


def test_case_06_a_full_range_model_is_named_for_cpus_without_vnni():
    report = inspect_file(linear_file("vnni"), backend="onnxruntime", isa="no-vnni")
    (finding,) = [finding for finding in report.findings if finding.code == "QT303"]
    assert (
        "input codes 0..255, and onnxruntime's linear kernel adds pairs in int16 on a CPU without VNNI"
        in finding.message
    )
    assert report.stamp.nodes[0].requires_full_range


def test_case_06_a_model_for_any_cpu_keeps_its_input_in_seven_bits():
    report = inspect_file(linear_file("any"), backend="onnxruntime", isa="no-vnni")
    assert [finding for finding in report.findings if finding.code == "QT303"] == []
    node = report.stamp.nodes[0]
    assert (node.inputs[0].qmin, node.inputs[0].qmax, node.reduce_range, node.requires_full_range) == (
        0,
        127,
        True,
        False,
    )
