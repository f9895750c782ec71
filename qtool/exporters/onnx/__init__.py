"""Export to ONNX: the reference program as QuantizeLinear and DequantizeLinear around float operators (QDQ)."""
