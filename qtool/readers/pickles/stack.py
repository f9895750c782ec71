"""The state of a pickle machine: its place in the bytes, its stack and marks, its memo, and the names it has met."""

from __future__ import annotations

from typing import Final

from qtool.readers.pickles.values import Call, Instance, Name, Reference

MAX_TEXT_BYTES: Final = 1 << 20
"""Of one text, which takes up to four times that in memory."""

MAX_INTEGER_BYTES: Final = 1024
"""Of one integer; Python turns no integer with more than 4300 digits into text."""

MAX_UNUSUAL_KEYS: Final = 1024
"""Keys of dicts that are no text and no integer below 2^60. Others of one hash could be many, and adding n of them to
a dict takes n^2 steps."""

MAX_NAMES: Final = 10_000
"""Different names in one pickle."""

_MAX_REPEATED_BYTES: Final = 200
_MAX_KEY_ITEMS: Final = 16
_USUAL_INTEGERS: Final = 1 << 60
_RENAMED: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class PickleError(Exception):
    """What is wrong with a pickle, in words that stand after its place."""


class Stack:
    """What the machine works on.

    Attributes:
        data: the bytes.
        position: of the next byte.
        frame_end: where the last frame says that it ends.
        items: values above the last mark.
        below: values below each mark, the first mark first.
        memo: values by number.
        references: what stands outside the pickle, in order.
        names: every name that was met, each once, by how the pickle writes it.
    """

    __slots__ = (
        "_named_lines",
        "_num_unusual_keys",
        "below",
        "data",
        "frame_end",
        "items",
        "memo",
        "names",
        "position",
        "references",
    )

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position
        self.frame_end = position
        self.items: list[object] = []
        self.below: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.references: list[Reference] = []
        self.names: dict[tuple[str, str], Name] = {}
        self._named_lines: dict[bytes, Name] = {}
        self._num_unusual_keys = 0

    def skipped(self, num_bytes: int) -> int:
        """Go past bytes, and return where they began."""
        start = self.position
        end = start + num_bytes
        if end > len(self.data):
            msg = f"it ends within {num_bytes} bytes"
            raise PickleError(msg)
        self.position = end
        return start

    def taken(self, num_bytes: int) -> bytes:
        """Return the next bytes."""
        start = self.skipped(num_bytes)
        return self.data[start : self.position]

    def text(self, num_bytes: int) -> str:
        """Return the next bytes as text; halves of surrogate pairs, which Python writes too, stand in it as escapes."""
        data = self.raw_text(num_bytes)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data.decode("utf-8", "surrogatepass").encode("utf-8", "backslashreplace").decode()

    def raw_text(self, num_bytes: int) -> bytes:
        """Return the next bytes, which are a text."""
        if num_bytes > MAX_TEXT_BYTES:
            msg = f"a text of {num_bytes} bytes; at most {MAX_TEXT_BYTES} are read"
            raise PickleError(msg)
        return self.taken(num_bytes)

    def line(self) -> str:
        """Return the text up to the end of the line."""
        return self.raw_line().decode()

    def raw_line(self) -> bytes:
        """Return the bytes up to the end of the line."""
        end = self.data.find(b"\n", self.position, self.position + MAX_TEXT_BYTES)
        if end < 0:
            msg = f"a line without an end, or of more than {MAX_TEXT_BYTES} bytes"
            raise PickleError(msg)
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def name(self, module: object, name: object) -> Name:
        """Return what a pickle names; each name is one object."""
        if not isinstance(module, str) or not isinstance(name, str):
            msg = "the name of a class or function is no text"
            raise PickleError(msg)
        found = self.names.get((module, name))
        if found is None:
            if len(self.names) == MAX_NAMES:
                msg = f"more than {MAX_NAMES} classes and functions"
                raise PickleError(msg)
            found = self.names[module, name] = Name(_RENAMED.get(module, module), name)
        return found

    def named_line(self) -> Name:
        """Return what the next two lines name, module and name; pickles repeat them for every use."""
        end = self.data.find(b"\n", self.data.find(b"\n", self.position) + 1)
        lines = self.data[self.position : end + 1] if end - self.position < _MAX_REPEATED_BYTES else b""
        found = self._named_lines.get(lines)
        if found is not None:
            self.position = end + 1
            return found
        found = self.name(self.line(), self.line())
        if lines:
            self._named_lines[lines] = found
        return found

    def reference(self, identity: object) -> object:
        """Return what stands outside the pickle; in torch's older form a class has its source there, and is a name."""
        if isinstance(identity, tuple) and len(identity) > 1 and identity[0] == "module":
            return identity[1]
        found = Reference(identity)
        self.references.append(found)
        return found

    def mark(self) -> None:
        """Set a mark."""
        self.below.append(self.items)
        self.items = []

    def popped_to_mark(self) -> list[object]:
        """Return the values above the last mark, and remove both."""
        if not self.below:
            msg = "a mark is missing"
            raise PickleError(msg)
        items, self.items = self.items, self.below.pop()
        return items

    def last(self) -> object:
        """Return the value on top."""
        if not self.items:
            msg = "the stack is empty"
            raise PickleError(msg)
        return self.items[-1]

    def popped(self) -> object:
        """Return the value on top, and remove it."""
        if not self.items:
            msg = "the stack is empty"
            raise PickleError(msg)
        return self.items.pop()

    def extend(self, target: object, items: list[object]) -> None:
        """Append items to a list, or to an object that may be one."""
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Call | Instance):
            if target.items is None:
                target.items = []
            target.items += items
        else:
            msg = f"items for a {type(target).__name__}"
            raise PickleError(msg)

    def update(self, target: object, pairs: list[object]) -> None:
        """Set keys and values, one after the other in `pairs`, in a dict or in an object that may be one."""
        if len(pairs) % 2:
            msg = "a key without a value"
            raise PickleError(msg)
        keys = pairs[::2]
        for key in keys:
            if type(key) is not str and (type(key) is not int or not -_USUAL_INTEGERS < key < _USUAL_INTEGERS):
                self._check_unusual_key(key)
        if isinstance(target, dict):
            target.update(zip(keys, pairs[1::2], strict=True))
        elif isinstance(target, Call | Instance):
            if target.entries is None:
                target.entries = {}
            target.entries.update(zip(keys, pairs[1::2], strict=True))
        else:
            msg = f"keys and values for a {type(target).__name__}"
            raise PickleError(msg)

    def _check_unusual_key(self, key: object) -> None:
        self._num_unusual_keys += 1
        if self._num_unusual_keys > MAX_UNUSUAL_KEYS:
            msg = f"more than {MAX_UNUSUAL_KEYS} keys of dicts that are no text and no small integer"
            raise PickleError(msg)
        left: list[object] = [key]
        for item in left:  # grows while it is read
            if len(left) > _MAX_KEY_ITEMS or isinstance(item, list | dict):
                msg = f"a {type(key).__name__} as key of a dict"
                raise PickleError(msg)
            left += item if isinstance(item, tuple) else ()
