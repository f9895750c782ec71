"""From a converted model to an ONNX model, step by step."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import onnx_ir.passes.common as ir_passes

from qtool.exporters.formats import OPSET
from qtool.exporters.onnx.biases import quantize_biases
from qtool.exporters.onnx.clamps import remove_repeated_clamps
from qtool.exporters.onnx.names import name_inputs_and_outputs, names_of_tensors
from qtool.exporters.onnx.opsets import in_opset
from qtool.exporters.onnx.pools import count_no_padding
from qtool.exporters.onnx.stamps import write_stamp
from qtool.exporters.onnx.translate import translate
from qtool.exporters.output_names import output_names
from qtool.types import Stage

if TYPE_CHECKING:
    import onnx_ir as ir

    from qtool.runtime.converted import ConvertedModel


def onnx_model(converted: ConvertedModel, opset: int = OPSET) -> ir.Model:
    """Return a converted model as an ONNX model.

    int8 weights and int32 biases behind DequantizeLinear, activations between QuantizeLinear and DequantizeLinear
    with float operators between them; batch and other dynamic sizes bear the stamped words.

    Args:
        converted: the model; it is left as it was.
        opset: the ONNX opset, 13 to 23.

    Raises:
        ModelError: the model has something ONNX or this opset has no word for.
    """
    names = names_of_tensors(converted.exported, output_names(converted.exported, converted.stamp.inputs))
    model = translate(converted.exported, opset)
    remove_repeated_clamps(model.graph)
    quantize_biases(model.graph)
    count_no_padding(model.graph)
    name_inputs_and_outputs(model.graph, converted.stamp.inputs, names)
    ir_passes.NameFixPass()(model)
    in_opset(model, opset)
    # A content digest is of an archive: that of the converted file does not speak of this one.
    write_stamp(model, dataclasses.replace(converted.stamp, stage=Stage.EXPORTED, content_digest=""))
    return model
