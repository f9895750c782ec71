"""Follows the code of a TorchScript archive, from `forward` of its root on, with what it holds as values.

Nothing is computed but integers, comparisons and the choice of a branch; tensors are followed by what made them. Of a
branch that cannot be decided both sides are followed, but for one that only raises; of a loop the body once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.scripts import expressions
from qtool.readers.scripts.expressions import Attribute, Constant, ExpressionError, Invocation, Item, Name, Row, parse
from qtool.readers.scripts.values import NOTHING, Method, Module, Packed, Path
from qtool.readers.traced import Traced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qtool.readers.scripts.code import Code, Function, Statement
    from qtool.readers.scripts.expressions import Expression

MAX_STATEMENTS: Final = 15_000
"""That are followed, in all. A traced ResNet-152 has some 3000."""
MAX_DEPTH: Final = 150
"""Calls and blocks within one another."""
_ROOTS: Final = frozenset({"torch", "ops", "__torch__", "CONSTANTS", "annotate", "unchecked_cast", "uninitialized",
                           "float", "int", "bool", "str", "getattr", "range", "device"})  # fmt: skip
_ASSIGNED: Final = re.compile(r"([\w.]+(?:\s*,\s*[\w.]+)*\s*,?(?: : [^=\"']+)?)\s*=(?!=)")
"""`name = `, `self.name = `, `a, b, = ` and `name : Type = `."""
_RAISES: Final = "ops.prim.RaiseException("

Frame = dict[str, object]


class StoppedError(Exception):
    """More code than is followed."""


class Run:
    """Goes through functions with values.

    Attributes:
        code: the classes and functions.
        constants: of `CONSTANTS`, by name.
        operator: returns what an op gives: takes its path, its arguments, and the module that calls it.
        not_followed: what could not be read, a line each.
    """

    def __init__(
        self,
        code: Code,
        constants: dict[str, object],
        operator: Callable[[str, list[object], Module | None], object],
    ) -> None:
        self.code = code
        self.constants = constants
        self.operator = operator
        self.not_followed: dict[str, None] = {}
        self._num_statements = 0
        self._depth = 0

    def method(self, owner: Module, name: str, arguments: Sequence[object]) -> object:
        """Follow a method and return its result."""
        cls = self.code.classes.get(owner.cls)
        function = cls.methods.get(name) if cls is not None else None
        return NOTHING if function is None else self._function(function, [owner, *arguments], owner)

    def _function(self, function: Function, arguments: Sequence[object], module: Module | None) -> object:
        frame: Frame = dict.fromkeys(function.arguments, NOTHING)
        frame.update(zip(function.arguments, arguments, strict=False))
        returned = self._block(function.body, frame, module)
        return returned[0] if returned else NOTHING

    def _block(self, body: Sequence[Statement], frame: Frame, module: Module | None) -> list[object]:
        """Follow statements; return what the first `return` gives, as a list of one."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise StoppedError
        found: list[object] = []
        for index, statement in enumerate(body):
            text = statement.text
            if text.startswith("if "):
                condition = self._value(text[3:-1], frame, module)
                otherwise = body[index + 1].inner if index + 1 < len(body) and body[index + 1].text == "else:" else []
                self._say(statement.inner, frame, module)
                for branch in _branches(condition, statement.inner, otherwise):
                    found += self._block(branch, frame, module)
            elif text.startswith(("for ", "while ")):
                found += self._block(statement.inner, frame, module)
            elif text != "else:":
                found += self._statement(text, frame, module)
            if found and found[0] is not NOTHING:
                break
        self._depth -= 1
        return found

    def _say(self, branch: Sequence[Statement], frame: Frame, module: Module | None) -> None:
        """Tell what a branch would raise: guards of qtool are such branches, and stand in front of their node."""
        if len(branch) == 1 and branch[0].text.startswith(_RAISES):
            self._value(branch[0].text, frame, module)

    def _statement(self, text: str, frame: Frame, module: Module | None) -> list[object]:
        self._num_statements += 1
        if self._num_statements > MAX_STATEMENTS:
            raise StoppedError
        if text.startswith("return "):
            return [self._value(text[len("return ") :], frame, module)]
        target, sign, source = _split(text)
        value = self._value(source, frame, module)
        if sign:
            self._assign(target, value, frame)
        return []

    def _assign(self, target: str, value: object, frame: Frame) -> None:
        names = [name.strip() for name in target.split(",") if name.strip()]
        if len(names) == 1 and not target.rstrip().endswith(","):
            values: list[object] = [value]
        else:
            values = list(value) if isinstance(value, list) else [value] * len(names)
        for name, each in zip(names, values, strict=False):
            owner, _, attribute = name.rpartition(".")
            holder = frame.get(owner)
            if isinstance(holder, Module):
                holder.attributes[attribute] = each
            elif not owner:
                frame[name.partition(":")[0].strip()] = each

    def _value(self, text: str, frame: Frame, module: Module | None) -> object:
        try:
            return self._evaluated(parse(text), frame, module)
        except ExpressionError as error:
            self.not_followed[f"code: {error}"] = None
            return NOTHING

    def _evaluated(self, tree: Expression, frame: Frame, module: Module | None) -> object:  # noqa: PLR0911 - one a form
        match tree:
            case Constant(value):
                return value
            case Name(text):
                return frame[text] if text in frame else Path(text) if text in _ROOTS else NOTHING
            case Attribute(owner, name):
                return self._attribute(self._evaluated(owner, frame, module), name)
            case Item(owner, index):
                return _item(self._evaluated(owner, frame, module), self._evaluated(index, frame, module))
            case Row(items):
                return [self._evaluated(each, frame, module) for each in items]
            case Invocation():
                return self._invoked(tree, frame, module)
            case expressions.Unknown(parts):
                for each in parts:
                    self._evaluated(each, frame, module)
                return NOTHING

    def _attribute(self, owner: object, name: str) -> object:
        if isinstance(owner, Path):
            path = Path(f"{owner.text}.{name}")
            return self.constants.get(name, NOTHING) if owner.text == "CONSTANTS" else path
        if isinstance(owner, Module):
            cls = self.code.classes.get(owner.cls)
            if name in owner.attributes:
                return owner.attributes[name]
            if cls is not None and name in cls.constants:
                return self._value(cls.constants[name], {}, None)
            return Method(owner, name) if cls is not None and name in cls.methods else NOTHING
        return NOTHING

    def _invoked(self, tree: Invocation, frame: Frame, module: Module | None) -> object:
        function = self._evaluated(tree.function, frame, module)
        arguments = [self._evaluated(each, frame, module) for each in tree.arguments]
        if isinstance(function, Method):
            return self.method(function.owner, function.name, arguments)
        if not isinstance(function, Path):
            return NOTHING
        if function.text == "getattr" and len(arguments) > 1:
            return self._attribute(arguments[0], str(arguments[1]))
        own = self.code.functions.get(function.text)
        if own is not None:
            return self._function(own, arguments, module)
        arguments += [self._evaluated(each, frame, module) for _, each in tree.named]
        return self.operator(function.text, arguments, module)


def _branches(condition: object, then: list[Statement], otherwise: list[Statement]) -> list[list[Statement]]:
    """Return the sides of an `if` to follow."""
    if isinstance(condition, bool):
        return [then if condition else otherwise]
    return [side for side in (then, otherwise) if not any(each.text.startswith(_RAISES) for each in side)]


def _split(text: str) -> tuple[str, bool, str]:
    """Return the two sides of an assignment; of any other statement an empty one and all of it."""
    depth = 0
    for place, sign in enumerate(text):
        if sign in "\"'":
            break
        depth += (sign in "([{") - (sign in ")]}")
        if (
            sign == "="
            and depth == 0
            and text[place - 1 : place] not in ("=", "!", "<", ">")
            and text[place + 1 : place + 2] != "="
        ):
            return text[:place], True, text[place + 1 :]
    return "", False, text


def _item(owner: object, index: object) -> object:
    if isinstance(owner, list) and isinstance(index, int) and -len(owner) <= index < len(owner):
        return owner[index]
    return owner if isinstance(owner, Traced | Packed) else NOTHING
