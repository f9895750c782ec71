"""Pickles that call something, never end, or grow: bare, in torch's zip and in its older form.

They are written opcode by opcode; pickle's own writer makes no hostile ones.
"""

from __future__ import annotations

import pickle
import struct
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.attacks.attack import Attack, read, refused
from tests.readers.sample_files import zip_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROTO, STOP, MARK, TUPLE, REDUCE, EMPTY_LIST, EMPTY_DICT = b"\x80\x02", b".", b"(", b"t", b"R", b"]", b"}"
FLOAT = b"ctorch\nFloatStorage\n"
OLDER_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
"""What torch.save writes in front in its older form: a magic number, a version, and sizes of types (here none)."""


def text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word.encode())) + word.encode()


def name(of: str) -> bytes:
    module, _, attribute = of.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def call(of: str, *arguments: bytes) -> bytes:
    """Return the call of a name with these pickled arguments."""
    return name(of) + MARK + b"".join(arguments) + TUPLE + REDUCE


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def numbers(values: tuple[int, ...]) -> bytes:
    return MARK + b"".join(map(number, values)) + TUPLE


def storage(key: str, size: int) -> bytes:
    return MARK + text("storage") + FLOAT + text(key) + text("cpu") + number(size) + TUPLE + b"Q"


def tensor(
    sizes: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] = (3, 1),
    *,
    offset: int = 0,
    key: str = "0",
    stored: int = 6,
) -> bytes:
    """Return the tensor that these words describe, as torch.save writes it."""
    return call(
        "torch._utils._rebuild_tensor_v2",
        storage(key, stored),
        number(offset),
        numbers(sizes),
        numbers(strides),
        b"\x89",
        call("collections.OrderedDict"),
    )


def state_dict(*values: bytes) -> bytes:
    items = b"".join(text(f"w{i}") + value for i, value in enumerate(values))
    return PROTO + EMPTY_DICT + MARK + items + b"u" + STOP


def in_zip(data: bytes, *, stored: bytes = b"\0" * 24) -> bytes:
    """Return a checkpoint as torch.save writes it, whose pickle this is."""
    entries = {
        "data.pkl": data,
        "byteorder": b"little",
        "data/0": stored,
        "version": b"3\n",
        ".data/serialization_id": b"1",
    }
    return zip_bytes(entries)


def in_older_form(data: bytes) -> bytes:
    """Return the same as a bare pickle with its storages behind; there a storage's id has one part more."""
    pickled = data.replace(TUPLE + b"Q", b"N" + TUPLE + b"Q")
    return OLDER_HEAD + pickled + PROTO + EMPTY_LIST + text("0") + b"a." + struct.pack("<q", 6) + b"\0" * 24


FORMS: dict[str, Callable[[bytes], bytes]] = {"pickle": bytes, "checkpoint": in_zip, "older checkpoint": in_older_form}


def shell(marker: Path) -> bytes:
    return call("posix.system", text(f"touch '{marker}'"))


def run(of: bytes) -> Callable[[Path], bytes]:
    """Return the builder of a call, of what these opcodes leave on the stack, that makes the marker in a shell."""
    return lambda marker: of + MARK + text(f"touch '{marker}'") + TUPLE + REDUCE


def evaluated(marker: Path) -> bytes:
    return text(f"open({str(marker)!r}, 'w')")


