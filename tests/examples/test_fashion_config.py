"""examples/fashion_mnist.yaml describes the same run as fashion_mnist.py."""

from pathlib import Path

import pytest

from examples.fashion_data import FOLDERS, PREPROCESS
from qtool.config.load import changed, load_config
from qtool.config.paths import resolve_path
from qtool.workflows.prepare import prepare_from_config

FILE = Path(__file__).parents[2] / "examples" / "fashion_mnist.yaml"


@pytest.fixture(scope="module")
def config():
    return load_config(FILE)


@pytest.mark.parametrize("part", ["calibrate", "train", "evaluate"])
def test_pictures_come_from_make_data_and_are_treated_as_in_training(config, part):
    source = getattr(config.data, part)
    assert source.preprocess == PREPROCESS
    assert resolve_path(source.folder, config.base).resolve() == FOLDERS[0].resolve()


def test_it_prepares_its_net(config):
    digits = {"kind": "digits", "split": "train", "limit": 10}
    inputs = [{"name": "image", "shape": ["batch", 1, 8, 8]}]
    changes = {"model.checkpoint": None, "model.random_init": True, "model.inputs": inputs, "data.calibrate": digits}
    prepared = prepare_from_config(changed(config, changes, "test"))
    assert prepared.uncalibrated() == ()
    assert len(prepared.plan.int8_nodes()) == len(prepared.plan.nodes)
