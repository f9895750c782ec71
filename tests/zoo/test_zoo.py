"""Models people have, on every engine: from capture to the engine's numbers. A sample of it runs in `make test`."""

import functools

import pytest
import torch
from torch.utils import _pytree as pytree

from qtool.backends.host import host_facts
from qtool.capture.export import capture, describe_inputs
from qtool.config.load import config_from_mapping
from qtool.runtime.module import RuntimeModel
from qtool.types import Isa
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_program
from qtool.workflows.verify import verify
from tests.zoo.zoo import MODELS, build

ISA = {"onednn": "vnni" if host_facts().isa_of("onednn") is Isa.VNNI else "any"}
SAMPLE = [("mobilenet_v2", "fbgemm"), ("resnet18", "qnnpack")]

LEAST_SQNR = 10.0
"""Of every output, in dB. Random weights let rounding errors grow; a wrong kernel gives less than 3."""


@functools.lru_cache(maxsize=1)  # models are large, and all tests of one follow each other
def captured(name):
    model, calibration, evaluation = build(name)
    with torch.no_grad():
        expected = pytree.tree_leaves(model(evaluation))
    return capture(model, (calibration,), describe_inputs((calibration,))), calibration, evaluation, expected


def sqnr(found, expected):
    noise = (found.double() - expected.double()).square().mean()
    return float(10 * torch.log10(expected.double().square().mean() / noise))


def check(name, backend):
    program, calibration, evaluation, expected = captured(name)
    config = {"target": {"backend": backend, "isa": ISA.get(backend, "any")}}
    prepared = prepare_program(program, config_from_mapping(config))
    calibrate(prepared, [calibration])
    converted = convert(prepared)
    for inputs in (None, (evaluation,)):
        steps = verify(prepared, converted, inputs)
        assert steps.keys() == {edge.name for edge in prepared.plan.edges}
        assert max(steps.values()) <= 1
    simulated, reference = pytree.tree_leaves(prepared(evaluation)), pytree.tree_leaves(converted(evaluation))
    assert all(torch.equal(a, b) for a, b in zip(simulated, reference, strict=True))
    found = pytree.tree_leaves(RuntimeModel(converted)(evaluation))
    assert min(sqnr(a, b) for a, b in zip(found, expected, strict=True)) >= LEAST_SQNR


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_on_every_engine(name):
    for backend in ("fbgemm", "qnnpack", "onednn", "x86"):
        check(name, backend)


@pytest.mark.parametrize(("name", "backend"), SAMPLE)
def test_a_sample(name, backend):
    check(name, backend)
