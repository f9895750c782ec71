"""Models people have, on every engine: from capture to the engine's numbers. A sample of it runs in `make test`."""

import functools

import pytest
import torch

from qtool.backends.host import host_facts
from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping
from qtool.types import Isa
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_program
from qtool.workflows.verify import verify
from tests.zoo.zoo import MODELS, build

ISA = {"onednn": "vnni" if host_facts().isa_of("onednn") is Isa.VNNI else "any"}
SAMPLE = [("mobilenet_v2", "fbgemm"), ("resnet18", "qnnpack")]

LEAST_SQNR = 20.0
"""Of every activation against itself before rounding, and of every weight, in dB: a wrong range gives less.

The output is not compared with the float model's: with random weights, deep models let any noise grow without bound,
so it says little. What it would say is split into parts that do: the captured graph equals the model, each activation
and weight is on a fine enough grid, the reference program equals the simulation, and each node of the engine is at
most one step from it.
"""


@functools.lru_cache(maxsize=1)  # models are large, and all tests of one follow each other
def captured(name):
    model, calibration, evaluation = build(name)
    program = capture(model, (calibration,), describe_inputs((calibration,)))
    with torch.no_grad():
        expected, found = model(evaluation), program.graph_module()(evaluation)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    return program, calibration, evaluation


def sqnr(found, expected):
    noise = (found.double() - expected.double()).square().mean()
    return float(10 * torch.log10(expected.double().square().mean() / noise))


def least_sqnr(prepared, evaluation):
    """Run the model and return the edge or weight that rounding hurts most."""
    found = {}
    handles = [
        point.fake_quantize.register_forward_hook(lambda _, x, y, name=name: found.update({name: sqnr(y, x[0])}))
        for name, point in (*prepared.activations.items(), *prepared.weights.items())
    ]
    prepared(evaluation)
    for handle in handles:
        handle.remove()
    return min(found.items(), key=lambda item: item[1])


@torch.no_grad()
def check(name, backend):
    program, calibration, evaluation = captured(name)
    config = {"target": {"backend": backend, "isa": ISA.get(backend, "any")}}
    prepared = prepare_program(program, config_from_mapping(config))
    calibrate(prepared, [calibration])
    edge, least = least_sqnr(prepared, evaluation)
    assert least >= LEAST_SQNR, edge
    converted = convert(prepared)
    torch.testing.assert_close(converted(evaluation), prepared(evaluation), rtol=0, atol=0)
    for inputs in (None, (evaluation,)):
        steps = verify(prepared, converted, inputs)
        assert steps.keys() == {edge.name for edge in prepared.plan.edges}
        assert max(steps.values()) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_on_every_engine(name):
    for backend in ("fbgemm", "qnnpack", "onednn", "x86"):
        check(name, backend)


@pytest.mark.parametrize(("name", "backend"), SAMPLE)
def test_a_sample(name, backend):
    check(name, backend)
