"""What is counted on data, against engines under caps: a layer counted to clip differs, one that is not is exact."""

import json

import pytest
import torch
from torch import nn

import qtool
from qtool.backends.record import Pairing
from qtool.backends.registry import backend
from qtool.cli.main import run
from qtool.data.batch import Batch
from qtool.types import Isa
from qtool.workflows.saturation import clipped_on_data
from tests.cli.conftest import write_config_to


class Layers(nn.Module):
    """A loud and a quiet convolution, a depthwise one and a linear layer."""

    def __init__(self):
        super().__init__()
        self.loud, self.quiet = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3)
        self.depthwise, self.linear = nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Linear(8, 4)
        with torch.no_grad():
            for layer in (self.loud, self.depthwise):
                layer.weight.fill_(0.1)
            self.quiet.weight.zero_()[:, :, 1, 1] = torch.eye(8)
            self.linear.weight.copy_(torch.eye(4, 8))

    def forward(self, x):
        x = self.depthwise(torch.relu(self.quiet(torch.relu(self.loud(x)))))
        return self.linear(x.mean((2, 3)))


@pytest.fixture(scope="module")
def converted():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(4, 4, 8, 8, generator=generator)
    prepared = qtool.prepare(Layers().eval(), (x,), {"target": {"backend": "fbgemm", "isa": "vnni"}})
    qtool.calibrate(prepared, [(x,)])
    return qtool.convert(prepared), x


def counts(converted, name, isa=Isa.NO_VNNI):
    model, x = converted
    return {each.node: each for each in clipped_on_data(model, [Batch(inputs=(x,), labels=None)], backend(name), isa)}


def test_layers_that_cannot_saturate_are_not_counted(converted):
    assert set(counts(converted, "fbgemm")) == {"loud"}  # the depthwise one has a reduced range even for VNNI
    assert set(counts(converted, "onednn")) == {"loud"}
    assert counts(converted, "qnnpack") == {}
    assert set(counts(converted, "fbgemm", Isa.VNNI)) == set()


def test_the_share_of_sums(converted):
    found = counts(converted, "fbgemm")["loud"]
    assert found.pairing is Pairing.IN_ORDER
    assert found.num_sums == 4 * 8 * 8 * 8 * 18  # samples, channels, rows, columns, pairs of 36 weights
    assert 0 < found.num_clipped < found.num_sums
    assert 0 < found.num_wrong <= found.num_outputs == 4 * 8 * 8 * 8
    assert found.share == found.num_clipped / found.num_sums


def test_data_that_is_dark_clips_nothing(converted):
    model, x = converted
    dark = [Batch(inputs=(x * 0.1,), labels=None), Batch(inputs=(x * 0.2,), labels=None)]
    found = {each.node: each for each in clipped_on_data(model, dark, backend("fbgemm"), Isa.NO_VNNI)}
    assert found["loud"].num_sums == 2 * 4 * 8 * 8 * 8 * 18
    assert (found["loud"].num_clipped, found["loud"].num_wrong) == (0, 0)


def test_evaluate_reports_it(tmp_path, capfd):
    changes = {"target": {"backend": "fbgemm", "isa": "vnni"}, "model.factory": "tests.cli.models:loud_classifier"}
    config = write_config_to(tmp_path / "model.yaml", changes)
    assert run(["prepare", str(config), "-o", str(tmp_path / "p.pt2")]) == 0
    assert run(["convert", str(tmp_path / "p.pt2"), "-o", str(tmp_path / "c.pt2")]) == 0
    command = ["evaluate", str(tmp_path / "c.pt2"), "--config", str(config), "--saturation"]
    capfd.readouterr()
    assert run([*command, "--json"]) == 0
    (node,) = json.loads(capfd.readouterr().out)["saturation"]
    assert node["node"] == "0"
    assert node["share"] == node["num_clipped"] / node["num_sums"] > 0
    assert run(command) == 0
    assert "layer that can saturate" in capfd.readouterr().out
    assert run([*command[:1], str(tmp_path / "p.pt2"), *command[2:]]) == 2
    assert "--saturation: a prepared file runs on no kernel" in capfd.readouterr().err