GETATTR = call("builtins.getattr", call("builtins.__import__", text("os")), text("system"))
WORDS_SWAPPED = text("system") + b"q\x010" + text("os") + b"h\1\x93"
DOTTED = text("torch.serialization") + text("os.system") + b"\x93"
ATTRIBUTES = name("os.environ") + EMPTY_DICT + text("a") + text("b") + b"sb"
CALLS: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "os.system": ("os.system", run(name("os.system"))),
    "posix.system": ("posix.system", shell),
    "builtins.eval": ("eval", lambda marker: call("builtins.eval", evaluated(marker))),
    "builtins.exec of Python 2": ("exec", lambda marker: call("__builtin__.exec", evaluated(marker))),
    "io.open": ("io.open", lambda marker: call("io.open", text(str(marker)), text("w"))),
    "subprocess": ("subprocess.Popen", lambda marker: call("subprocess.Popen", text(f"touch {marker}"))),
    "getattr, nested": ("getattr", run(GETATTR)),
    "reduce in reduce": (
        "eval",
        lambda marker: call(
            "builtins.list", call("builtins.map", name("builtins.eval"), EMPTY_LIST + evaluated(marker) + b"a")
        ),
    ),
    "NEWOBJ": ("os.system", lambda marker: name("os.system") + MARK + text(f"touch {marker}") + TUPLE + b"\x81"),
    "OBJ": ("os.system", lambda marker: MARK + name("os.system") + text(f"touch '{marker}'") + b"o"),
    "INST": ("os.system", lambda marker: MARK + text(f"touch '{marker}'") + b"ios\nsystem\n"),
    "STACK_GLOBAL": ("os.system", run(text("os") + text("system") + b"\x93")),
    "STACK_GLOBAL of memoized words": ("os.system", run(WORDS_SWAPPED)),
    "extension registry": ("extension", lambda _: b"\x82\1"),
    "torch.load": ("torch.load", lambda marker: call("torch.load", text(str(marker)))),
    "torch.hub": ("torch.hub", lambda marker: call("torch.hub.load_state_dict_from_url", text(f"file://{marker}"))),
    "a name with dots": ("os.system", run(DOTTED)),
    "a torch function that is no rebuild": ("_import_dotted_name", run(name("torch._utils._import_dotted_name"))),
    "a persistent id that calls": ("os.system", lambda marker: run(name("os.system"))(marker) + b"Q"),
    "in a value thrown away": ("os.system", lambda marker: tensor() + run(name("os.system"))(marker) + b"0"),
}


EVERYWHERE = ("os.system", "STACK_GLOBAL", "in a value thrown away")
"""What is tried in every form in `make test`."""


def calling(value: Callable[[Path], bytes], form: Callable[[bytes], bytes]) -> Callable[[Path], bytes]:
    """Return the builder of a state dict with that value between two tensors, in that form."""
    return lambda marker: form(state_dict(tensor(), value(marker), tensor()))


def around(data: bytes | Callable[[], bytes]) -> Callable[[Path], bytes]:
    """Return the builder of a checkpoint whose pickle is this."""
    return lambda _: in_zip(PROTO + (data() if callable(data) else data) + STOP)


def bare(data: bytes) -> Callable[[Path], bytes]:
    return lambda _: data


def laughs() -> bytes:
    """Each tuple holds the one before ten times: ten lines, 10^30 elements if they were written out."""
    data = b"(K\1K\1tq\0"
    for i in range(30):
        data += MARK + (b"h" + bytes([i])) * 10 + b"tq" + bytes([i + 1])
    return data


def dict_of_itself() -> bytes:
    return b"}q\0X\1\0\0\0ah\0s"


def tensors(count: int) -> bytes:
    """One tensor memoized, and very many names for it."""
    words = b"".join(text(f"w{i}") + b"h\1" for i in range(count))
    return b"}" + tensor() + b"q\x010" + MARK + words + b"u"


def colliding() -> bytes:
    """Integers that all have one hash: as keys of a dict they take the square of their number."""
    modulus = 2**61 - 1
    keys = b"".join(number(i * modulus) + b"N" for i in range(1, 30_000))
    return EMPTY_DICT + MARK + keys + b"u"


def long_integers() -> bytes:
    """A decimal number of 10^6 digits, whose conversion takes the square of its length."""
    return b"L" + b"9" * 10**6 + b"L\n"


