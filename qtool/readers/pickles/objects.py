"""What calling, making and restoring an object mean as data: the opcodes REDUCE, NEWOBJ, OBJ, INST and BUILD.

A few functions only make plain values, and their results stand here as such: an ordered dict is a dict. All else is a
record of what would be called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.pickles.stack import PickleError
from qtool.readers.pickles.values import AttributedDict, Call, Instance, Name

if TYPE_CHECKING:
    from collections.abc import Callable

    from qtool.readers.pickles.stack import Stack


def make_call(stack: Stack) -> None:
    """Replace a function and its arguments on the stack by what the call would return: REDUCE."""
    arguments, function = stack.popped(), stack.popped()
    if not isinstance(arguments, tuple):
        msg = f"arguments that are a {type(arguments).__name__} and no tuple"
        raise PickleError(msg)
    call = Call(function, arguments)
    plain = _PLAIN.get(call.name)
    stack.items.append(call if plain is None else plain(stack, call))


def make_instance(stack: Stack) -> None:
    """Replace a class and its arguments on the stack by an object: NEWOBJ."""
    arguments, cls = stack.popped(), stack.popped()
    if not isinstance(arguments, tuple):
        msg = f"arguments that are a {type(arguments).__name__} and no tuple"
        raise PickleError(msg)
    stack.items.append(Instance(cls, arguments))


def make_instance_with_keywords(stack: Stack) -> None:
    """Replace a class, its arguments and keyword arguments on the stack by an object: NEWOBJ_EX."""
    keywords = stack.popped()
    make_instance(stack)
    made = stack.last()
    if keywords and isinstance(made, Instance):
        made.arguments = (*made.arguments, keywords)


def make_instance_from_mark(stack: Stack) -> None:
    """Replace all above the mark, a class and its arguments, by an object: OBJ."""
    items = stack.popped_to_mark()
    if not items:
        msg = "an object without a class"
        raise PickleError(msg)
    stack.items.append(Instance(items[0], tuple(items[1:])))


def make_named_instance(stack: Stack) -> None:
    """Replace all above the mark by an object of the class named next: INST."""
    cls = stack.named_line()
    arguments = stack.popped_to_mark()
    stack.items.append(Instance(cls, tuple(arguments)))


def restore(stack: Stack) -> None:
    """Give the object below the state on top of the stack that state: BUILD."""
    state, target = stack.popped(), stack.last()
    if isinstance(target, Name):  # of the class or module itself, which the name already tells of
        return
    if not isinstance(target, Call | Instance | AttributedDict):
        msg = f"attributes for a {type(target).__name__}"
        raise PickleError(msg)
    if target.state is not None:
        msg = "an object that is given its attributes twice"
        raise PickleError(msg)
    target.state = state


def _ordered_dict(stack: Stack, call: Call) -> object:
    """Return a dict: of nothing, of another dict, or of pairs, as Python 2 wrote an ordered one."""
    content = call.arguments[0] if call.arguments else ()
    result = AttributedDict()
    if isinstance(content, dict):
        result.update(content)
    elif isinstance(content, list | tuple) and all(isinstance(pair, list | tuple) for pair in content):
        stack.update(result, [value for pair in content for value in pair])
    else:
        return call
    return result


def _default_dict(_stack: Stack, _call: Call) -> object:
    return AttributedDict()


def _items(of: type[list[object] | tuple[object, ...]]) -> Callable[[Stack, Call], object]:
    """Return what makes a list or tuple of the one argument of a call."""

    def made(_stack: Stack, call: Call) -> object:
        content = call.arguments[0] if call.arguments else ()
        return of(content) if isinstance(content, list | tuple) else call

    return made


def _reconstructed(_stack: Stack, call: Call) -> object:
    """Return an object as protocols 0 and 1 write it: class, base class, and the base's value."""
    return Instance(call.arguments[0], ()) if call.arguments else call


def _new_object(_stack: Stack, call: Call) -> object:
    return Instance(call.arguments[0], call.arguments[1:]) if call.arguments else call


_PLAIN: Final[dict[str, Callable[[Stack, Call], object]]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _ordered_dict,
    "collections.defaultdict": _default_dict,
    "builtins.set": _items(list),
    "builtins.frozenset": _items(tuple),
    "torch.Size": _items(tuple),
    "copyreg._reconstructor": _reconstructed,
    "copyreg.__newobj__": _new_object,
}
