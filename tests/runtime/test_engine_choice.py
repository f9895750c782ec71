"""Cases 1 and 2, the runtime's half: which engine runs a node, on this machine and on others."""

import dataclasses
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from qtool.backends.host import HostFacts, host_facts
from qtool.capture.program import plain_module
from qtool.errors import MismatchError, MissingEngineError, QtoolWarning, UsageError
from qtool.lowering.mac_nodes import mac_nodes
from qtool.runtime.engine_choice import Here, place_nodes
from qtool.runtime.module import RuntimeModel
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import conv

ALL = ("fbgemm", "onednn", "qnnpack", "x86")
VNNI = frozenset({"avx2", "avx512f", "avx512_vnni"})
NO_VNNI = frozenset({"avx2"})


def here(engines=ALL, flags=NO_VNNI):
    return Here(engines, HostFacts(architecture="x86_64", cpu_flags=flags, caps=(), torch_version="", engines=engines))


def converted_for(backend, isa="any", model=None, shape=(2, 4, 9, 9)):
    """A convolution that reads the full range where it may, and a linear layer; weights of one sign saturate."""
    torch.manual_seed(0)
    model = model or nn.Sequential(conv(4, 8), nn.ReLU(), conv(8, 8, groups=8), nn.Flatten(), nn.Linear(200, 4))
    for layer in model.modules():
        if hasattr(layer, "weight"):
            layer.weight.data.abs_().add_(layer.weight.data.max())
    x = torch.rand(shape)
    prepared = prepare(model.eval(), x, {"target": {"backend": backend, "isa": isa}})
    calibrate(prepared, [x])
    return convert(prepared)


@pytest.fixture(scope="module")
def reduced():
    return converted_for("fbgemm")


@pytest.fixture(scope="module")
def full():
    return converted_for("onednn", "vnni")


def engines(converted, **options):
    nodes = mac_nodes(plain_module(converted.exported))
    placement = place_nodes(converted.stamp, nodes, **options)
    return {node.label: placement.nodes[node.name].engine for node in nodes}, placement


def test_each_node_runs_where_it_was_made_for(reduced):
    found, placement = engines(reduced, here=here())
    assert found == {"0": "fbgemm", "2": "fbgemm", "4": "fbgemm"}
    assert {placed.why for placed in placement.nodes.values()} == {"made for fbgemm"}
    assert placement.warning == ""


def test_case_01_nodes_that_would_saturate_run_on_qnnpack(full):
    assert set(engines(full, here=here(flags=VNNI))[0].values()) == {"onednn"}
    found, placement = engines(full, here=here())
    assert found == {"0": "qnnpack", "2": "onednn", "4": "qnnpack"}  # oneDNN's depthwise kernel is exact
    assert placement.warning == (
        "qnnpack runs 0, 4 instead of onednn: the input needs its full range, and onednn on this CPU (no-vnni) adds "
        "products in int16"
    )


def test_unknown_cpus_count_as_without_vnni(full):
    assert engines(full, here=here(flags=None))[0]["0"] == "qnnpack"


@pytest.mark.parametrize("asked", ["fbgemm", "x86", "onednn"])
def test_case_01_an_engine_asked_for_that_would_saturate_is_refused(full, asked):
    with pytest.raises(MismatchError, match=r"^0, .*4 would saturate without a message: they were made for onednn"):
        engines(full, engine=asked, here=here())


def test_case_01_fallback_moves_only_the_nodes_that_are_wrong(full):
    found, placement = engines(full, engine="onednn", on_mismatch="fallback", here=here())
    assert found == {"0": "qnnpack", "2": "onednn", "4": "qnnpack"}
    assert placement.warning.startswith("qnnpack runs 0, 4 instead of onednn")
    assert not any(placed.wrong for placed in placement.nodes.values())


def test_case_01_warn_runs_them_as_asked_and_says_so(full):
    found, placement = engines(full, engine="onednn", on_mismatch="warn", here=here())
    assert set(found.values()) == {"onednn"}
    assert placement.warning.startswith("onednn runs 0, 4 as asked, and the numbers may be wrong: the input needs")
    assert [bool(placed.wrong) for placed in placement.nodes.values()] == [True, False, True]


def test_case_01_a_model_says_what_it_overrides(full):
    """On whatever CPU this runs: where oneDNN has VNNI nothing is overridden, and nothing said."""
    is_wrong = Here().host.isa_of("onednn") != "vnni"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", QtoolWarning)
        model = RuntimeModel(full, "onednn", on_mismatch="warn")
    assert [override.node for override in model.overrides] == (["0", "4"] if is_wrong else [])
    assert len(said) == is_wrong
    assert model.engine == "onednn"


