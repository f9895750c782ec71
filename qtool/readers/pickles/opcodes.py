"""What each opcode of a pickle does to the stack of the machine, protocols 0 to 5.

Source: the standard library's pickletools, which describes every opcode, and pickle.py.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from qtool.readers.pickles import objects
from qtool.readers.pickles.stack import MAX_INTEGER_BYTES, PickleError, Stack
from qtool.readers.pickles.values import Bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[Stack], None]

HIGHEST_PROTOCOL: Final = 5
STOP: Final = ord(".")

_BYTE: Final = Struct("<B")
_TWO: Final = Struct("<H")
_FOUR: Final = Struct("<I")
_EIGHT: Final = Struct("<Q")
_MAX_DIGITS: Final = 2 * MAX_INTEGER_BYTES
_LARGEST_MEMO: Final = 1 << 32


def _number(stack: Stack, layout: Struct) -> int:
    (number,) = layout.unpack_from(stack.data, stack.skipped(layout.size))
    return int(number)


def _constant(value: object) -> Step:
    return lambda stack: stack.items.append(value)


def _packed(layout: Struct) -> Step:
    def step(stack: Stack) -> None:
        stack.items.append(layout.unpack_from(stack.data, stack.skipped(layout.size))[0])

    return step


def _text(size: Struct) -> Step:
    return lambda stack: stack.items.append(stack.text(_number(stack, size)))


def _older_text(size: Struct) -> Step:
    """Push a text of Python 2, which has no encoding; what is not UTF-8 stands in it as escapes."""
    return lambda stack: stack.items.append(stack.raw_text(_number(stack, size)).decode("utf-8", "backslashreplace"))


def _bytes(size: Struct) -> Step:
    def step(stack: Stack) -> None:
        num_bytes = _number(stack, size)
        stack.items.append(Bytes(stack.skipped(num_bytes), num_bytes))

    return step


def _integer(size: Struct) -> Step:
    def step(stack: Stack) -> None:
        num_bytes = _number(stack, size)
        if num_bytes > MAX_INTEGER_BYTES:
            msg = f"an integer of {num_bytes} bytes; at most {MAX_INTEGER_BYTES} are read"
            raise PickleError(msg)
        stack.items.append(int.from_bytes(stack.taken(num_bytes), "little", signed=True))

    return step


def _digits(stack: Stack) -> int:
    text = stack.line()
    if len(text) > _MAX_DIGITS:
        msg = f"an integer of {len(text)} digits"
        raise PickleError(msg)
    return int(text.removesuffix("L"))


def _int_line(stack: Stack) -> None:
    if stack.data[stack.position : stack.position + 3] in (b"00\n", b"01\n"):
        stack.items.append(stack.line() == "01")
    else:
        stack.items.append(_digits(stack))


def _text_line(stack: Stack) -> None:
    """Push a text as protocol 0 writes it, with escapes for what is not Latin-1."""
    text = stack.raw_line().decode("raw-unicode-escape")
    stack.items.append(text.encode("utf-8", "backslashreplace").decode())


def _quoted_line(stack: Stack) -> None:
    """Push a text as Python 2 writes it; its escapes stay as they are, and the names of torch have none."""
    text = stack.raw_line().decode("utf-8", "backslashreplace")
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        msg = "a text without its quotes"
        raise PickleError(msg)
    stack.items.append(text[1:-1])


def _tuple(size: int) -> Step:
    def step(stack: Stack) -> None:
        if len(stack.items) < size:
            msg = "the stack is empty"
            raise PickleError(msg)
        stack.items[-size:] = [tuple(stack.items[-size:])]

    return step


def _from_mark(make: Callable[[list[object]], object]) -> Step:
    def step(stack: Stack) -> None:
        items = stack.popped_to_mark()
        stack.items.append(make(items))

    return step


def _dict_from_mark(stack: Stack) -> None:
    items = stack.popped_to_mark()
    made: dict[object, object] = {}
    stack.update(made, items)
    stack.items.append(made)


def _append(stack: Stack) -> None:
    item = stack.popped()
    stack.extend(stack.last(), [item])


def _append_from_mark(stack: Stack) -> None:
    items = stack.popped_to_mark()
    stack.extend(stack.last(), items)


def _set_item(stack: Stack) -> None:
    value, key = stack.popped(), stack.popped()
    stack.update(stack.last(), [key, value])


def _set_items_from_mark(stack: Stack) -> None:
    pairs = stack.popped_to_mark()
    stack.update(stack.last(), pairs)


def _pop(stack: Stack) -> None:
    if stack.items:
        stack.items.pop()
    else:
        stack.popped_to_mark()


def _put_line(stack: Stack) -> None:
    index = _digits(stack)
    if not 0 <= index < _LARGEST_MEMO:
        msg = f"a value to be kept as number {index}"
        raise PickleError(msg)
    stack.memo[index] = stack.last()


def _put(size: Struct) -> Step:
    def step(stack: Stack) -> None:
        stack.memo[size.unpack_from(stack.data, stack.skipped(size.size))[0]] = stack.last()

    return step


def _get(number: Callable[[Stack], int]) -> Step:
    def step(stack: Stack) -> None:
        index = number(stack)
        if index not in stack.memo:
            msg = f"value number {index} was not kept"
            raise PickleError(msg)
        stack.items.append(stack.memo[index])

    return step


def _memoize(stack: Stack) -> None:
    stack.memo[len(stack.memo)] = stack.last()


def _stack_global(stack: Stack) -> None:
    name, module = stack.popped(), stack.popped()
    stack.items.append(stack.name(module, name))


def _extension(size: Struct) -> Step:
    """Push what the process that loads the pickle has registered under a number; which that is cannot be known."""
    return lambda stack: stack.items.append(stack.name("copyreg", f"_extension_registry[{_number(stack, size)}]"))


def _protocol(stack: Stack) -> None:
    protocol = _number(stack, _BYTE)
    if protocol > HIGHEST_PROTOCOL:
        msg = f"protocol {protocol}; the highest known is {HIGHEST_PROTOCOL}"
        raise PickleError(msg)


def _frame(stack: Stack) -> None:
    num_bytes = _number(stack, _EIGHT)
    stack.frame_end = stack.position + num_bytes


def _out_of_band(_stack: Stack) -> None:
    msg = "bytes that are not in the file (a buffer out of band)"
    raise PickleError(msg)


def _numbers(size: Struct) -> Callable[[Stack], int]:
    return lambda stack: _number(stack, size)


_STEPS: Final[dict[str, Step]] = {
    # plain values
    "N": _constant(None), "\x88": _constant(True), "\x89": _constant(False),
    "I": _int_line, "L": lambda stack: stack.items.append(_digits(stack)),
    "F": lambda stack: stack.items.append(float(stack.line())),
    "J": _packed(Struct("<i")), "K": _packed(_BYTE), "M": _packed(_TWO), "G": _packed(Struct(">d")),
    "\x8a": _integer(_BYTE), "\x8b": _integer(_FOUR),
    "S": _quoted_line, "V": _text_line, "U": _older_text(_BYTE), "T": _older_text(_FOUR),
    "\x8c": _text(_BYTE), "X": _text(_FOUR), "\x8d": _text(_EIGHT),
    "C": _bytes(_BYTE), "B": _bytes(_FOUR), "\x8e": _bytes(_EIGHT), "\x96": _bytes(_EIGHT),
    # containers; a set is read as a list, a frozen one as a tuple
    "]": lambda stack: stack.items.append([]), "}": lambda stack: stack.items.append({}),
    ")": _constant(()), "\x8f": lambda stack: stack.items.append([]),
    "\x85": _tuple(1), "\x86": _tuple(2), "\x87": _tuple(3),
    "t": _from_mark(tuple), "l": _from_mark(list), "d": _dict_from_mark, "\x91": _from_mark(tuple),
    "a": _append, "e": _append_from_mark, "s": _set_item, "u": _set_items_from_mark, "\x90": _append_from_mark,
    # the stack and the memo
    "(": Stack.mark, "0": _pop, "1": lambda stack: [stack.popped_to_mark()].clear(),
    "2": lambda stack: stack.items.append(stack.last()),
    "p": _put_line, "q": _put(_BYTE), "r": _put(_FOUR), "\x94": _memoize,
    "g": _get(_digits), "h": _get(_numbers(_BYTE)), "j": _get(_numbers(_FOUR)),
    # names and objects
    "c": lambda stack: stack.items.append(stack.named_line()), "\x93": _stack_global,
    "\x82": _extension(_BYTE), "\x83": _extension(_TWO), "\x84": _extension(Struct("<i")),
    "R": objects.make_call, "\x81": objects.make_instance, "\x92": objects.make_instance_with_keywords,
    "o": objects.make_instance_from_mark, "i": objects.make_named_instance, "b": objects.restore,
    "P": lambda stack: stack.items.append(stack.reference(stack.line())),
    "Q": lambda stack: stack.items.append(stack.reference(stack.popped())),
    # the form of the pickle itself
    "\x80": _protocol, "\x95": _frame,
    "\x97": _out_of_band, "\x98": _out_of_band,
}  # fmt: skip
STEPS: Final = tuple(_STEPS.get(chr(code)) for code in range(256))
"""By opcode; None for what is no opcode, and for STOP."""
