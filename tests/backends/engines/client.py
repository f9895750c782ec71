"""Asks worker processes, one for each way of capping the instruction sets; they live until the test run ends."""

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qtool.backends.host import HostFacts, host_facts
from tests.backends.engines.cases import KernelCase, WorstCase

ROOT = Path(__file__).parents[3]
CAP_VARIABLES = ("FBGEMM_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")

Caps = tuple[tuple[str, str], ...]
UNCAPPED: Caps = ()
AVX2: Caps = (("FBGEMM_ENABLE_INSTRUCTIONS", "AVX2"), ("ONEDNN_MAX_CPU_ISA", "AVX2"))
AVX512: Caps = (("FBGEMM_ENABLE_INSTRUCTIONS", "AVX512"), ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"))
CAPS = {"uncapped": UNCAPPED, "AVX2": AVX2, "AVX-512 without VNNI": AVX512}


def capped_host(caps: Caps) -> HostFacts:
    """What this machine is to a process under those caps."""
    return host_facts(environment=dict(caps))


def ask(job: str, argument: Any = None, caps: Caps = UNCAPPED) -> Any:
    """Return the answer of the worker that runs under those caps."""
    process = _worker(caps)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([job, argument]) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        message = f"the worker under {dict(caps)} ended with status {process.wait(timeout=30)}"
        raise RuntimeError(message)
    return json.loads(answer)


def largest_errors(cases: Iterable[KernelCase], caps: Caps = UNCAPPED) -> list[int]:
    """Return how far each case's worst output is from the exact sum."""
    return ask("largest_errors", [asdict(case) for case in cases], caps)


def channel_errors(cases: Iterable[WorstCase], caps: Caps = UNCAPPED) -> list[list[int]]:
    """Return how far each case's output channels are from the exact sums on their worst inputs."""
    return ask("channel_errors", [asdict(case) for case in cases], caps)


@functools.cache
def _worker(caps: Caps) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in CAP_VARIABLES}
    environment |= {**dict(caps), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.backends.engines.worker"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    atexit.register(_stop, process)
    return process


def _stop(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)  # closes stdin, which ends the worker's loop
