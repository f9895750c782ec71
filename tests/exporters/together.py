"""Several patterns in one model, each with an input of its own: an export costs a second, however small the model."""

from __future__ import annotations

import functools

from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping
from qtool.types import Isa
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_program
from tests.lowering.engine_template import both_inputs, prepared_pattern
from tests.patterns import PATTERNS, make_pattern

ALL = tuple(name for name, pattern in PATTERNS.items() if pattern.has_batch)
WITHOUT_BATCH = tuple(name for name in PATTERNS if name not in ALL)

QUICK = (
    "conv1d_bn_relu",
    "conv3d_grouped",
    "conv_transpose2d_grouped_bn_relu6",
    "conv_transpose1d",
    "conv2d_hardtanh",
    "conv2d_grouped",
    "conv2d_depthwise",
    "linear",
    "linear_three_dims",
    "add_relu",
    "mul",
    "cat",
    "max_pool2d",
    "avg_pool2d",
    "split",
    "called_twice",
    "float_island",
)
"""One of each kind; the others are run by `make zoo`."""

FEW = ("conv2d_hardtanh", "linear_three_dims", "cat", "called_twice", "float_island")
"""Where all that is asked is whether the ops around them are right."""

BATCH = 4


class Together(nn.Module):
    """Takes and returns a dict with an entry for each pattern."""

    def __init__(self, models):
        super().__init__()
        self.models = nn.ModuleDict(models)

    def forward(self, inputs):
        return {name: model(inputs[name]) for name, model in self.models.items()}


@functools.cache
def captured_together(names):
    """Captured once for all backends: it is much of the work, and independent of them."""
    made = {name: make_pattern(name) for name in names}
    model = Together({name: model for name, (model, _) in made.items()}).eval()
    dynamic = PATTERNS[names[0]].has_batch
    inputs = {name: x[:BATCH] if dynamic else x for name, (_, x) in made.items()}
    return capture(model, (inputs,), describe_inputs((inputs,), dynamic_batch=dynamic)), inputs


@functools.cache
def converted_together(names, backend, isa=Isa.ANY):
    """The patterns converted, and two inputs: what they were calibrated on, and what goes beyond."""
    program, inputs = captured_together(names)
    prepared = prepare_program(program, config_from_mapping({"target": {"backend": backend, "isa": isa.value}}))
    calibrate(prepared, [(inputs,)])
    beyond = {name: both_inputs(x)[1] for name, x in inputs.items()}
    return convert(prepared), (inputs, beyond)


@functools.cache
def converted_pattern(name, backend="onnxruntime", isa=Isa.ANY):
    """One pattern alone, converted, and the input it was calibrated on."""
    prepared, x = prepared_pattern(name, backend, isa)
    return convert(prepared), x