def test_qnnpack_runs_everything_right_anywhere(full):
    found, placement = engines(full, engine="qnnpack", here=here(("qnnpack",), None))
    assert set(found.values()) == {"qnnpack"}
    assert placement.warning == ""
    assert {placed.why for placed in placement.nodes.values()} == {"asked for"}


@pytest.mark.parametrize("way", ["error", "warn"])
def test_case_02_a_missing_engine_is_an_error_that_says_what_is_here(reduced, way):
    with pytest.raises(MissingEngineError) as failure:
        engines(reduced, on_mismatch=way, here=here(("qnnpack",)))
    assert failure.value.exit_code == 4
    assert "'fbgemm' is not available here; this torch has: qnnpack." in str(failure.value)
    assert "--on-mismatch fallback" in str(failure.value)


def test_case_02_no_engine_at_all(reduced):
    for way in ("error", "fallback"):
        with pytest.raises(MissingEngineError, match="this torch has none"):
            engines(reduced, on_mismatch=way, here=here(()))


def test_case_02_fallback_runs_on_what_is_here(reduced):
    for asked in (None, "fbgemm"):
        found, placement = engines(reduced, engine=asked, on_mismatch="fallback", here=here(("qnnpack",)))
        assert set(found.values()) == {"qnnpack"}
        assert placement.warning == "qnnpack runs 0, 2, 4 instead of fbgemm: fbgemm is not here"


@pytest.mark.parametrize("option", ["engine", "on_mismatch"])
def test_case_02_unknown_names_are_usage_errors_with_the_nearest_name(reduced, option):
    wrong, right = {"engine": ("qnpack", "qnnpack"), "on_mismatch": ("fallbak", "fallback")}[option]
    with pytest.raises(UsageError, match=f"{option} '{wrong}' is not known; did you mean '{right}'"):
        engines(reduced, **{option: wrong}, here=here())


def test_an_engine_without_a_kernel_leaves_the_node_to_another():
    model = nn.Sequential(conv(4, 8), nn.ConvTranspose2d(8, 8, 2, stride=2))
    converted = converted_for("qnnpack", model=model)
    for way in ("error", "warn"):  # no kernel is no wrong number: there is nothing to run
        with pytest.raises(MismatchError, match="1 cannot run on fbgemm"):
            engines(converted, engine="fbgemm", on_mismatch=way, here=here(flags=VNNI))
    found, placement = engines(converted, engine="fbgemm", on_mismatch="fallback", here=here(flags=VNNI))
    assert found == {"0": "fbgemm", "1": "qnnpack"}
    assert "qnnpack runs 1 instead of fbgemm: " in placement.warning


def test_the_first_backend_that_is_here_runs_a_node_made_for_several():
    converted = converted_for(["fbgemm", "qnnpack"])
    assert set(engines(converted, here=here())[0].values()) == {"fbgemm"}
    found, placement = engines(converted, here=here(("qnnpack",)))
    assert set(found.values()) == {"qnnpack"}
    assert placement.warning == ""


def test_nodes_without_a_stamp_are_judged_by_their_weights(full):
    nodes = mac_nodes(plain_module(full.exported))
    lost = [type(node)(**{**vars(node), "label": node.name}) for node in nodes]
    stamped = engines(full, here=here())[0]
    assert stamped["0"] == "qnnpack"
    placement = place_nodes(full.stamp, lost, here=here())
    assert [placement.nodes[node.name].engine for node in lost] == list(stamped.values())


def test_a_stamp_that_calls_weights_safe_is_not_believed():
    """The stamp lies outside of the content's digest, and the weights are at hand."""
    layer = torch.nn.Linear(8, 4)
    layer.weight.data.fill_(1.0)
    x = torch.rand(4, 8)
    prepared = prepare(layer.eval(), x, {"target": {"backend": "qnnpack"}})
    calibrate(prepared, [x])
    converted = convert(prepared)
    (node,) = converted.stamp.nodes
    bounds = tuple(dataclasses.replace(bound, num_channels=0, worst_pair_sum=1) for bound in node.saturation.bounds)
    lie = dataclasses.replace(node.saturation, verdict="safe", num_channels=0, worst_pair_sum=1, bounds=bounds)
    converted.stamp = dataclasses.replace(converted.stamp, nodes=(dataclasses.replace(node, saturation=lie),))
    host = host_facts(architecture="x86_64", cpuinfo=Path("/nowhere"))
    nodes = mac_nodes(plain_module(converted.exported))
    with pytest.raises(MismatchError, match="would saturate without a message"):
        place_nodes(converted.stamp, nodes, engine="fbgemm", here=Here(host=host))
