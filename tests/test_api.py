"""The public names, called as a user would."""

import importlib
import pkgutil

import pytest
import torch
from torch import nn

import qtool


def test_every_public_name_is_callable_after_all_submodules_are_imported():
    """A subpackage of a function's name would take its place on import."""
    for module in pkgutil.walk_packages(qtool.__path__, "qtool."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in qtool.__all__:
        found = getattr(qtool, name)
        assert callable(found) or isinstance(found, str)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        _ = qtool.quantise


def test_the_whole_way_by_the_api(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).eval()
    batches = [torch.randn(8, 3, 8, 8) for _ in range(3)]
    prepared = qtool.prepare(model, batches[0], {"target": {"backend": "qnnpack"}})
    assert qtool.calibrate(prepared, batches) == 3
    converted = qtool.convert(prepared)
    qtool.save(converted, tmp_path / "int8.pt2")
    runtime = qtool.load(tmp_path / "int8.pt2")
    with torch.no_grad():
        expected, found = model(batches[0]), runtime(batches[0])
    noise = (expected - found).pow(2).sum() / expected.pow(2).sum()
    assert noise < 1e-3
    report = qtool.inspect(tmp_path / "int8.pt2")
    assert report.stamp.backends == ("qnnpack",)
    assert report.outcome == "ok"
