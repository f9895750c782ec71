"""TorchScript archives whose code reaches out, never ends or nests, and whose pickles lie about what is packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.attacks import pickles
from tests.attacks.attack import Attack, read, refused
from tests.readers.sample_files import zip_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLASS = "class Module(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
EMPTY = pickles.PROTO + b"c__torch__\nModule\n)\x81}b."
"""data.pkl of a module without state."""
FORWARD = "  def forward(self: __torch__.Module,\n    x: Tensor) -> Tensor:\n"


def script(
    body: str = "    return x\n",
    *,
    head: str = CLASS + FORWARD,
    data: bytes = EMPTY,
    constants: bytes = b"\x80\x02).",
    entries: dict[str, bytes] | None = None,
) -> bytes:
    """Return an archive whose module has this code and this state."""
    files = {
        "data.pkl": data,
        "code/__torch__.py": (head + body).encode(),
        "constants.pkl": constants,
        "version": b"3\n",
    }
    return zip_bytes(files | (entries or {}))


def running(body: str, **fields: object) -> Callable[[Path], bytes]:
    """Return the builder of a script with this code; MARKER in it is the marker's path."""
    return lambda marker: script(body.replace("MARKER", str(marker)), **fields)  # type: ignore[arg-type]


def coded(code: str | Callable[[], str]) -> Callable[[Path], bytes]:
    return lambda _: script("", head=code if isinstance(code, str) else code())


def raw(code: bytes) -> Callable[[Path], bytes]:
    return lambda _: script(entries={"code/__torch__.py": code})


def with_data(data: bytes) -> Callable[[Path], bytes]:
    return lambda _: script(data=pickles.PROTO + data + b".")


def packed(*parts: bytes) -> bytes:
    """Return a module that holds a packed convolution with this state."""
    params = pickles.name("__torch__.torch.classes.quantized.Conv2dPackedParamsBase") + b")\x81"
    state = pickles.MARK + b"".join(parts) + pickles.TUPLE
    return b"c__torch__\nModule\n)\x81}" + pickles.text("_packed_params") + params + state + b"bsb"


def version(word: str, *tensors: bytes) -> bytes:
    return packed(pickles.MARK + pickles.text(word) + b"](" + b"".join(tensors) + b"e](" + b"Nee" + pickles.TUPLE)


REACHES: dict[str, str] = {
    "aten::save": '    torch.save(x, "MARKER")\n    return x\n',
    "aten::from_file": '    return torch.from_file("MARKER", True, 4)\n',
    "ops.aten.save": '    ops.aten.save(x, "MARKER")\n    return x\n',
    "an op of a loaded library": '    return ops.load_library.run("MARKER")\n',
    "annotated": '    _0 = annotate(Tensor, torch.from_file("MARKER", True, 4))\n    return _0\n',
    "in one line": '    return torch.add(x, torch.from_file("MARKER", True, 4))\n',
}
SETSTATE = """class Module(Module):
  def __setstate__(self: __torch__.Module,
    state: Tensor) -> None:
    torch.save(state, "MARKER")
    return None
  def forward(self: __torch__.Module,
    x: Tensor) -> Tensor:
"""


def deep(opening: str, closing: str, levels: int) -> str:
    return f"    return {opening * levels}x{closing * levels}\n"


def blocks(levels: int) -> str:
    return "".join(f"{'  ' * (i + 2)}if True:\n" for i in range(levels)) + f"{'  ' * (levels + 2)}return x\n"


ATTACKS: tuple[Attack, ...] = (
    *(read(f"script: {what}", "QT110", running(code)) for what, code in REACHES.items()),
    read(
        "script: __setstate__ that writes", "QT110", lambda marker: script(head=SETSTATE.replace("MARKER", str(marker)))
    ),
    read(
        "script: a pickle in its data calls",
        "QT109",
        lambda marker: script(data=pickles.state_dict(pickles.run(pickles.name("os.system"))(marker))),
    ),
    read(
        "script: a pickle in its constants calls",
        "QT109",
        lambda marker: script(constants=pickles.state_dict(pickles.run(pickles.name("os.system"))(marker))),
    ),
    read(
        "script: a pickle in its bytecode calls",
        "QT109",
        lambda marker: script(
            entries={"bytecode.pkl": pickles.state_dict(pickles.run(pickles.name("os.system"))(marker))}
        ),
    ),
    read("script: brackets 10^5 deep", "QT2", running(deep("(", ")", 10**5))),
    read("script: lists 10^5 deep", "QT2", running(deep("[", "]", 10**5))),
    read("script: calls 10^5 deep", "QT2", running(deep("torch.relu(", ")", 10**5))),
    read("script: brackets that do not end", "QT2", running("    return " + "(" * 10**5)),
    read("script: blocks 500 deep", "QT2", running(blocks(500))),
    read("script: 10^5 lines", "QT2", running("    x = torch.relu(x)\n" * 10**5 + "    return x\n")),
    read("script: one line of 10 MB", "QT2", running("    return torch.cat([" + "x, " * (10**7 // 3) + "])\n")),
    read("script: text that does not end", "QT2", running('    return "' + "a" * 10**6)),
    read("script: backslashes", "QT2", running('    return "' + "\\" * 10**6 + '"\n')),
    read("script: a number of 10^6 digits", "QT2", running(f"    return x + {'9' * 10**6}\n")),
    read(
        "script: a class that is its own part",
        "QT2",
        coded(CLASS + "  m : __torch__.Module\n" + FORWARD + "    return (self.m).forward(x, )\n"),
    ),
    read("script: nothing but spaces", "QT2", coded(lambda: " " * 10**7)),
    read("script: nothing but line ends", "QT2", coded(lambda: "\n" * 10**7)),
    read("script: code that is not UTF-8", "QT2", raw(b"class \xff\xfe:\n\xff")),
    read("script: code with zero bytes", "QT2", raw(b"\0" * 1000)),
    read("script: no code in it", "QT2", coded("")),
    read("script: names that move the cursor", "QT2", running("    \x1b[2J = torch.relu(x)\n    return x\n")),
    refused("script: data that is no pickle", "pickle", lambda _: script(data=b"no pickle")),
    read("script: state of a packed convolution that is a number", "QT2", with_data(packed(b"K\1"))),
    read("script: packed convolution of version 2**31", "QT2", with_data(version(str(2**31)))),
    read("script: packed convolution of no tensors", "QT2", with_data(version("2"))),
    read(
        "script: packed convolution of float tensors",
        "QT2",
        with_data(version("2", pickles.tensor(), pickles.tensor())),
    ),
    read(
        "script: a module that holds itself",
        "QT2",
        with_data(b"c__torch__\nModule\n)\x81q\0}" + pickles.text("m") + b"h\0sb"),
    ),
    read(
        "script: modules 10^4 deep",
        "QT2",
        with_data((b"c__torch__\nModule\n)\x81}" + pickles.text("m")) * 10**4 + b"N" + b"sb" * 10**4),
    ),
)
