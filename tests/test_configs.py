"""Every config in configs/, run on a small input: its converted model is what its fake-quantized one says."""

import functools
from pathlib import Path

import pytest
import torch

from qtool.backends.host import host_facts
from qtool.config.load import changed, load_config
from qtool.data.sources import open_source
from qtool.runtime.store import from_bytes
from qtool.types import Isa, Stage
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_program, program_from_config
from qtool.workflows.train import train_from_config
from qtool.workflows.verify import verify

PATHS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
TRAINED = [path for path in PATHS if load_config(path).train is not None]
CONFIGS = [path for path in PATHS if path not in TRAINED]
SIDE = 64


def small(path, side=SIDE):
    """The config with pictures of at most `side` pixels, four random ones to calibrate on."""
    config = load_config(path)
    (image,) = config.model.inputs
    sides = [min(size, side) for size in image.shape[2:]]
    inputs = [{"name": image.name, "shape": ["batch", image.shape[1], *sides], "dtype": image.dtype}]
    data = {"kind": "synthetic", "count": 4, "seed": 0}
    return changed(config, {"model.inputs": inputs, "data.calibrate": data, "data.evaluate": data}, "test")


def labelled(shape, count):
    """Noise with labels, for trainings."""
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(*shape, generator=generator), number % 10) for number in range(count)]


@functools.cache
def captured(model_json):
    path = next(path for path in CONFIGS if small(path).model.model_dump_json() == model_json)
    return program_from_config(small(path))


def test_there_is_a_config_for_each_shown_model_and_backend():
    names = {path.stem for path in PATHS}
    assert {"digits-fbgemm-qat", "mobilenet-v2-qnnpack-qat"} <= names
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


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_trained_and_converted_is_within_one_step_of_fake_quantized(path, monkeypatch):
    monkeypatch.chdir(path.parents[1])  # examples/ is importable from there
    config = small(path, side=32)
    kwargs = {"shape": config.model.inputs[0].shape[1:], "count": 6}
    data = {"kind": "python", "factory": "tests.test_configs:labelled", "kwargs": kwargs, "batch_size": 3}
    # Not calibrated: random weights with batch norms that saw no data have ranges of 1e-9 in eval mode.
    changes = {"data.calibrate": None, "data.train": data, "data.evaluate": data}
    changes |= {"model.weights": None, "model.random_init": True, "train.num_workers": 0, "train.device": "cpu"}
    changes |= {"train.epochs": 2, "train.freeze_observers_after": 1, "train.freeze_batch_norm_after": 1}
    model = from_bytes(train_from_config(changed(config, changes, "test")).data)
    assert model.stage is Stage.TRAINED
    steps = verify(model, convert(model))
    assert steps.keys() == {edge.name for edge in model.plan.edges}
    assert max(steps.values()) <= 1
