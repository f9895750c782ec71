"""The quantize and dequantize ops of the reference program, and the one import that registers them.

`torch.export.load` of a converted file needs that import too: `import torch.ao.quantization.fx._decomposed`.
The day torch drops the module, this file defines the ops itself, with the same schemas.
"""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed  # noqa: TID251 - registers the ops below

quantize_per_tensor = torch.ops.quantized_decomposed.quantize_per_tensor.default
dequantize_per_tensor = torch.ops.quantized_decomposed.dequantize_per_tensor.default
dequantize_per_channel = torch.ops.quantized_decomposed.dequantize_per_channel.default

TORCH_DTYPES = {"uint8": torch.uint8, "int8": torch.int8}
