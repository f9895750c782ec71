"""Every backend that prepares x every engine that runs x both kinds of CPU: all that is wrong is flagged, no more.

Each convolution and linear layer runs alone on the worst inputs of each output channel. What differs from the exact
sums must be flagged by inspect, by load, and in what evaluate reports; what is flagged must have a pair sum of 2^15
in its kernel's own order, found here by brute force.
"""

import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import qtool
from qtool.backends.faults import conv_fault
from qtool.backends.host import HostFacts
from qtool.backends.record import Pairing, Saturates, Support
from qtool.backends.registry import backend
from qtool.config.load import changed, load_config
from qtool.errors import MismatchError, QtoolWarning
from qtool.inspection.inspect import inspect_file
from qtool.lowering.mac_nodes import mac_nodes
from qtool.runtime.engine_choice import Here, place_nodes
from qtool.runtime.module import RuntimeModel
from qtool.runtime.store import to_bytes
from qtool.saturation.verdict import judge
from qtool.types import Isa
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare_from_config
from tests.backends.engines.cases import WorstCase
from tests.backends.engines.client import AVX2, capped_host, channel_errors
from tests.saturation.layers import ENGINES, WAYS

LITE0 = Path(__file__).parents[2] / "configs" / "efficientnet-lite0-fbgemm.yaml"
NO_VNNI = capped_host(AVX2)
VNNI = HostFacts(
    architecture="x86_64",
    cpu_flags=frozenset({"avx2", "avx512f", "avx512_vnni", "avx_vnni"}),
    caps=(),
    torch_version=None,
    engines=None,
)


class Layers(nn.Module):
    """Two layers of each kind: the first loud, its weights of one sign and at full scale, the second as they come."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList([nn.Conv2d(5, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])
        self.depthwise = nn.ModuleList([nn.Conv2d(8, 8, 3, groups=8, padding=1) for _ in range(2)])
        self.transposed = nn.ModuleList([nn.ConvTranspose2d(8, 8, 3, stride=2), nn.ConvTranspose2d(8, 6, 3)])
        self.linear = nn.ModuleList([nn.Linear(6, 9), nn.Linear(9, 4)])
        with torch.no_grad():
            for loud in (self.convs[0], self.depthwise[0], self.transposed[0], self.linear[0]):
                loud.weight.copy_(0.1 * loud.weight.sign().flatten(1)[:, :1].view(-1, *[1] * (loud.weight.dim() - 1)))

    def forward(self, x):
        for layer in (*self.convs, *self.depthwise, *self.transposed):
            x = torch.relu(layer(x))
        x = x.mean((2, 3))
        for layer in self.linear:
            x = layer(x)
        return x


@cache
def small_model(name, isa):
    x = torch.rand(8, 5, 8, 8, generator=torch.Generator().manual_seed(1))
    prepared = qtool.prepare(Layers().eval(), (x,), {"target": {"backend": name, "isa": isa}})
    qtool.calibrate(prepared, [(x,)])
    return qtool.convert(prepared)


@dataclass
class Counts:
    """What was found in a part of the matrix."""

    judged: int = 0
    refused: int = 0
    not_run: int = 0
    safe: int = 0
    flagged: int = 0
    differ: int = 0
    missed: list = field(default_factory=list)
    safe_but_wrong: list = field(default_factory=list)
    flagged_in_vain: list = field(default_factory=list)


def check(model, prepared_for, isa, counts):
    """Judge every node of a model on every engine for one kind of CPU."""
    host = NO_VNNI if isa is Isa.NO_VNNI else VNNI
    nodes, stamps = mac_nodes(model.body), {node.name: node for node in model.stamp.nodes}
    data = to_bytes(model)
    for engine in ENGINES:
        record = backend(engine)
        found = {
            finding.node for finding in inspect_file(data, backend=engine, isa=isa).findings if finding.code == "QT303"
        }
        placed = place_nodes(model.stamp, nodes, engine=engine, on_mismatch="fallback", here=Here(ENGINES, host)).nodes
        reported = overrides(model, engine) if isa is Isa.NO_VNNI else None
        for node in nodes:
            where = (prepared_for, engine, isa.value, node.label)
            if not has_kernel(record, node):
                counts.refused += placed[node.name].engine != engine
                assert placed[node.name].engine != engine, where
                continue
            judgement = judge(record, isa, stamps[node.label].layer)
            assert judgement == judge(record, isa, node.layer)  # what the stamp carries is what the weights say
            says = [node.label in found, placed[node.name].engine != engine]
            says += [node.label in reported] if reported is not None else []
            counts.judged += 1
            counts.safe += judgement.is_right
            counts.flagged += all(says)
            if any(says) and brute_force(record, node) < 2**15:
                counts.flagged_in_vain.append(where)
            if not can_run_here(record, node, isa):
                counts.not_run += 1
                continue
            differs = any(max(errors(way, node)) > 0 for way in WAYS[engine])
            counts.differ += differs
            if differs and not all(says):
                counts.missed.append(where)
            if differs and judgement.is_right:
                counts.safe_but_wrong.append(where)


def overrides(model, engine):
    """The nodes that evaluate's report names: those that run wrong; None where the engine refuses the model."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", QtoolWarning)
            return {each.node for each in RuntimeModel(model, engine, on_mismatch="warn").overrides}
    except MismatchError:
        return None


