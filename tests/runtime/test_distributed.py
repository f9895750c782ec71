"""A prepared model under DistributedDataParallel, in two processes."""

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from qtool.errors import UsageError
from qtool.workflows.prepare import prepare

SCRIPT = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
import qtool

rank, store = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
config = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}}
prepared = qtool.prepare(model, torch.randn(4, 2, 6, 6), config).train()
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
wrapped = nn.parallel.DistributedDataParallel(prepared)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)
torch.manual_seed(rank)
for _ in range(3):
    optimizer.zero_grad()
    wrapped(torch.randn(4, 2, 6, 6) * (1 + 9 * rank)).square().mean().backward()
    optimizer.step()
wrapped(torch.randn(4, 2, 6, 6))  # its beginning gives every rank the buffers of the first
gathered = [None, None]
dist.all_gather_object(gathered, {n: p.detach() for n, p in prepared.named_parameters()})
assert all(torch.equal(gathered[0][n], gathered[1][n]) for n in gathered[0])
scales = {n: p.fake_quantize.scale for n, p in (*prepared.activations.items(), *prepared.weights.items())}
dist.all_gather_object(gathered, scales)
assert all(torch.equal(gathered[0][n], gathered[1][n]) for n in gathered[0])
assert prepared.uncalibrated() == ()
dist.destroy_process_group()
print("equal")
"""


RANGES = """
import hashlib, io, sys
import torch
import torch.distributed as dist
from torch import nn
import qtool

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
for observer in ("minmax", "moving_average", "histogram", "percentile", "mse"):
    torch.manual_seed(0)
    config = {"target": {"backend": "qnnpack"}, "quantize": {"activations": {"observer": observer}}}
    prepared = qtool.prepare(nn.Linear(2, 2).eval(), torch.zeros(2, 2), config)
    reach = 1.0 + 9.0 * rank
    qtool.calibrate(prepared, [torch.linspace(-reach, reach, 40).reshape(20, 2)])
    prepared.share_ranges()
    seen = prepared.activations["input"].observer
    assert (float(seen.low), float(seen.high)) == (-10.0, 10.0), (observer, seen.low, seen.high)
    if observer == "minmax":
        assert float(prepared.activations["input"].fake_quantize.scale) == float(torch.tensor(20.0) / 255)
    data = io.BytesIO()
    qtool.save(qtool.convert(prepared), data)
    found = [None, None]
    dist.all_gather_object(found, hashlib.sha256(data.getvalue()).hexdigest())
    assert found[0] == found[1], observer
dist.destroy_process_group()
print("equal")
"""


def test_case_41_ranks_that_saw_other_data_share_their_ranges(tmp_path):
    run_on_two_ranks(RANGES, tmp_path)


def test_case_41_without_processes_there_is_nothing_to_share():
    prepared = prepare(nn.Linear(2, 2).eval(), torch.zeros(2, 2), {"target": {"backend": "qnnpack"}})
    with pytest.raises(UsageError, match="is not initialised"):
        prepared.share_ranges()


def test_ranks_keep_the_same_weights_and_grids(tmp_path):
    run_on_two_ranks(SCRIPT, tmp_path)


def run_on_two_ranks(script, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        assert (out.strip(), rank.returncode) == (b"equal", 0), err.decode()
