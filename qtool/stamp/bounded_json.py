"""Parses JSON of strangers: it can take fifty times its size in memory, so what would take too much is refused."""

from __future__ import annotations

import json
from typing import Any

MAX_BYTES = 200 * 2**20
"""Of memory. The graph of a model of 10 000 ops has 20 MB and 1.2 million commas and brackets."""

_PER_VALUE = 100
"""Bytes for each comma and opening bracket: `[{"":0},...]` takes 200 for two, lists and numbers take less."""
_WIDE = 4
"""Bytes of a character, once one of the text lies beyond the first 65 536."""


def loads(text: str | bytes, **hooks: Any) -> Any:  # noqa: ANN401 - any JSON value, and any hook of `json.loads`
    """Return the value that a JSON text states.

    Args:
        text: JSON, UTF-8 if bytes.
        hooks: as `json.loads` takes them.

    Raises:
        ValueError: not UTF-8, not JSON, or a value that could take more than `MAX_BYTES`.
        RecursionError: nested too deeply.

    Example:
        >>> loads('[{"a": 1}]')
        [{'a': 1}]
    """
    if isinstance(text, bytes):
        num_values = sum(text.count(sign) for sign in (b",", b"[", b"{"))
    else:
        num_values = sum(text.count(sign) for sign in ",[{")
    num_bytes = len(text) * (1 if text.isascii() else _WIDE) + _PER_VALUE * num_values
    if num_bytes > MAX_BYTES:
        msg = f"its {num_values} values could take {num_bytes >> 20} MiB; at most {MAX_BYTES >> 20} are given to them"
        raise ValueError(msg)
    # As text: given bytes, `json.loads` guesses between UTF-8, UTF-16 and UTF-32.
    return json.loads(text.decode() if isinstance(text, bytes) else text, **hooks)
