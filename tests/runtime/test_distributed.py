"""A prepared model under DistributedDataParallel, in two processes."""

import subprocess
import sys
import textwrap

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


def test_ranks_keep_the_same_weights_and_grids(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SCRIPT)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        assert (out.strip(), rank.returncode) == (b"equal", 0), err.decode()
