"""Writes a quantized program with torch.export.save, twice; run in a process of its own, for it imports torch.

Usage: python export_program.py PLAIN_OUT OUT_WITH_SAMPLE_INPUTS
"""

import sys

import torch
import torch.ao.quantization.fx._decomposed

q = torch.ops.quantized_decomposed


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.arange(-54, 54, dtype=torch.int8).reshape(4, 3, 3, 3))
        self.register_buffer("scale", torch.tensor([0.01, 0.02, 0.03, 0.04]))
        self.register_buffer("zero_point", torch.zeros(4, dtype=torch.int32))
        self.bias = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        x = q.quantize_per_tensor.default(x, 0.02, 64, 0, 127, torch.uint8)
        x = q.dequantize_per_tensor.default(x, 0.02, 64, 0, 127, torch.uint8)
        w = q.dequantize_per_channel.default(self.codes, self.scale, self.zero_point, 0, -127, 127, torch.int8)
        y = torch.nn.functional.conv2d(x, w, self.bias, padding=1)
        return {"y": y.reshape(x.shape[0] * 2, -1)}, (y.flatten(0, 1),)


plain, with_inputs = sys.argv[1:]
sizes = {0: torch.export.Dim("batch")}
program = torch.export.export(Model().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=(sizes,))
torch.export.save(program, with_inputs, extra_files={"qtool/config.json": "{}"})
program._example_inputs = None  # the only way to leave the inputs out
torch.export.save(program, plain, extra_files={"qtool/config.json": "{}"})
