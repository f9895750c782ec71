"""What a file is asked to run on: the options settled, and from them one question for each backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qtool.backends import registry
from qtool.backends.engines import backend_of_engine
from qtool.backends.target import backends_of
from qtool.errors import UsageError, nearest
from qtool.inspection.codes import Severity
from qtool.inspection.findings import Target
from qtool.inspection.target_rules import Question
from qtool.types import Isa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.backends.host import HostFacts
    from qtool.inspection.nodes import NodeReport
    from qtool.stamp.schema import Stamp

FAIL_ON = (Severity.ERROR, Severity.WARNING)
"""What can be asked to end with status 1."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What somebody asks of a file.

    Attributes:
        backends: names of the backends to judge it for; None takes the stamp's own.
        words: the same as it was asked for.
        isa: the CPU to judge it for; None takes the stamp's own.
        host: this machine; None if nothing is to be said of it.
        on_host: the CPU is this machine's, and so are the engines.
        needs_engine: the backend is an engine that must be on this machine.
        fail_on: the mildest severity that makes the outcome `findings`.
    """

    backends: tuple[str, ...] | None = None
    words: str | None = None
    isa: Isa | None = None
    host: HostFacts | None = None
    on_host: bool = False
    needs_engine: bool = False
    fail_on: Severity = Severity.ERROR

    def target(self, stamp: Stamp | None) -> Target:
        """Return what a file with that stamp, or without one, is judged for."""
        own_backend = ", ".join(stamp.backends) if stamp else None
        names = self.backends or (stamp.backends if stamp else ())
        found = {self._isa_of(name, stamp) for name in names if name in registry.backend_names()}
        own_isa = stamp.isa if stamp else None
        return Target(
            backend=self.words or own_backend,
            isa=found.pop() if self.on_host and len(found) == 1 else self.isa or own_isa,
            is_asked=self.backends is not None or self.isa is not None or self.on_host,
        )

    def questions(self, stamp: Stamp | None, nodes: Sequence[NodeReport]) -> dict[str, Question]:
        """Return a question for each backend that was asked for, else for each that a node was made for."""
        own = stamp.backends if stamp else ()
        names = self.backends or tuple(dict.fromkeys(name for node in nodes for name in node.backends))
        return {name: self._question(name, stamp, own) for name in registry.backend_names() if name in names}

    def _question(self, name: str, stamp: Stamp | None, own: Sequence[str]) -> Question:
        record, isa = registry.backend(name), self._isa_of(name, stamp)
        return Question(
            backend=record,
            isa=isa,
            is_own=name in own and stamp is not None and isa is stamp.isa,
            host_isa=None if self.host is None else self.host.isa_of(name),
            lacks_engine=(self.on_host or self.needs_engine) and _lacks(self.host, record.engine),
        )

    def _isa_of(self, name: str, stamp: Stamp | None) -> Isa:
        if self.on_host and self.host is not None:
            return self.host.isa_of(name)
        return self.isa or (stamp.isa if stamp else Isa.ANY)


def settled(
    *,
    backend: str | None = None,
    isa: Isa | str | None = None,
    engine: str | None = None,
    on_host: bool = False,
    host: HostFacts | None = None,
    fail_on: Severity | str = Severity.ERROR,
) -> Asked:
    """Return what is asked, every word of it checked.

    Raises:
        UsageError: a word is not known, or two of them ask for different things.
    """
    if backend is not None and engine is not None:
        msg = f"backend {backend!r} and engine {engine!r}: ask for one of them"
        raise UsageError(msg)
    if on_host and isa is not None:
        msg = f"isa {str(isa)!r} and this machine: its CPU is what it is, so ask for one of them"
        raise UsageError(msg)
    if (on_host or engine is not None) and host is None:
        msg = "nothing is known of this machine; give its facts as host, see qtool.backends.host.host_facts"
        raise UsageError(msg)
    if fail_on not in FAIL_ON:
        msg = f"fail_on {str(fail_on)!r} is not known. Use one of: {', '.join(FAIL_ON)}."
        raise UsageError(msg)
    words = backend if engine is None else backend_of_engine(engine).name
    backends = None if words is None else backends_of(words)
    for name in backends or ():
        registry.backend(name)  # a wrong name is an error
    return Asked(
        backends=backends,
        words=words,
        isa=None if isa is None else _known_isa(isa),
        host=host,
        on_host=on_host,
        needs_engine=engine is not None,
        fail_on=Severity(fail_on),
    )


def _known_isa(isa: Isa | str) -> Isa:
    names = [known.value for known in Isa]
    if isa not in names:
        msg = f"isa {str(isa)!r} is not known{nearest(str(isa), names) or '.'} Use one of: {', '.join(names)}."
        raise UsageError(msg)
    return Isa(isa)


def _lacks(host: HostFacts | None, engine: str | None) -> bool:
    """Return whether a torch engine is not on a machine, or nobody knows; other runtimes are not looked for."""
    return engine is not None and (host is None or host.engines is None or engine not in host.engines)
