"""Tells what torch.save pickled, from the names in the pickle; nothing is unpickled.

A state dict names tensors, storages and ordered dicts. Any other name is that of a class or function which loading
would import and call: the file holds a whole module, or something else that is more than weights.
Source: torch/serialization.py for the two forms of file; the opcodes are those of the standard library's pickletools.
"""

from __future__ import annotations

from typing import Final

from qtool.readers.advice import STATE_DICT, WHOLE_MODULE
from qtool.readers.pickles.machine import names_in
from qtool.readers.pickles.names import is_harmless

LOOKED_AT_BYTES: Final = 1 << 20
"""Of a pickle, from its start: the class of a module is its first name."""

_OLDER_MAGIC: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""What torch.save writes first in its older form, a pickle of the number 0x1950a86a20f9469cfc6c."""

_PICKLES: Final = 4
"""In that form, one after the other: this number, a version, sizes of types, and what was saved."""


def pickled_class(data: bytes) -> str | None:
    r"""Return the first name in a pickle that no state dict has, and None of a state dict.

    Args:
        data: the pickle, or its first bytes.

    Example:
        >>> pickled_class(b"ctorch._utils\n_rebuild_tensor_v2\n."), pickled_class(b"cos\nsystem\n.")
        (None, 'os.system')
    """
    names = names_in(data, num_pickles=_PICKLES)
    return next((str(name) for name in names if not is_harmless(name)), None)


def pickle_note(start: bytes) -> str | None:
    """Return what to say of a file that begins like a pickle, and None of any other.

    Args:
        start: its first `LOOKED_AT_BYTES`.

    Example:
        >>> pickle_note(b"PK") is None
        True
    """
    if start.startswith(_OLDER_MAGIC):
        return f"a file of torch.save in its older form, a pickle and no zip; {_advice(start)}"
    if len(start) > 2 and start[:1] == b"\x80" and start[1] <= 5:
        return f"a Python pickle; {_advice(start)}"
    return None


def _advice(start: bytes) -> str:
    found = pickled_class(start)
    return STATE_DICT if found is None else f"it holds more than weights, {found!r} first: {WHOLE_MODULE}"
