"""Makes text from strangers harmless: names of layers and files may hold anything."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return the text with every character that is not printed as itself written as an escape.

    That covers control characters, which could move the cursor or colour what follows, and characters that turn
    the direction of writing.

    Example:
        >>> printable("conv\x1b[2J\n\u202e1")
        'conv\\x1b[2J\\n\\u202e1'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def shortened(text: str, limit: int = 300) -> str:
    """Return at most `limit` characters of printable text, the end cut if need be."""
    whole = printable(text)
    return whole if len(whole) <= limit else f"{whole[: limit - 3]}..."
