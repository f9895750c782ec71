"""HTML in which text is escaped by construction: only what `element` returns is markup, and anything else is text."""

from __future__ import annotations

from html import escape
from typing import Final

from qtool.report.untrusted import shortened

_MAX_TEXT: Final = 600
_VOID: Final = frozenset({"meta", "input", "br"})
_ENDS_BY_ITSELF: Final = frozenset({"td", "th", "tr", "dt", "dd", "li"})
"""Elements whose end tag HTML lets out; in a table of thousands of nodes that is a tenth of the page."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: Markup | str | None, **attributes: str | float | bool | None) -> Markup:
    """Return an element.

    Args:
        name: its tag.
        children: what is in it; text that is no `Markup` is escaped, and what does not print is shown as an escape.
        attributes: by name, `_` for `-` and one at the end dropped; None and False are left out, True has no value.

    Example:
        >>> element("td", "a<b", element("b", "c"), class_="name")
        '<td class="name">a&lt;b<b>c</b>'
    """
    opening = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{opening}>")
    ending = "" if name in _ENDS_BY_ITSELF else f"</{name}>"
    return Markup(f"<{name}{opening}>{joined(*children)}{ending}")


def joined(*parts: Markup | str | None) -> Markup:
    """Return the parts one after the other; text that is no `Markup` is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else _text(part) for part in parts if part is not None))


def _text(text: str) -> str:
    return escape(shortened(text, _MAX_TEXT), quote=False)


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    if isinstance(value, float):
        value = f"{value:.6g}"
    return f' {name}="{escape(shortened(str(value), _MAX_TEXT))}"'
