"""Numbers as people read them: sizes, shares, ranges."""

from __future__ import annotations


def size_words(num_bytes: int) -> str:
    """Return a size in decimal units, as shops and `ls --si` count.

    Example:
        >>> size_words(18_870_000), size_words(416)
        ('18.87 MB', '416 bytes')
    """
    if num_bytes < 1000:
        return f"{num_bytes} byte{'' if num_bytes == 1 else 's'}"
    return f"{num_bytes / 1e6:.2f} MB" if num_bytes >= 1_000_000 else f"{num_bytes / 1e3:.1f} kB"


def share_words(part: float, whole: float) -> str:
    """Return a share in per cent; a little is never shown as nothing, nor most as all.

    Example:
        >>> share_words(1, 4), share_words(1, 4000), share_words(3999, 4000)
        ('25 %', '<1 %', '>99 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 1:
        return "<1 %"
    return ">99 %" if 99 < share < 100 else f"{share:.0f} %"


def span_words(low: float | None, high: float | None, *, digits: int = 4) -> str:
    """Return one number, or the smallest and largest; empty if they are not known.

    Example:
        >>> span_words(0.5, 0.5), span_words(0.001, 0.0055), span_words(None, None)
        ('0.5', '0.001..0.0055', '')
    """
    if low is None or high is None:
        return ""
    return f"{low:.{digits}g}" if low == high else f"{low:.{digits}g}..{high:.{digits}g}"


def count_words(count: int, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> count_words(1, "error"), count_words(2, "error")
        ('1 error', '2 errors')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
