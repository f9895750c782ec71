"""`qtool inspect` of every format, with every option, as a process of its own: torch is never imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.attacks.run_inspect import MAX_BYTES
from tests.attacks.samples import SAMPLES, sample
from tests.cli.process import ROOT, environment

OPTIONS = (
    (),
    ("--verbose",),
    ("--json",),
    ("--backend", "qnnpack", "--isa", "no-vnni"),
    ("--markdown",),
    ("--html", "-"),
)
HEAVY = {"torch", "torchvision", "pydantic", "yaml", "onnx", "safetensors", "executorch", "sympy"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What each sample came to, with all options one after the other."""
    folder = tmp_path_factory.mktemp("samples")
    jobs = []
    for number, name in enumerate(SAMPLES):
        (folder / str(number)).mkdir()
        path = folder / str(number) / "model"
        path.write_bytes(sample(name))
        lines = [["inspect", str(path), *option] for option in (*OPTIONS, (str(path),), (str(path), "--json"))]
        jobs.append({"lines": lines, "folder": str(path.parent)})
    (folder / "jobs").write_text(json.dumps(jobs))
    command = [sys.executable, "-W", "error", "-m", "tests.attacks.run_inspect", folder / "jobs", folder / "results"]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, timeout=120)
    return dict(zip(SAMPLES, json.loads((folder / "results").read_text()), strict=True))


@pytest.mark.parametrize("name", SAMPLES)
def test_no_option_imports_torch_or_what_reads_the_format_elsewhere(name, outcomes):
    outcome = outcomes[name]
    assert outcome.get("death") is None
    assert outcome["forbidden"] == []
    assert not HEAVY & {module.partition(".")[0] for module in outcome["loaded"]}
    assert {line["status"] for line in outcome["lines"]} <= {0, 1}
    assert outcome["peak_bytes"] < MAX_BYTES
