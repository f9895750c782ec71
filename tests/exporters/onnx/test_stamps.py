"""The stamp in an ONNX file, and that it is still there after onnx has loaded and saved it."""

import onnx

from qtool.exporters.onnx.stamps import MODEL_KEY
from qtool.stamp.schema import from_json
from qtool.types import Stage
from tests.exporters.onnx.exported import exported_pattern, proto_of
from tests.exporters.together import converted_pattern


def metadata(thing):
    return {entry.key: entry.value for entry in thing.metadata_props}


def resaved(proto, folder):
    onnx.save(proto, folder / "again.onnx")
    return onnx.load(folder / "again.onnx")


def test_the_model_says_what_it_was_made_for(tmp_path):
    proto = resaved(proto_of(exported_pattern("conv2d_bn_relu6")), tmp_path)
    stamp = from_json(metadata(proto)[MODEL_KEY])
    mine = converted_pattern("conv2d_bn_relu6")[0].stamp
    assert stamp.stage is Stage.EXPORTED
    assert (stamp.nodes, stamp.backends, stamp.isa) == (mine.nodes, mine.backends, mine.isa)


def test_each_node_says_what_it_was_made_for(tmp_path):
    proto = resaved(proto_of(exported_pattern("conv2d_bn_relu6")), tmp_path)
    found = {node.op_type: metadata(node) for node in proto.graph.node}
    assert found["Conv"] == {
        "qtool.node": "0",
        "qtool.op": "conv2d",
        "qtool.backend": "onnxruntime",
        "qtool.isa": "any",
        "qtool.reduce_range": "true",
        "qtool.qmin": "0",
        "qtool.qmax": "127",
        "qtool.depthwise": "false",
    }
    assert found["QuantizeLinear"] == {"qtool.edge": "0"}
    assert found["Clip"] == {"qtool.edge": "input"}
    assert all(metadata(node) for node in proto.graph.node)
