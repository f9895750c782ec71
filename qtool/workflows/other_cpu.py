"""Runs a command as another CPU would: in a process whose libraries are held to its instruction sets from the start.

oneDNN and FBGEMM read what caps them once, when torch starts, so a process that has torch cannot change what it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from qtool.backends.host import HostFacts, host_facts
from qtool.backends.registry import BACKENDS
from qtool.errors import MissingIsaError
from qtool.types import Isa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qtool.backends.record import Backend

OLD_CPU: Final = "AVX2"
"""What libraries are held to for `no-vnni`: the smallest instruction set that all x86 engines of torch run on."""


def environment_for(isa: Isa, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which torch's engines find such a CPU, as far as this machine has it.

    Example:
        >>> environment_for(Isa.NO_VNNI, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"})
        {'FBGEMM_ENABLE_INSTRUCTIONS': 'AVX2', 'ONEDNN_MAX_CPU_ISA': 'AVX2'}
        >>> environment_for(Isa.VNNI, {"ONEDNN_MAX_CPU_ISA": "AVX2"})
        {}
    """
    caps = [cap for record in BACKENDS if record.engine and record.isa for cap in record.isa.caps]
    known = {name for cap in caps for name in cap.variables}
    free = {name: value for name, value in environment.items() if name not in known}
    return free if isa is Isa.VNNI else {**free, **{cap.variables[0]: OLD_CPU for cap in caps}}


def is_this_process(isa: Isa) -> bool:
    """Whether this process was started in such an environment: then nothing needs to be started."""
    return isa is Isa.ANY or environment_for(isa, os.environ) == dict(os.environ)


def output_of(arguments: Sequence[str], isa: Isa) -> tuple[int, bytes]:
    """Run qtool with other arguments as such a CPU would, and return (exit status, what it wrote to stdout).

    It reads this process's stdin and writes to its stderr.
    """
    command = [sys.executable, "-m", "qtool", *arguments]
    environment = environment_for(isa, os.environ)
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)  # noqa: S603 - ourselves
    return done.returncode, done.stdout


def check_has(isa: Isa, record: Backend, host: HostFacts | None = None) -> None:
    """Check that a backend's kernels find such a CPU here; nothing to check where results depend on no CPU.

    Raises:
        MissingIsaError: they do not.
    """
    facts = host or host_facts()
    found = facts.isa_of(record.name)
    if record.isa is None or isa is Isa.ANY or found is isa:
        return
    caps = ", ".join(f"{name}={value}" for name, value in facts.caps)
    because = f" under {caps}" if caps else ""
    needs = f"; it needs one of the CPU flags {', '.join(record.isa.vnni_flags)}" if isa is Isa.VNNI else ""
    msg = (
        f"--isa {isa}: {record.name} finds a CPU of kind {found} on this machine{because}{needs}. Run this on a "
        "machine that has it, or leave --isa out (see `qtool backends`)"
    )
    raise MissingIsaError(msg)
