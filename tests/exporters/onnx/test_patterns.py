"""Every pattern as ONNX, run by ONNX Runtime as it stands and fused: at most one step off at every edge."""

import onnx
import pytest

from qtool.exporters.onnx.verify import onnx_differences
from qtool.types import Op
from tests.exporters.onnx.exported import exported_together, session
from tests.exporters.together import ALL, QUICK, WITHOUT_BATCH, converted_together

# Without VNNI these need ONNX Runtime's exact kernels: qnnpack's ranges are full, and xnnpack's int8 becomes uint8.
EXACT = ("qnnpack", "xnnpack")

# ONNX Runtime 1.32 refuses its exact kernels ("Attempt to replace the existing tensor") where two nodes share a weight.
SHARED_WEIGHT = ("slice", "called_twice")


def check_steps(names, backend):
    converted, both = converted_together(names, backend)
    for inputs in both:
        found = onnx_differences(
            converted, exported_together(names, backend), None, (inputs,), exact_kernels=backend in EXACT
        )
        for differences in found.values():
            assert differences.keys() == {edge.name for edge in converted.plan.edges}
            assert not {edge: steps for edge, steps in differences.items() if steps > 1}


def test_at_most_one_step_per_node():
    check_steps(QUICK, "onnxruntime")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnxruntime", "fbgemm", "qnnpack", "xnnpack"])
@pytest.mark.parametrize("names", [ALL, WITHOUT_BATCH], ids=["all", "without_batch"])
def test_at_most_one_step_per_node_of_all_patterns(names, backend):
    check_steps(tuple(name for name in names if backend not in EXACT or name not in SHARED_WEIGHT), backend)


def test_onnx_runtime_fuses_every_int8_convolution_linear_add_and_mul(tmp_path):
    session(exported_together(QUICK, "onnxruntime").data, optimized_model_filepath=str(tmp_path / "fused.onnx"))
    fused = [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    planned = [node.op for node in converted_together(QUICK, "onnxruntime")[0].plan.int8_nodes()]
    convolutions = [op for op in planned if op in (Op.CONV1D, Op.CONV2D, Op.CONV3D)]
    assert fused.count("QLinearConv") == len(convolutions)  # it has no int8 kernel for transposed ones
    assert fused.count("QGemm") == planned.count(Op.LINEAR)
    assert fused.count("QLinearAdd") == planned.count(Op.ADD)
    assert fused.count("QLinearMul") == planned.count(Op.MUL)
    assert not {"Conv", "Gemm", "MatMul"} & set(fused)
