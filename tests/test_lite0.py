"""The main job's figures on the real model: sizes, nothing of the machine inside, the same bytes twice, accuracy.

One draw of photos here; `make accuracy` has ten, on every engine.
"""

import sys
from pathlib import Path

import pytest
import torch

from qtool.config.load import changed, load_config
from qtool.data.sources import open_source
from qtool.readers.archive import read_archive
from qtool.runtime.module import RuntimeModel
from qtool.runtime.store import from_bytes, to_bytes
from qtool.workflows.convert import convert
from qtool.workflows.evaluate import sqnr_db
from qtool.workflows.float_model import build_model
from qtool.workflows.prepare import prepare_from_config

FLOAT_BYTES = 18.87e6
"""Size of the float model's state dict."""

CONFIG = Path(__file__).parents[1] / "configs" / "efficientnet-lite0-fbgemm.yaml"


@pytest.fixture(scope="module")
def config():
    return load_config(CONFIG)


@pytest.fixture(scope="module")
def prepared_bytes(config):
    return to_bytes(prepare_from_config(config))


@pytest.fixture(scope="module")
def converted(prepared_bytes):
    return convert(from_bytes(prepared_bytes))


@pytest.fixture(scope="module")
def converted_bytes(converted):
    return to_bytes(converted)


def test_sizes(prepared_bytes, converted_bytes):
    assert len(prepared_bytes) <= 1.1 * FLOAT_BYTES
    assert len(converted_bytes) <= 0.30 * FLOAT_BYTES


def test_nothing_of_the_machine_is_inside(prepared_bytes, converted_bytes):
    for data in (prepared_bytes, converted_bytes):
        with read_archive(data) as archive:
            content = b"\n".join(archive.read(name, limit=1 << 30) for name in archive.names)
        for text in ("site-packages", sys.prefix, str(Path.home()), str(CONFIG.parent), ".py", "def forward", "self."):
            assert text.encode() not in content, text


def test_two_runs_give_the_same_bytes(config, prepared_bytes, converted_bytes):
    again = prepare_from_config(config)
    assert to_bytes(again) == prepared_bytes
    assert to_bytes(convert(again)) == converted_bytes


def test_every_node_is_int8(converted):
    assert converted.plan.float_islands() == {}


@torch.no_grad()
def test_accuracy_on_one_draw(config, converted):
    everything = changed(config, {"data.evaluate.select": None}, "test")
    source = open_source(everything.data.evaluate, inputs=config.model.inputs, base=config.base)
    batches = list(source.batches())
    images = torch.cat([batch.inputs[0] for batch in batches])
    expected, found = build_model(config)(images), RuntimeModel(converted)(images)
    difference = (expected - found).double().square().sum().item()
    assert sqnr_db(expected.double().square().sum().item(), difference) >= 16.5
    assert float((expected.argmax(1) == found.argmax(1)).float().mean()) >= 0.9
