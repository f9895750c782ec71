"""Digests: one for the scales of a tensor, one for what a file holds.

They find damage and mix-ups. They are no signature: who can write the file can write the digest too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from qtool.stamp.schema import STAMP_ENTRY

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray


def parameter_digest(scale: NDArray[np.float32], zero_point: NDArray[np.int32]) -> str:
    """Return the sha256 of a tensor's scales and zero points.

    Args:
        scale: any shape, read as float32, little-endian, in C order.
        zero_point: as many, read as int32, little-endian, in C order.

    Example:
        >>> parameter_digest(np.float32([0.5]), np.int32([3]))[:8]
        '8f92e988'
    """
    return hashlib.sha256(scale.astype("<f4").tobytes() + zero_point.astype("<i4").tobytes()).hexdigest()


def content_digest(entries: Mapping[str, bytes]) -> str:
    """Return the digest of an archive's content: every entry but the stamp, which holds this digest.

    Args:
        entries: the bytes of each entry; names without the root folder, for example `models/model.json`.

    Example:
        >>> content_digest({"a": b"1"}) == content_digest({"a": b"1", STAMP_ENTRY: b"{}"})
        True
    """
    return combine_digests({name: hashlib.sha256(data).hexdigest() for name, data in entries.items()})


def combine_digests(entry_digests: Mapping[str, str]) -> str:
    """Return `content_digest` from the sha256 (hex) of each entry, so that no entry must be held whole.

    Packing the same entries again, in another order or compressed, gives the same digest.
    """
    total = hashlib.sha256()
    for name in sorted(entry_digests.keys() - {STAMP_ENTRY}):
        # The length in front keeps two lists of names and digests from reading alike.
        encoded = name.encode("utf-8", "surrogatepass")
        total.update(b"%d:%b=%b\n" % (len(encoded), encoded, entry_digests[name].encode("ascii")))
    return total.hexdigest()