ENDLESS: tuple[Attack, ...] = (
    refused("pickle: more than 10^6 opcodes", "1000000 opcodes", around(lambda: b"(" * 10**6)),
    read("pickle: 4*10^5 values pushed and popped", "QT201|QT210", around(lambda: b"N0" * 400_000 + b"}"), slow=True),
    read(
        "pickle: 9*10^5 numbers in a list",
        "QT201|QT210|QT1",
        around(lambda: b"](" + b"K\1" * 900_000 + b"e"),
        slow=True,
    ),
    refused("pickle: 10^7 empty dicts", "1000000 opcodes", lambda _: b"\x80\x02](" + b"}" * 10**7 + b"e."),
    read("pickle: lists 10^5 deep", "QT201|QT210|QT1", around(lambda: b"]" * 10**5 + b"a" * (10**5 - 1))),
    read("pickle: tuples 10^5 deep", "QT201|QT210|QT1", around(lambda: b")" + b"\x85" * 10**5)),
    read(
        "pickle: dicts 10^4 deep, in an older file",
        "QT201|QT210|QT1",
        lambda _: in_older_form(PROTO + b"}" + (b"K\1" + b"}") * 10**4 + b"s" * 10**4 + STOP),
    ),
    read(
        "pickle: 10^5 calls around each other",
        "QT201|QT210",
        around(lambda: name("builtins.list") + b"q\x010" + b")" + (b"\x85" + b"q\x020h\1h\2R") * 10**5),
    ),
    read("pickle: a billion laughs", "QT201|QT210|QT1", around(laughs)),
    read("pickle: a dict that holds itself", "QT201|QT210|QT1", around(dict_of_itself)),
    read(
        "pickle: 10^5 names for one tensor", "QT212[^|]*after 40000 tensors", around(lambda: tensors(10**5)), slow=True
    ),
    refused("pickle: keys of one hash", "1024 keys", around(colliding)),
    refused("pickle: a number of 10^6 digits", "an integer of 1000001 digits", around(long_integers)),
)
NUMBERS: tuple[Attack, ...] = (
    refused("pickle: text of 2**32 - 1 bytes", "a text of 4294967295 bytes", bare(PROTO + b"X\xff\xff\xff\xffabc.")),
    refused(
        "pickle: text of 2**63 bytes",
        "a text of 9223372036854775807 bytes",
        bare(b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7fabc."),
    ),
    refused(
        "pickle: bytes of 2**64 - 1 bytes",
        "ends within 18446744073709551615 bytes",
        bare(b"\x80\x04\x8e" + b"\xff" * 8 + b"abc."),
    ),
    refused("pickle: frame of 2**64 - 1 bytes", "a frame that reaches", bare(b"\x80\x04\x95" + b"\xff" * 8 + b"}.")),
    refused("pickle: integer of -1 bytes", "an integer of 4294967295 bytes", bare(PROTO + b"\x8b\xff\xff\xff\xff.")),
    refused(
        "pickle: integer of 2**31 - 1 bytes", "an integer of 2147483647 bytes", bare(PROTO + b"\x8b\xff\xff\xff\x7f.")
    ),
    read("pickle: memo at 2**32 - 1", "QT201|QT210|QT1", around(b"}r\xff\xff\xff\xff")),
    refused("pickle: memo that is not there", "value number 7 was not kept", around(b"h\7")),
    refused("pickle: memo at a word", "foo", around(b"}pfoo\n")),
    refused("pickle: protocol 255", "not a zip|protocol 255", bare(b"\x80\xff}.")),
    refused("pickle: an opcode that is none", "0xfe is no opcode", around(b"}\xfe")),
    refused("pickle: a mark that is not there", "a mark is missing", around(b"t")),
    refused("pickle: nothing on the stack", "the stack is empty", around(b"")),
    refused("pickle: no end", "ends too soon", bare(PROTO + b"}")),
    refused("pickle: text that is not UTF-8", "can't decode byte 0xff", around(b"X\2\0\0\0\xff\xfe")),
    refused("pickle: a name that is not UTF-8", "can't decode byte 0xff", around(b"c\xff\xfe\n\xff\n")),
    refused("pickle: list as a key", "a list as key", around(b"}](N]eNs")),
    read("pickle: a float of NaN", "QT201|QT210|QT1", around(b"}K\1G" + struct.pack(">d", float("nan")) + b"s")),
    refused("pickle: a size in words", "no pickle that can be read", around(b"Fnan\nIx\n\x86")),
)
NAN = b"G" + struct.pack(">d", float("nan"))
NO_HOOKS = b"\x89" + call("collections.OrderedDict")


def quantized(quantizer: bytes) -> bytes:
    parts = storage("0", 6) + number(0) + numbers((2, 3)) + numbers((3, 1)) + quantizer
    return call("torch._utils._rebuild_qtensor", parts + NO_HOOKS)


BAD_TENSORS: dict[str, bytes] = {
    "size of -1": tensor((-1, 3)),
    "size of 2**63": tensor((2**63, 3)),
    "size of 2**1000": tensor((2**1000, 3)),
    "sizes whose product overflows": tensor((2**32, 2**32), (2**32, 1)),
    "10^5 dimensions": tensor((2,) * 10**5, (1,) * 10**5),
    "strides below 0": tensor((2, 3), (-3, -1)),
    "strides of 2**62": tensor((2, 3), (2**62, 2**62)),
    "strides of 0": tensor((2**20, 2**20), (0, 0)),
    "strides too few": tensor((2, 3), (1,)),
    "offset below 0": tensor(offset=-7),
    "offset of 2**63": tensor(offset=2**63),
    "more than is stored": tensor((200, 300), (300, 1)),
    "more than is in the file": tensor((200, 300), (300, 1), stored=60_000),
    "no such storage": tensor(key="1"),
    "storage outside": tensor(key="../data.pkl"),
    "storage of -1": tensor(stored=-1),
    "sizes that are text": call(
        "torch._utils._rebuild_tensor_v2",
        storage("0", 6),
        number(0),
        text("ab"),
        numbers((1,)),
        b"\x89",
        call("collections.OrderedDict"),
    ),
    "too few arguments": call("torch._utils._rebuild_tensor_v2", storage("0", 6)),
    "a storage that is a number": call(
        "torch._utils._rebuild_tensor_v2",
        number(3),
        number(0),
        numbers((1,)),
        numbers((1,)),
        b"\x89",
        call("collections.OrderedDict"),
    ),
    "a persistent id that is text": text("storage") + b"Q",
    "a scale of NaN": quantized(MARK + name("torch.per_tensor_affine") + NAN + number(2**40) + TUPLE),
    "a quantizer that is no tuple": quantized(number(1)),
}
OF_ANOTHER_KIND, ELSEWHERE = "'w1' is damaged: .* of another kind", "'w1' takes bytes .* of a storage that has 24"
REFUSED_TENSORS = {
    "size of -1": OF_ANOTHER_KIND,
    "size of 2**63": OF_ANOTHER_KIND,
    "size of 2**1000": OF_ANOTHER_KIND,
    "sizes whose product overflows": ELSEWHERE,
    "10^5 dimensions": OF_ANOTHER_KIND,
    "strides below 0": OF_ANOTHER_KIND,
    "strides of 2**62": ELSEWHERE,
    "strides too few": OF_ANOTHER_KIND,
    "offset below 0": ELSEWHERE,
    "offset of 2**63": ELSEWHERE,
    "more than is stored": ELSEWHERE,
    "more than is in the file": "storage '0' is said to have 240000 bytes, and has 24",
    "storage of -1": "storage '0' is said to have -4 bytes, and has 24",
    "a persistent id that is text": "names something outside itself in another way",
    "sizes that are text": OF_ANOTHER_KIND,
    "too few arguments": OF_ANOTHER_KIND,
    "a storage that is a number": OF_ANOTHER_KIND,
    "a quantizer that is no tuple": OF_ANOTHER_KIND,
}
REPORTED_TENSORS = {
    "strides of 0": "QT201|QT210",
    "no such storage": "QT112[^|]*storage '1'",
    "storage outside": "QT112[^|]*'../data.pkl'",
    "a scale of NaN": "QT201|QT210",
}


def holding(what: str) -> Callable[[Path], bytes]:
    """Return the builder of a checkpoint with a good tensor and a bad one."""
    return lambda _: in_zip(state_dict(tensor(), BAD_TENSORS[what]))


TENSORS: tuple[Attack, ...] = (
    *(refused(f"checkpoint: {what}", says, holding(what)) for what, says in REFUSED_TENSORS.items()),
    *(read(f"checkpoint: {what}", says, holding(what)) for what, says in REPORTED_TENSORS.items()),
)
ATTACKS: tuple[Attack, ...] = (
    *(
        read(
            f"{form}: {what}",
            f"QT109[^|]*{says}",
            calling(value, wrap),
            slow=form != "checkpoint" and what not in EVERYWHERE,
        )
        for form, wrap in FORMS.items()
        for what, (says, value) in CALLS.items()
    ),
    read("pickle: attributes for a name", r"QT109[^|]*os\.environ", around(ATTRIBUTES)),
    *ENDLESS,
    *NUMBERS,
    *TENSORS,
    read("pickle: of a class of another package", "QT109[^|]*Fraction", lambda _: pickle.dumps({"a": Fraction(1, 3)})),
    refused(
        "pickle: two, one behind the other",
        "bytes behind its end",
        lambda marker: PROTO + b"}." + PROTO + shell(marker) + STOP,
    ),
)
