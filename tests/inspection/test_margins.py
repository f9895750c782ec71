import pytest

from qtool.backends.registry import backend_names
from qtool.inspection.margins import margins_of
from qtool.saturation.verdict import Sums
from qtool.types import Op
from tests.report.sample_reports import float_node, quantized_node


def by_backend(node):
    return {margin.backend: margin for margin in margins_of(node)}


def test_each_backend_has_the_bound_of_its_own_pairing():
    found = by_backend(quantized_node(0, worst=30000))
    assert (found["onednn"].sums, found["onednn"].worst_pair_sum) == (Sums.PROVED_SAFE, -24000)
    assert (found["fbgemm"].sums, found["fbgemm"].worst_pair_sum) == (Sums.PROVED_SAFE, 30000)
    assert (found["onnxruntime"].sums, found["onnxruntime"].num_channels) == (Sums.CAN_SATURATE, 4)
    assert (found["qnnpack"].sums, found["qnnpack"].worst_pair_sum) == (Sums.EXACT, None)


def test_a_reduced_range_is_exact_and_its_margin_is_known():
    margin = by_backend(quantized_node(0, qmax=127, worst=20000))["fbgemm"]
    assert (margin.sums, margin.worst_pair_sum, margin.num_channels) == (Sums.EXACT, 20000, 0)


def test_weights_that_are_not_known_are_never_safe():
    found = by_backend(quantized_node(0, bounds=()))
    assert (found["fbgemm"].sums, found["fbgemm"].worst_pair_sum) == (Sums.UNKNOWN, None)
    assert [found[name].adds_in_int16 for name in ("fbgemm", "onnxruntime", "qnnpack")] == [True, True, False]
    assert found["qnnpack"].sums is Sums.EXACT


def test_there_are_none_where_no_codes_are_multiplied_or_no_kernel_is():
    assert margins_of(float_node("act", "")) == ()
    assert margins_of(quantized_node(0, op=Op.ADD)) == ()
    assert set(by_backend(quantized_node(0))) <= set(backend_names())


@pytest.mark.parametrize("op", [Op.CONV1D, Op.CONV2D, Op.CONV3D, Op.LINEAR, Op.CONV_TRANSPOSE2D])
def test_every_op_with_sums_has_an_answer(op):
    assert all(margin.sums in Sums for margin in margins_of(quantized_node(0, op=op)))
