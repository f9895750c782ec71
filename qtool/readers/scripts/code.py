"""The code of a TorchScript archive: classes and functions, as statements in text, nested by how far they stand in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.readers.archive import Archive

MAX_BYTES: Final = 6 * 2**20
"""Of all code in an archive; a traced model of 1000 layers has some 3 MB."""
MAX_LINE: Final = 1 << 16
"""Characters of a statement; a longer one is cut, and then not understood."""

_CLASS: Final = re.compile(r"class (\w+)\(")
_FUNCTION: Final = re.compile(r"( *)def (\w+)\((.*)", re.S)
_CONSTANT: Final = re.compile(r"  (\w+) : Final\[.*\] = (.+)")
_TEXT: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")


@dataclass(frozen=True)
class Statement:
    """One line of code, and what stands further in below it."""

    text: str
    inner: list[Statement] = field(default_factory=list)


@dataclass(frozen=True)
class Function:
    """A function or method: names of its arguments, and its statements."""

    arguments: tuple[str, ...]
    body: list[Statement]


@dataclass(frozen=True)
class Class:
    """A class: its methods, and attributes that are constants, as text."""

    methods: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Code:
    """All code of an archive, by full name: `__torch__.models.Net`."""

    classes: dict[str, Class] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


def code_texts(archive: Archive) -> dict[str, str]:
    """Return the text of each file of code, as far as `MAX_BYTES` go.

    Raises:
        FileFormatError: an entry is damaged.
    """
    found, left = {}, MAX_BYTES
    for name in archive.names:
        if name.startswith("code/") and name.endswith(".py") and archive.size(name) <= left:
            left -= archive.size(name)
            found[name] = archive.read(name).decode("utf-8", "replace")
    return found


def read_code(texts: Mapping[str, str]) -> Code:
    """Return the classes and functions in files of code; what is not of the form torch prints is left out.

    Args:
        texts: by their names in the archive.
    """
    code = Code()
    for name, text in texts.items():
        module = name.removeprefix("code/").removesuffix(".py").replace("/", ".")
        _read_file(code, module, _joined(text.split("\n")))
    return code


def _joined(lines: list[str]) -> Iterator[str]:
    """Yield statements: a line with open brackets goes on in the next."""
    whole, depth = "", 0
    for line in lines:
        if not depth and (not line or line.isspace()):
            continue
        whole = f"{whole} {line.strip()}"[:MAX_LINE] if depth else line[:MAX_LINE]
        depth = max(0, depth + _depth(line))
        if depth == 0 or len(whole) == MAX_LINE:
            yield whole
            whole, depth = "", 0
    if whole:
        yield whole


def _depth(line: str) -> int:
    """Return how many brackets are left open in a line, texts aside."""
    plain = _TEXT.sub("", line) if '"' in line or "'" in line else line
    depth = plain.count("(") - plain.count(")")
    if "[" in plain or "]" in plain or "{" in plain or "}" in plain:
        depth += plain.count("[") - plain.count("]") + plain.count("{") - plain.count("}")
    return depth


def _read_file(code: Code, module: str, lines: Iterator[str]) -> None:
    owner: Class | None = None
    stack: list[tuple[int, list[Statement]]] = []
    for line in lines:
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if text.startswith("class ") and (found := _CLASS.match(line)):
            owner = code.classes.setdefault(f"{module}.{found[1]}", Class())
            stack = []
        elif text.startswith("def ") and (found := _FUNCTION.fullmatch(line)):
            body: list[Statement] = []
            function = Function(tuple(_arguments(found[3])), body)
            stack = [(indent + 1, body)]
            if found[1] and owner is not None:
                owner.methods[found[2]] = function
            elif not found[1]:
                code.functions[f"{module}.{found[2]}"] = function
        elif owner is not None and not stack and (found := _CONSTANT.fullmatch(line)):
            owner.constants[found[1]] = found[2]
        elif stack:
            while len(stack) > 1 and indent < stack[-1][0]:
                stack.pop()
            statement = Statement(text.rstrip())
            stack[-1][1].append(statement)
            if line.endswith(":"):
                stack.append((indent + 1, statement.inner))


def _arguments(signature: str) -> Iterator[str]:
    """Yield the names in `self: __torch__.Net, x: Tensor, flag: bool=False) -> Tensor:`."""
    depth, start = 0, True
    for part in re.split(r"([\[\](),])", signature):
        if part in ("[", "("):
            depth += 1
        elif part in ("]", ")"):
            depth -= 1
            if depth < 0:
                return
        elif part == ",":
            start = depth == 0
        elif start and part.strip():
            yield part.partition(":")[0].strip()
            start = False
