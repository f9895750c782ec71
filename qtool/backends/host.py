"""What this machine is, learned without torch: its CPU, what caps the CPU's instruction sets, its torch package.

Engines can be asked of torch alone, and importing it takes seconds; here they are what torch's own packages for this
architecture contain. What cannot be known is None, or `Isa.ANY`, which promises nothing.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from qtool.backends.registry import BACKENDS
from qtool.backends.registry import backend as find_backend
from qtool.types import Isa

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.backends.record import IsaCap

X86_64 = "x86_64"
VNNI_FLAGS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})
"""CPU flags that mean: u8 x s8 products are summed in int32.

Source: arch/x86/include/asm/cpufeatures.h of Linux, which names the flags of /proc/cpuinfo.
"""

SHOWN_FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8", "asimd", "asimddp", "i8mm")
"""CPU flags that say something about int8 kernels, x86 and ARM, in the order they are shown."""

_ARCHITECTURES = {"amd64": X86_64, "x86_64": X86_64, "arm64": "aarch64", "aarch64": "aarch64"}
# Source: supportedQEngines in aten/src/ATen/Context.cpp of torch; fbgemm and x86 need AVX2.
_ENGINES = {X86_64: ("fbgemm", "x86", "onednn", "qnnpack"), "aarch64": ("qnnpack",)}
_NEED_AVX2 = ("fbgemm", "x86")


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """This machine, as far as it is known.

    Attributes:
        architecture: `x86_64`, `aarch64`, or the name the system gives.
        cpu_flags: flags of the CPU, those that all its cores have; None if they cannot be read.
        caps: the environment variables that are set and cap what an engine uses, with their values.
        torch_version: version of the installed torch package; None without one.
        engines: torch engines that are expected here: what torch's packages for this architecture have. None where
            nothing is known of them; empty without torch.
    """

    architecture: str
    cpu_flags: frozenset[str] | None
    caps: tuple[tuple[str, str], ...]
    torch_version: str | None
    engines: tuple[str, ...] | None

    @property
    def has_vnni(self) -> bool | None:
        """Whether the CPU has VNNI, caps aside; None if unknown, or not an x86 CPU."""
        if self.architecture != X86_64 or self.cpu_flags is None:
            return None
        return bool(self.cpu_flags & VNNI_FLAGS)

    @property
    def isa_flags(self) -> tuple[str, ...] | None:
        """The CPU's flags that matter to int8 kernels; None if unknown."""
        return None if self.cpu_flags is None else tuple(flag for flag in SHOWN_FLAGS if flag in self.cpu_flags)

    def isa_of(self, name: str) -> Isa:
        """Return the CPU class that a backend's kernels find here: its flags, less what the caps take away.

        Raises:
            UsageError: no such backend.

        Example:
            >>> host = host_facts(environment={"ONEDNN_MAX_CPU_ISA": "AVX2"})  # on a CPU with VNNI
            >>> host.isa_of("onednn").value, host.isa_of("fbgemm").value
            ('no-vnni', 'vnni')
        """
        isa = find_backend(name).isa
        if self.has_vnni is None or self.cpu_flags is None:
            return Isa.ANY
        usable = self.cpu_flags & (VNNI_FLAGS if isa is None else frozenset(isa.vnni_flags))
        for cap in () if isa is None else isa.caps:
            usable &= _left_by(cap, dict(self.caps), usable)
        return Isa.VNNI if usable else Isa.NO_VNNI


def host_facts(
    *,
    cpuinfo: Path = Path("/proc/cpuinfo"),
    environment: Mapping[str, str] | None = None,
    architecture: str | None = None,
) -> HostFacts:
    """Return what is known of this machine.

    Args:
        cpuinfo: the file that describes the CPU; one that cannot be read means unknown flags.
        environment: the environment variables; None takes this process's.
        architecture: the machine's architecture; None asks the system.
    """
    machine = (platform.machine() if architecture is None else architecture).lower()
    known = _ARCHITECTURES.get(machine, machine)
    flags = _cpu_flags(cpuinfo)
    version = _torch_version()
    return HostFacts(
        architecture=known,
        cpu_flags=flags,
        caps=_caps(os.environ if environment is None else environment),
        torch_version=version,
        engines=() if version is None else _expected_engines(known, flags),
    )


def _cpu_flags(cpuinfo: Path) -> frozenset[str] | None:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    # "flags" on x86, "Features" on ARM, one line a core.
    cores = [set(line.split(":", 1)[1].split()) for line in lines if line.startswith(("flags\t", "Features\t"))]
    return frozenset(set.intersection(*cores)) if cores else None


def _caps(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    known = {variable for record in BACKENDS if record.isa for cap in record.isa.caps for variable in cap.variables}
    return tuple((variable, environment[variable]) for variable in sorted(known) if environment.get(variable))


def _left_by(cap: IsaCap, settings: Mapping[str, str], flags: frozenset[str]) -> frozenset[str]:
    """Return which of the flags a cap leaves usable."""
    value = next((settings[variable] for variable in cap.variables if variable in settings), "")
    usable = {name.upper(): frozenset(left) for name, left in cap.usable}
    return usable.get(value.upper(), flags)


def _torch_version() -> str | None:
    """Return the version of the installed torch package.

    It stands in the name of a folder beside the package; `importlib.metadata` says the same, and takes 30 ms to import.
    """
    found = find_spec("torch")
    folders = [] if found is None else [Path(each).parent for each in found.submodule_search_locations or ()]
    names = [info.name for folder in folders for info in folder.glob("torch-*.dist-info")]
    return names[0].removeprefix("torch-").removesuffix(".dist-info") if names else None


def _expected_engines(architecture: str, flags: frozenset[str] | None) -> tuple[str, ...] | None:
    engines = _ENGINES.get(architecture)
    if engines is None or flags is None or architecture != X86_64 or "avx2" in flags:
        return engines
    return tuple(engine for engine in engines if engine not in _NEED_AVX2)
