"""Every config in configs/, run on a small input: its converted model is what its fake-quantized one says."""

import functools
from pathlib import Path

import pytest

from qtool.backends.host import host_facts
from qtool.config.load import changed, load_config
from qtool.data.sources import open_source
from qtool.types import Isa
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_program, program_from_config
from qtool.workflows.verify import verify

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
SIDE = 64


def small(path):
    """The config with pictures of 64 pixels, four random ones to calibrate on."""
    config = load_config(path)
    (image,) = config.model.inputs
    inputs = [{"name": image.name, "shape": ["batch", 3, SIDE, SIDE], "dtype": image.dtype}]
    data = {"kind": "synthetic", "count": 4, "seed": 0}
    return changed(config, {"model.inputs": inputs, "data.calibrate": data, "data.evaluate": data}, "test")


@functools.cache
def captured(model_json):
    path = next(path for path in CONFIGS if small(path).model.model_dump_json() == model_json)
    return program_from_config(small(path))


def test_there_is_a_config_for_each_shown_model_and_backend():
    names = {path.stem for path in CONFIGS}
    for model in ("efficientnet-lite0", "mobilenet-v2", "resnet18"):
        assert {f"{model}-{backend}" for backend in ("fbgemm", "x86", "onednn", "qnnpack")} <= names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_converted_is_within_one_step_of_fake_quantized(path):
    config = small(path)
    if config.target.isa is Isa.VNNI and host_facts().isa_of(config.target.backend) is not Isa.VNNI:
        config = changed(config, {"target.isa": "any"}, "test")  # what this CPU computes right
    prepared = prepare_program(captured(config.model.model_dump_json()), config)
    source = open_source(config.data.calibrate, inputs=config.model.inputs, base=config.base)
    assert calibrate(prepared, source.batches()) >= 1
    steps = verify(prepared, convert(prepared))
    assert steps.keys() == {edge.name for edge in prepared.plan.edges}
    assert max(steps.values()) <= 1
