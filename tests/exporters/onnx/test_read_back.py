"""What the reader finds in an exported file is what the stamp says of it: op, ranges, scales, and the weight itself."""

import numpy as np
import pytest

from qtool.readers.any_file import opened_model
from qtool.readers.facts import Compute, Role
from qtool.stamp.digest import parameter_digest
from tests.exporters.onnx.exported import exported_pattern, exported_together
from tests.exporters.together import ALL, WITHOUT_BATCH

NOT_ONE_OPERATOR = (
    "aten.split_with_sizes.default",
    "aten.chunk.default",
    "<built-in function getitem>",
    "aten.upsample_linear1d.vec",
)
"""Ops with several results, of which the file names the first, or that become several operators."""


def digest(quantization):
    return parameter_digest(np.array(quantization.scale, np.float32), np.array(quantization.zero_point, np.int32))


def check(data):
    """Compare each int8 node of the stamp with the node of that name in the file."""
    with opened_model(data) as model:
        stamp, facts = model.facts.stamp, model.facts.model
    assert facts.form == "QDQ graph, opset 20"
    assert not facts.not_understood
    found = {node.name: node for node in facts.nodes}
    for stamped in stamp.int8_nodes():
        if stamped.name not in found and stamped.target in NOT_ONE_OPERATOR:
            continue
        node = found[stamped.name]
        assert node.compute is Compute.STATIC
        inputs = [operand.quantization for operand in node.operands if operand.role is Role.INPUT]
        assert [(q.dtype, q.qmin, q.qmax) for q in inputs] == [(t.dtype, t.qmin, t.qmax) for t in stamped.inputs]
        assert [digest(q) for q in inputs] == [tensor.digest for tensor in stamped.inputs]
        output = node.operand(Role.OUTPUT).quantization
        assert (output.qmin, output.qmax, digest(output)) == (
            stamped.output.qmin,
            stamped.output.qmax,
            stamped.output.digest,
        )
        if stamped.weight is not None:
            weight = node.operand(Role.WEIGHT).quantization
            assert node.op == stamped.op
            assert (weight.axis, digest(weight)) == (stamped.weight.axis, stamped.weight.digest)
            bias = node.operand(Role.BIAS)
            expected = np.multiply(inputs[0].scale[0], weight.scale, dtype=np.float32)
            assert bias is None or set(bias.quantization.scale) <= set(expected.tolist())


def test_a_convolution():
    check(exported_pattern("conv2d_bn_relu6").data)


@pytest.mark.slow
@pytest.mark.parametrize("names", [ALL, WITHOUT_BATCH], ids=["with a batch", "without"])
def test_every_pattern(names):
    check(exported_together(names, "onnxruntime").data)
