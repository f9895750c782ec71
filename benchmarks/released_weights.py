"""What a process that runs a model under qnnpack holds, with the original weights kept and released.

    python -m benchmarks.released_weights

Each row loads one file and runs it once in a fresh process, twice: with release_weights=False and True. Resident sizes
are what the load and the run added, with freed memory given back to the system before they are read.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn

import qtool
from qtool.training.resident_size import resident_bytes, settle

MODELS = ("mobilenet_v2", "resnet50", "linear_4096")
MIB = 2**20


def build(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if name == "linear_4096":
        return nn.Linear(4096, 4096).eval(), torch.randn(1, 4096)
    import torchvision  # noqa: PLC0415

    return getattr(torchvision.models, name)(weights=None).eval(), torch.randn(1, 3, 224, 224)


def make_file(name: str, folder: Path) -> Path:
    model, x = build(name)
    prepared = qtool.prepare(model, torch.cat([x, -x]), {"target": {"backend": "qnnpack"}})
    qtool.calibrate(prepared, [x])
    path = folder / f"{name}.pt2"
    qtool.save(qtool.convert(prepared), path)
    return path


def measure(path: Path, *, release: bool) -> dict[str, object]:
    """Load and run once in this process; prints what that added to the resident size."""
    warnings.simplefilter("ignore")
    _, x = build(path.stem)
    warm = nn.Linear(8, 8)
    prepared = qtool.prepare(warm, torch.randn(2, 8), {"target": {"backend": "qnnpack"}})
    qtool.calibrate(prepared, [torch.randn(2, 8)])
    small = path.with_name(f"warm-{release}.pt2")
    qtool.save(qtool.convert(prepared), small)
    qtool.load(small)(torch.randn(2, 8))  # what the first load and run allocate once is not counted
    settle()
    before = resident_bytes()
    model = qtool.load(path, release_weights=release)
    y = model(x)
    digest = float(y.double().sum()), float(y.double().abs().sum())
    del y
    settle()
    return {"bytes": resident_bytes() - before, "released": model.released_bytes, "output": digest}


def int8_weight_bytes(path: Path) -> int:
    from qtool.capture.program import plain_module  # noqa: PLC0415
    from qtool.lowering.mac_nodes import mac_nodes  # noqa: PLC0415
    from qtool.workflows.load import read  # noqa: PLC0415

    nodes = mac_nodes(plain_module(read(path).exported))
    return sum({node.codes.data_ptr(): node.codes.numel() for node in nodes}.values())


def in_a_process(path: Path, *, release: bool) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.released_weights", str(path), str(int(release))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(measure(Path(sys.argv[1]), release=sys.argv[2] == "1")))
        return
    warnings.simplefilter("ignore")
    print(f"{'model':14} {'int8 weights':>12} {'kept':>9} {'released':>9} {'saving':>9} {'of weights':>10}  outputs")
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            path = make_file(name, Path(folder))
            weights = int8_weight_bytes(path)
            kept, released = (in_a_process(path, release=release) for release in (False, True))
            saving = kept["bytes"] - released["bytes"]
            same = "equal" if kept["output"] == released["output"] else "DIFFERENT"
            columns = (weights, kept["bytes"], released["bytes"], saving)
            sizes = " ".join(f"{value / MIB:{width}.2f}" for value, width in zip(columns, (12, 9, 9, 9), strict=True))
            print(f"{name:14} {sizes} {saving / weights:9.1%}  {same}, {released['released'] / weights:.1%} freed")
    print("sizes in MiB")


if __name__ == "__main__":
    main()
