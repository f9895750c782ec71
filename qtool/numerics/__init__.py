"""Quantization arithmetic: scale and zero point, rounding, fake-quantize."""
