"""Plain ATen: the same bits, nothing but torch to open it, int8 inside, and a stamp."""

import io
import subprocess
import sys

import pytest
import torch

import qtool
from qtool.errors import UsageError
from qtool.exporters.pt2 import pt2_differences, pt2_files
from qtool.runtime.store import to_bytes
from qtool.types import Stage
from tests.exporters.together import ALL, FEW, converted_pattern, converted_together

BARE = """
import sys, torch
loaded = torch.export.load(sys.argv[1]).module()
found = loaded(torch.load(sys.argv[2]))
assert not [name for name in sys.modules if name.startswith(("qtool", "torch.ao.quantization.fx"))]
torch.save(found, sys.argv[3])
"""


@pytest.mark.parametrize("names", [FEW, pytest.param(ALL, marks=pytest.mark.slow)], ids=["few", "all"])
def test_the_same_bits_come_out(names):
    converted, (_, beyond) = converted_together(names, "fbgemm")
    files = pt2_files(converted)
    program = torch.export.load(io.BytesIO(files.data))
    assert not [node for node in program.graph.nodes if "quantized" in str(node.target)]
    assert set(pt2_differences(converted, files, (beyond,)).values()) == {0}


def test_a_difference_is_seen():
    (converted, x), (other, _) = converted_pattern("conv2d"), converted_pattern("conv2d_bn_relu6")
    assert pt2_differences(converted, pt2_files(other), (x,))["output"] > 0


def test_torch_alone_opens_it(tmp_path):
    converted, x = converted_pattern("conv2d_bn_relu6", "fbgemm")
    qtool.export(converted, tmp_path / "plain.pt2", "pt2")
    torch.save(x, tmp_path / "x")
    paths = [str(tmp_path / name) for name in ("plain.pt2", "x", "y")]
    subprocess.run([sys.executable, "-c", BARE, *paths], check=True, cwd=tmp_path)
    assert torch.equal(torch.load(tmp_path / "y"), converted(x))


def test_the_same_model_gives_the_same_bytes_and_stays_as_it_is():
    converted, _ = converted_pattern("conv2d_bn_relu6", "fbgemm")
    before = to_bytes(converted)
    assert pt2_files(converted) == pt2_files(converted)
    assert to_bytes(converted) == before


def test_weights_are_int8_and_every_node_is_stamped():
    program = torch.export.load(io.BytesIO(pt2_files(converted_pattern("conv2d_bn_relu6", "fbgemm")[0]).data))
    assert program.state_dict["0.int8.weight"].dtype is torch.int8
    ops = [n for n in program.graph.nodes if n.op == "call_function" and "_assert_async" not in str(n.target)]
    stamps = [n.meta["custom"] for n in ops]
    assert {"qtool": {"node": "0", "backend": "fbgemm", "reduce_range": True}} in stamps
    assert all(list(custom) == ["qtool"] for custom in stamps)


def test_inspect_says_that_it_is_exported():
    report = qtool.inspect(pt2_files(converted_pattern("conv2d_bn_relu6", "fbgemm")[0]).data)
    assert report.outcome == "ok"
    assert report.stamp.stage is Stage.EXPORTED


def test_loading_it_with_qtool_names_its_runtime(tmp_path):
    qtool.export(converted_pattern("conv2d_bn_relu6", "fbgemm")[0], tmp_path / "plain.pt2", "pt2")
    with pytest.raises(UsageError, match=r"is exported: it runs in torch without qtool, torch\.export\.load"):
        qtool.load(tmp_path / "plain.pt2")
