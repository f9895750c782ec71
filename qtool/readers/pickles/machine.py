"""Reads a pickle by opcode, as data: what it names is not imported, and what it calls is not called.

Plain values become Python's own: numbers, text, None, tuples, lists, dicts; sets become lists, frozen ones tuples. All
else is a record of `qtool.readers.pickles.values`.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.pickles.collector import resting_collector
from qtool.readers.pickles.names import is_harmless
from qtool.readers.pickles.opcodes import STEPS, STOP
from qtool.readers.pickles.stack import PickleError, Stack
from qtool.readers.risks import Risk, RiskKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qtool.readers.pickles.values import Name, Reference

MAX_OPCODES: Final = 1_000_000
"""Of one pickle. A tensor of a state dict takes some 60."""

MAX_PICKLE_BYTES: Final = 32 * 2**20
"""Of one pickle in an archive. A million opcodes of torch take some 10 MB."""

_ERRORS: Final = (PickleError, ValueError, IndexError, OverflowError, struct.error)
_MAX_NAMES: Final = 200
_MAX_DETAIL: Final = 120


@dataclass(frozen=True)
class Pickled:
    """What a pickle holds.

    Attributes:
        value: the value, as data.
        risks: names in it that loading would import, and most likely call.
        references: what it names outside itself, in order.
        end: position of the first byte behind it.
    """

    value: object
    risks: tuple[Risk, ...]
    references: tuple[Reference, ...]
    end: int


def read_pickle(data: bytes, *, where: str, entry: str, start: int = 0) -> Pickled:
    r"""Return what a pickle holds; nothing in it is run.

    Args:
        data: bytes with the pickle in them.
        where: what to call the file in messages.
        entry: the archive entry the pickle is from; empty if it is the file itself.
        start: position of its first byte.

    Raises:
        FileFormatError: no pickle, damaged, or above a bound.

    Example:
        >>> read_pickle(b"cos\nsystem\n(S'ls'\ntR.", where="a.pt", entry="").value.name
        'os.system'
    """
    stack = Stack(data, start)
    try:
        value = _run(stack)
        if stack.frame_end > len(data):
            msg = f"a frame that reaches to byte {stack.frame_end}, of {len(data)}"
            raise PickleError(msg)
    except _ERRORS as error:
        inside = f"entry {entry!r} in it" if entry else "it"
        what = "it ends too soon" if isinstance(error, IndexError) else str(error)
        msg = f"{where}: {inside} is no pickle that can be read: {what} (near byte {stack.position})"
        raise FileFormatError(msg) from error
    return Pickled(value, _risks(stack.names.values(), entry), tuple(stack.references), stack.position)


def names_in(data: bytes, *, num_pickles: int = 1) -> tuple[Name, ...]:
    r"""Return what the pickles in a row at the start of some bytes name, as far as they can be read.

    Example:
        >>> [str(name) for name in names_in(b"cos\nsystem\n(S'cut of")]
        ['os.system']
    """
    stacks: list[Stack] = []
    with suppress(*_ERRORS):
        for _ in range(num_pickles):
            stacks.append(Stack(data, stacks[-1].position if stacks else 0))
            _run(stacks[-1])
    return tuple(name for stack in stacks for name in stack.names.values())


def outermost(data: bytes) -> object:
    r"""Return the value that a pickle builds, as far as its first bytes tell: what lies lowest on the stack.

    Args:
        data: the pickle, or its first bytes.

    Example:
        >>> outermost(b"}X\x05\x00\x00\x00epo")
        {}
    """
    stack = Stack(data, 0)
    with suppress(*_ERRORS):
        return _run(stack)
    lowest = [*stack.below, stack.items][0]
    return lowest[0] if lowest else None


@resting_collector()
def _run(stack: Stack) -> object:
    """Return the value on top of the stack at STOP."""
    data = stack.data
    for _ in range(MAX_OPCODES):
        opcode = data[stack.position]
        stack.position += 1
        step = STEPS[opcode]
        if step is not None:
            step(stack)
        elif opcode == STOP:
            return stack.popped()
        else:
            msg = f"{opcode:#04x} is no opcode"
            raise PickleError(msg)
    msg = f"more than {MAX_OPCODES} opcodes"
    raise PickleError(msg)


def _risks(names: Iterable[Name], entry: str) -> tuple[Risk, ...]:
    foreign = [str(name) for name in names if not is_harmless(name)]
    found = [Risk(RiskKind.PICKLE_CALL, entry, _one_line(name)) for name in foreign[:_MAX_NAMES]]
    if len(foreign) > _MAX_NAMES:
        found.append(Risk(RiskKind.PICKLE_CALL, entry, f"and {len(foreign) - _MAX_NAMES} names more"))
    return tuple(found)


def _one_line(text: str) -> str:
    return text if len(text) <= _MAX_DETAIL else text[: _MAX_DETAIL - 3] + "..."
