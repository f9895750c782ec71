"""Lets Python's collector of cyclic garbage rest while a file is read.

It would go through all values that were read, again and again as they grow, and find nothing to free.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def resting_collector() -> Iterator[None]:
    """Switch the collector off within, if it is on."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
