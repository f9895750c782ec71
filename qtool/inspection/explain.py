"""The section on one code of the page on findings: cause, example and remedy, as text for a terminal.

The page lies beside this file, so that an installed qtool has it; docs/findings.md is a copy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from qtool.errors import UsageError, nearest
from qtool.inspection.codes import CODES

PAGE: Final = Path(__file__).with_name("findings.md")

_SECTION: Final = re.compile(
    r"^### (?P<code>QT\d{3}): (?P<title>.*?)\n(?P<text>.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL
)
_EMPHASIS: Final = re.compile(r"\*{1,2}([^*\n]+)\*{1,2}")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def explained(name: str) -> str:
    """Return what a code means, why it is found, and what to do about it.

    Args:
        name: for example `QT303`, in any case.

    Raises:
        UsageError: there is no such code.

    Example:
        >>> explained("QT304").splitlines()[0]
        'QT304: Full range, proved safe'
    """
    names = [code.name for code in CODES]
    wanted = name.upper()
    if wanted not in names:
        msg = f"finding {name!r} is not known{nearest(wanted, names) or '.'} Codes run from {names[0]} to {names[-1]}"
        raise UsageError(msg)
    found = {match["code"]: match for match in _SECTION.finditer(PAGE.read_text(encoding="utf-8"))}[wanted]
    return f"{wanted}: {found['title']}\n\n{_plain(found['text'])}\n"


def _plain(markdown: str) -> str:
    """Return the text without what makes it Markdown; code keeps its quotes."""
    return _EMPHASIS.sub(r"\1", _LINK.sub(r"\1", markdown)).strip()
