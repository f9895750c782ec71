"""The twenty labelled photos that the demo and the accuracy figures stand on, through the demo's own config."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision import transforms

from qtool.config.load import load_config
from qtool.data.sources import open_source

CONFIG = load_config(Path(__file__).parents[2] / "configs" / "efficientnet-lite0-fbgemm.yaml")
LABELS = [243, 559, 438, 990, 949, 853, 609, 609, 915, 455, 541, 630, 741, 471, 129, 99, 251, 22, 318, 305]


@pytest.fixture
def opened():
    def open_one(source):
        assert CONFIG.model is not None
        return open_source(source, inputs=CONFIG.model.inputs, base=CONFIG.base)

    return open_one


def test_calibration_and_evaluation_are_ten_photos_each_and_share_none(opened):
    halves = [opened(CONFIG.data.calibrate), opened(CONFIG.data.evaluate)]
    assert [len(half) for half in halves] == [10, 10]
    indices = [set(half.samples.indices) for half in halves]
    assert indices[0] | indices[1] == set(range(20))


def test_photos_come_as_the_model_was_trained_on_them(opened):
    source = opened(CONFIG.data.evaluate)
    batch = next(source.batches())
    assert batch.inputs[0].shape == (10, 3, 224, 224)
    assert batch.labels.tolist() == [LABELS[index] for index in source.samples.indices]
    by_hand = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ]
    )
    folder = Path(find_spec("foolbox").origin).parent / "data"
    first = source.samples.indices[0]
    assert torch.equal(batch.inputs[0][0], by_hand(Image.open(folder / f"imagenet_{first:02}_{LABELS[first]}.jpg")))
