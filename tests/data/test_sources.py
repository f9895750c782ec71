import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from qtool.config.load import config_from_mapping
from qtool.config.schema import InputConfig, SelectConfig, SyntheticSource
from qtool.data.sources import open_source
from qtool.errors import DataError

DIGITS = InputConfig(name="x", shape=("batch", 1, 8, 8))
PHOTO = InputConfig(name="x", shape=("batch", 3, 8, 8))


def described(**source):
    """Return the source that a config file describes."""
    config = config_from_mapping({"version": 1, "target": {"backend": "fbgemm"}, "data": {"evaluate": source}})
    assert config.data.evaluate is not None
    return config.data.evaluate


def synthetic(**settings):
    return open_source(SyntheticSource(kind="synthetic", **settings), inputs=(DIGITS,), base=Path())


@pytest.mark.parametrize(
    ("source", "inputs", "num_samples"),
    [
        ({"kind": "photos", "folder": "photos", "glob": "*/*.png"}, PHOTO, 2),
        ({"kind": "imagefolder", "folder": "photos"}, PHOTO, 2),
        ({"kind": "digits", "split": "test"}, DIGITS, 360),
        ({"kind": "synthetic", "count": 5}, PHOTO, 5),
        ({"kind": "python", "factory": "torch:zeros", "kwargs": {"size": [6, 3, 8, 8]}}, PHOTO, 6),
    ],
)
def test_every_kind_is_opened_from_a_config_and_fits_the_model(tmp_path, source, inputs, num_samples):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name / "1.png")
    opened = open_source(described(**source), inputs=(inputs,), base=tmp_path)
    assert len(opened) == num_samples
    assert sum(len(batch) for batch in opened.batches()) == num_samples


def test_batches_come_in_order_with_the_rest_last():
    source = open_source(described(kind="digits", split="test", batch_size=100), inputs=(DIGITS,), base=Path())
    batches = list(source.batches())
    assert [len(batch) for batch in batches] == [100, 100, 100, 60]
    assert batches[0].inputs[0].shape == (100, 1, 8, 8)
    assert batches[0].inputs[0].dtype == torch.float32


def test_every_pass_is_the_same():
    source = synthetic(count=25, select=SelectConfig(count=20, seed=4), limit=15, batch_size=4)
    assert len(source) == 15
    first, second = list(source.batches()), list(source.batches())
    assert [len(batch) for batch in first] == [4, 4, 4, 3]
    assert all(torch.equal(a.inputs[0], b.inputs[0]) for a, b in zip(first, second, strict=True))


def test_the_batch_size_changes_nothing_in_the_samples():
    whole = [torch.cat([b.inputs[0] for b in synthetic(count=9, batch_size=size).batches()]) for size in (1, 4, 50)]
    assert torch.equal(whole[0], whole[1])
    assert torch.equal(whole[0], whole[2])


def test_batches_are_made_one_at_a_time(tmp_path):
    for index in range(4):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{index}.png")
    source = open_source(
        described(kind="photos", folder=".", glob="*.png", batch_size=2), inputs=(PHOTO,), base=tmp_path
    )
    batches = source.batches()
    next(batches)
    (tmp_path / "3.png").write_bytes(b"damaged after the first batch")
    with pytest.raises(DataError, match=r"3\.png: does not decode"):
        next(batches)


def test_a_photo_of_another_size_than_the_model_takes_is_named(tmp_path):
    Image.new("RGB", (9, 8)).save(tmp_path / "wide.jpg")
    source = open_source(described(kind="photos", folder="."), inputs=(PHOTO,), base=tmp_path)
    with pytest.raises(DataError, match=r"wide\.jpg has shape \[3, 8, 9\], but model input 'x' takes \[3, 8, 8\]"):
        next(source.batches())


def test_a_draw_and_its_complement_are_all_of_the_source():
    def labels(**select):
        source = described(kind="digits", split="test", select={"count": 100, "seed": 6, **select})
        opened = open_source(source, inputs=(DIGITS,), base=Path())
        return [x.flatten().tolist() for batch in opened.batches() for x in batch.inputs[0]]

    whole = open_source(described(kind="digits", split="test"), inputs=(DIGITS,), base=Path())
    everything = [x.flatten().tolist() for batch in whole.batches() for x in batch.inputs[0]]
    assert sorted(labels() + labels(complement=True)) == sorted(everything)
    assert len(labels()) == 100


def test_a_factory_that_hands_out_one_iterator_is_told_so(tmp_path, monkeypatch):
    (tmp_path / "once.py").write_text("import torch\nhere = iter([torch.zeros(1, 8, 8)])\ndef data(): return here\n")
    monkeypatch.chdir(tmp_path)
    source = open_source(described(kind="python", factory="once:data"), inputs=(DIGITS,), base=tmp_path)
    assert len(list(source.batches())) == 1
    with pytest.raises(DataError, match="gave no samples: a factory must return them anew"):
        list(source.batches())
    del sys.modules["once"]


def test_a_model_with_a_fixed_batch_is_given_whole_batches_only():
    fixed = (InputConfig(name="x", shape=(4, 1, 8, 8)),)

    def opened(**settings):
        return open_source(SyntheticSource(kind="synthetic", **settings), inputs=fixed, base=Path())

    with pytest.raises(DataError, match="'x' takes batches of 4, and batch_size is 10: set batch_size: 4"):
        opened(count=20)
    with pytest.raises(DataError, match="takes batches of 4, which 22 samples do not fill: set limit: 20"):
        opened(count=22, batch_size=4)
    assert [len(batch) for batch in opened(count=22, limit=20, batch_size=4).batches()] == [4] * 5