def has_kernel(record, node):
    is_supported = record.rule(node.op).support is not Support.UNSUPPORTED
    fits = not (record.name == "fbgemm" and "transpose" in node.op and node.has_scale_per_channel)
    return is_supported and fits and not conv_fault(record, node.op, node.codes.shape, node.groups)


def can_run_here(record, node, isa):
    """With VNNI only what sums in int16 there too: that kernel is the same one."""
    if isa is Isa.NO_VNNI or record.name == "qnnpack":
        return True
    return node.layer.depthwise and record.rule(node.op).depthwise_saturates is Saturates.ALWAYS


_ERRORS = {}


def errors(way, node):
    weight = node.channels_first().numpy()
    key = (way, weight.tobytes(), node.input.qmax)
    if key not in _ERRORS:
        case = WorstCase(
            way=way,
            op=node.op.value,
            shape=weight.shape,
            weight=weight.ravel().tolist(),
            groups=node.groups,
            a_hi=node.input.qmax,
        )
        (_ERRORS[key],) = channel_errors([case], AVX2)
    return _ERRORS[key]


def brute_force(record, node):
    """The largest pair sum of any pairing that the catalog states, by loops over places."""
    weight = node.channels_first().numpy().astype(int)
    rule, layer = record.rule(node.op), node.layer
    pairings = (layer.channel_multiplier == 1 and rule.depthwise_pairings) or rule.pairings
    return max(_largest(weight, pairing) for pairing in pairings) * node.input.qmax


def _largest(weight, pairing):
    rows = np.moveaxis(weight.reshape(*weight.shape[:2], -1), 1, 2)  # (out, places, channels)
    if pairing is Pairing.IN_ORDER:
        rows = rows.reshape(len(rows), 1, -1)
    if pairing is Pairing.ANY or (pairing is Pairing.CHANNELS and weight.shape[1] < 4):
        flat = np.sort(np.pad(weight.reshape(len(weight), -1), ((0, 0), (2, 2))), axis=1)
        return max(int(flat[:, -2:].sum(1).max()), -int(flat[:, :2].sum(1).min()))
    found = 0
    for first in range(0, rows.shape[2], 2):
        pair = rows[:, :, first : first + 2]
        found = max(found, int(pair.clip(min=0).sum(2).max()), -int(pair.clip(max=0).sum(2).min()))
    return found


def run_matrix(models):
    counts = Counts()
    for (prepared_for, _), model in models.items():
        for isa in (Isa.NO_VNNI, Isa.VNNI):
            check(model, prepared_for, isa, counts)
    return counts


def assert_nothing_is_missed(counts):
    assert counts.missed == []
    assert counts.safe_but_wrong == []
    assert counts.flagged_in_vain == []
    assert counts.differ > 0


def test_a_sample_of_the_matrix():
    assert_nothing_is_missed(run_matrix({("onednn", "vnni"): small_model("onednn", "vnni")}))


@pytest.mark.slow
def test_the_matrix_with_weights_at_full_scale(record_property):
    made = {(name, isa): small_model(name, isa) for name in ENGINES for isa in ("vnni", "any")}
    counts = run_matrix(made)
    record_property("counts", str(counts))
    assert_nothing_is_missed(counts)


@pytest.mark.slow
def test_the_matrix_with_the_weights_of_a_real_model(record_property):
    config = load_config(LITE0)
    made = {}
    for name in ENGINES:
        settings = changed(config, {"target.backend": name, "target.isa": "vnni"}, "test")
        made[name, "vnni"] = convert(prepare_from_config(settings))
    counts = run_matrix(made)
    record_property("counts", str(counts))
    assert_nothing_is_missed(counts)


def test_a_bound_that_is_too_small_is_found(monkeypatch):
    """So that the tests above can fail: pretend that onednn pairs nothing, and its wrong layers are missed."""
    model = small_model("onednn", "vnni")
    real = judge
    monkeypatch.setattr("qtool.inspection.target_rules.judge", lambda record, _, layer: real(record, Isa.VNNI, layer))
    counts = Counts()
    check(model, "onednn", Isa.NO_VNNI, counts)
    assert counts.missed != []
