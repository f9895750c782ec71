"""`qtool backends [NAME]`: this machine, and what qtool knows of every backend. Torch-free."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from qtool.backends.defaults import default_rows
from qtool.backends.host import host_facts
from qtool.backends.ranges import would_saturate
from qtool.backends.record import Support
from qtool.backends.registry import BACKENDS
from qtool.backends.target import backends_of, target
from qtool.cli.options import json_option, traceback_option
from qtool.cli.streams import claimed_stdout
from qtool.cli.summary import json_text
from qtool.cli.table import text_table
from qtool.types import CONVOLUTIONS, MAC_OPS, Isa, Op

if TYPE_CHECKING:
    from qtool.backends.defaults import DefaultRow
    from qtool.backends.host import HostFacts
    from qtool.backends.record import Backend

EXAMPLES = """\b
Examples:
  qtool backends
  qtool backends fbgemm
  qtool backends --json | jq '.backends[] | [.name, .is_here]'
"""


@click.command("backends", epilog=EXAMPLES)
@click.argument("name", metavar="[NAME]", required=False)
@json_option
@traceback_option
def command(name: str | None, as_json: bool) -> int:
    """Show this machine's CPU and engines, and every backend; with NAME, one backend op by op.

    NAME may be several joined by commas, or `portable`: then what holds on all of them is shown.

    Engines are those that torch's packages have for this CPU; torch itself is not asked.
    """
    chosen = BACKENDS if name is None else (target(backends_of(name)),)
    host = host_facts()
    with claimed_stdout() as stdout:
        if as_json:
            stdout.write_text(json_text({"host": _host_facts(host), "backends": [_facts(b, host) for b in chosen]}))
        elif name is None:
            stdout.write_text(f"{_host_lines(host)}\n\n{_overview(host)}")
        else:
            stdout.write_text(_details(chosen[0], host))
    return 0


def _host_facts(host: HostFacts) -> dict[str, Any]:
    flags = None if host.cpu_flags is None else sorted(host.cpu_flags)
    return {**dataclasses.asdict(host), "cpu_flags": flags, "caps": dict(host.caps), "has_vnni": host.has_vnni}


def _facts(backend: Backend, host: HostFacts) -> dict[str, Any]:
    isa = _isa_here(backend, host)
    here = {
        "is_here": _is_here(backend, host),
        "isa_here": isa.value,
        "saturates_here": _saturating(backend, isa),
    }
    return {**dataclasses.asdict(backend), **here}


def _isa_here(backend: Backend, host: HostFacts) -> Isa:
    """Return the CPU class that the kernels find here; of several backends the least that they find."""
    found = {host.isa_of(name) for name in backends_of(backend.name)}
    return found.pop() if len(found) == 1 else Isa.ANY


def _host_lines(host: HostFacts) -> str:
    flags = "unknown" if host.isa_flags is None else " ".join(host.isa_flags) or "none that matters"
    torch = f"torch {host.torch_version}" if host.torch_version else "no torch"
    lines = [f"this machine: {host.architecture}, {torch}; CPU flags: {flags}"]
    lines += [f"capped by {variable}={value}" for variable, value in host.caps]
    return "\n".join(lines)


def _overview(host: HostFacts) -> str:
    header = ("backend", "runs in", "here", "CPU class", "saturates here", "what it is")
    rows = []
    for backend in BACKENDS:
        isa = _isa_here(backend, host)
        saturates = _saturating_word(backend, isa)
        here = _here_word(backend, host)
        rows.append((backend.name, backend.runtime, here, _isa_word(isa), saturates, backend.title))
    return text_table(header, rows)


def _details(backend: Backend, host: HostFacts) -> str:
    engine = f"engine {backend.engine}, " if backend.engine else ""
    lines = [
        f"{backend.name}: {backend.title}",
        f"runs in {backend.runtime}: {engine}here: {_here_word(backend, host)}",
        f"source: {backend.source}",
        "",
        _ranges(backend),
        "",
    ]
    for rule in backend.rules:
        words = [rule.support.value.replace("_", " "), *([rule.unless] if rule.unless else [])]
        lines.append(f"{rule.op.value}: {' '.join(words)}{f'. {rule.note}' if rule.note else ''}")
        lines += [f"  fuses: {', '.join(rule.fused_activations)}"] if rule.fused_activations else []
        lines += [f"  source: {rule.source}"]
        lines += [f"  measured: {rule.measured}"] if rule.measured else []
    return "\n".join(lines)


def _ranges(backend: Backend) -> str:
    """Return the default ranges, for a CPU that promises nothing and for one with VNNI."""
    header = ("kernel", "tensor", "isa any, no-vnni", "isa vnni", "scales")
    portable, vnni = default_rows(backend, Isa.ANY), default_rows(backend, Isa.VNNI)
    rows = [
        (one.op, one.role, _range_word(one), _range_word(other), one.spec.granularity.value if one.spec else "-")
        for one, other in zip(portable, vnni, strict=True)
    ]
    return text_table(header, rows)


def _range_word(row: DefaultRow) -> str:
    return "float" if row.spec is None else f"{row.spec.dtype.value} {row.spec.qmin}..{row.spec.qmax}"


def _saturating_word(backend: Backend, isa: Isa) -> str:
    found = _saturating(backend, isa)
    if len(found) == len(_multiplying(backend)):
        return "all that multiply"
    return ", ".join(found) or "nowhere"


def _multiplying(backend: Backend) -> list[tuple[str, Op, bool]]:
    """List the kernels with a weight: name, op, and whether it is the depthwise one."""
    return [
        (f"depthwise {op.value}" if depthwise else op.value, op, depthwise)
        for op in Op
        if op in MAC_OPS and backend.rule(op).support is not Support.UNSUPPORTED
        for depthwise in ((False, True) if op in CONVOLUTIONS else (False,))
    ]


def _saturating(backend: Backend, isa: Isa) -> list[str]:
    """Name the kernels whose int16 sums clip full-range codes on that CPU."""
    return [
        name
        for name, op, depthwise in _multiplying(backend)
        if would_saturate(backend, isa, op, depthwise=depthwise, channel_multiplier=1 if depthwise else None)
    ]


def _is_here(backend: Backend, host: HostFacts) -> bool | None:
    """Tell whether the backend's engine is expected here; None for other runtimes, and where nothing is known."""
    if backend.engine is None or host.engines is None:
        return None
    return backend.engine in host.engines


def _here_word(backend: Backend, host: HostFacts) -> str:
    if backend.engine is None:
        return "-"
    return {True: "yes", False: "no", None: "unknown"}[_is_here(backend, host)]


def _isa_word(isa: Isa) -> str:
    return "unknown" if isa is Isa.ANY else isa.value
