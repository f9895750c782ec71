"""What a pickle is read into, where plain Python has no value for it: names, calls and objects, as records.

Each is one object of the pickle: what is shared or cyclic there is shared or cyclic here, so records compare by
identity, and whoever walks through them keeps a list of what is left to do instead of calling itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Name:
    """A class, function or constant that a pickle names, for example `torch.nn.modules.conv` and `Conv2d`.

    Modules that Python 2 called otherwise have their names of today: `builtins`, `copyreg`. `full` is both in one.
    """

    module: str
    name: str
    full: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "full", f"{self.module}.{self.name}")

    def __str__(self) -> str:
        return self.full


@dataclass(eq=False, slots=True)
class Call:
    """What a function that the pickle names would return.

    Attributes:
        function: a `Name`, or whatever else the pickle would call.
        arguments: what it would be called with.
        state: what would be put into the result; None if nothing.
        items: what would be appended to the result; None if nothing.
        entries: what would be set in the result by key; None if nothing.
    """

    function: object
    arguments: tuple[object, ...]
    state: object = None
    items: list[object] | None = None
    entries: dict[object, object] | None = None

    @property
    def name(self) -> str:
        """Full name of the function; empty where it has none."""
        return self.function.full if isinstance(self.function, Name) else ""


@dataclass(eq=False, slots=True)
class Instance:
    """An object of a class that the pickle names.

    Attributes:
        cls: a `Name`, or whatever else the pickle would make an object of.
        arguments: what the class would be called with.
        state: what its `__setstate__` or its attributes would get: mostly a dict of attributes; None if nothing.
        items: what would be appended to it, as to a list; None if nothing.
        entries: what would be set in it by key, as in a dict; None if nothing.
    """

    cls: object
    arguments: tuple[object, ...]
    state: object = None
    items: list[object] | None = None
    entries: dict[object, object] | None = None

    @property
    def name(self) -> str:
        """Full name of the class; empty where it has none."""
        return self.cls.full if isinstance(self.cls, Name) else ""

    @property
    def attributes(self) -> dict[object, object]:
        """Its state, where that is a dict of attributes; else nothing."""
        return self.state if isinstance(self.state, dict) else {}


@dataclass(frozen=True, eq=False, slots=True)
class Reference:
    """What stands outside the pickle, by the id that the pickle has for it: with torch, a storage."""

    id: object


@dataclass(frozen=True, eq=False, slots=True)
class Bytes:
    """Bytes in the pickle, which stay where they are.

    Attributes:
        offset: of the first one in the pickle.
        num_bytes: how many.
    """

    offset: int
    num_bytes: int


class AttributedDict(dict[object, object]):
    """An OrderedDict, Counter or defaultdict, with what was set as its attributes: `_metadata` of a state dict."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        super().__init__()
        self.state: object = None
