"""Decides whether a size expression or guard that a .pt2 states is arithmetic and nothing else.

torch evaluates both as Python: sizes through `sympy.sympify`, guards through `exec`. So each is parsed, never run,
and every part of it must be in the small grammar here: symbols, integers, arithmetic, comparisons, and the names of
the functions that torch itself writes.

Source: torch/_export/serde/serialize.py, `_parse_sym_expr`; torch/export/_unlift.py, `_convert_guards_code_to_fn`.
"""

from __future__ import annotations

import ast
from functools import lru_cache

_MAX_CHARACTERS = 4096
_MAX_POWER = 16
"""sympy computes powers of integers at once, so 9**9**9**9 would never end."""

_SYMPY_FUNCTIONS = frozenset(
    {"Abs", "Add", "Eq", "Equality", "Float", "Ge", "Gt", "GreaterThan", "Integer", "Le", "LessThan", "Lt", "Max",
     "Min", "Mod", "Mul", "Ne", "Rational", "StrictGreaterThan", "StrictLessThan", "Unequality", "ceiling", "floor"}
)  # fmt: skip
_TORCH_FUNCTIONS = frozenset(
    {"CeilDiv", "CeilToInt", "CleanDiv", "FloatTrueDiv", "FloorDiv", "FloorToInt", "IntTrueDiv", "ModularIndexing",
     "PythonMod", "RoundToInt", "ToFloat", "TruncToFloat", "TruncToInt", "Where"}
)  # fmt: skip
_FUNCTIONS = _SYMPY_FUNCTIONS | _TORCH_FUNCTIONS
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow"})
_ASSUMPTIONS = frozenset({"integer", "positive", "negative", "nonnegative", "real", "finite", "zero", "even", "odd"})
_SIZE_METHODS = frozenset({"size", "stride", "storage_offset", "dim", "numel"})
_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


@lru_cache(maxsize=4096)
def is_plain_expression(text: str) -> bool:
    """Return whether a size expression is only arithmetic over symbols and numbers.

    Example:
        >>> is_plain_expression("Mul(Integer(2), Symbol('s77', positive=True, integer=True))")
        True
        >>> is_plain_expression("__import__('os').system('id')")
        False
    """
    return _is_plain(text, allows_inputs=False)


def is_plain_guard(text: str) -> bool:
    """Return whether a guard only compares sizes of the model's inputs.

    Example:
        >>> is_plain_guard("L['x'].size()[0] % 2 == 0")
        True
    """
    return _is_plain(text, allows_inputs=True)


def _is_plain(text: str, *, allows_inputs: bool) -> bool:
    if len(text) > _MAX_CHARACTERS:
        return False
    try:
        tree = ast.parse(text, mode="eval")
        return _is_plain_node(tree.body, allows_inputs)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_plain_node(node: ast.expr, allows_inputs: bool) -> bool:
    match node:
        case ast.Constant(value=int() | float()):
            is_plain = True
        case ast.Name(id=name):
            is_plain = _is_plain_name(name)
        case ast.BinOp(op=op):
            is_plain = isinstance(op, _OPERATORS) and _are_operands(
                node.left, node.right, isinstance(op, ast.Pow), allows_inputs
            )
        case ast.UnaryOp(op=op, operand=operand):
            is_plain = isinstance(op, _OPERATORS) and _is_plain_node(operand, allows_inputs)
        case ast.BoolOp(values=values):
            is_plain = all(_is_plain_node(value, allows_inputs) for value in values)
        case ast.Compare(ops=ops):
            parts = (node.left, *node.comparators)
            is_plain = all(isinstance(op, _OPERATORS) for op in ops) and all(
                _is_plain_node(part, allows_inputs) for part in parts
            )
        case ast.Call(func=ast.Name(id=name)):
            is_plain = _is_plain_call(name, node, allows_inputs)
        case _:
            is_plain = allows_inputs and _is_size_of_input(node)
    return is_plain


def _is_plain_call(name: str, node: ast.Call, allows_inputs: bool) -> bool:
    if name == "Symbol":
        return _is_symbol(node)
    if node.keywords:
        return False
    if name in _POWERS:
        return len(node.args) == 2 and _are_operands(node.args[0], node.args[1], True, allows_inputs)
    return name in _FUNCTIONS and all(_is_plain_node(arg, allows_inputs) for arg in node.args)


def _is_symbol(node: ast.Call) -> bool:
    """Match `Symbol('s77', positive=True, integer=True)`."""
    match node.args:
        case [ast.Constant(value=str() as name)]:
            return _is_plain_name(name) and all(_is_assumption(each) for each in node.keywords)
    return False


def _is_assumption(keyword: ast.keyword) -> bool:
    return (
        keyword.arg in _ASSUMPTIONS and isinstance(keyword.value, ast.Constant) and keyword.value.value in (True, False)
    )


def _are_operands(left: ast.expr, right: ast.expr, is_power: bool, allows_inputs: bool) -> bool:
    if is_power:
        # No power of a power: to the 16th twice is as bad as to the 256th.
        return _is_small(right) and not _has_power(left) and _is_plain_node(left, allows_inputs)
    return _is_plain_node(left, allows_inputs) and _is_plain_node(right, allows_inputs)


def _is_small(exponent: ast.expr) -> bool:
    match exponent:
        case ast.Constant(value=int() as value):
            return value <= _MAX_POWER
        case ast.UnaryOp(op=ast.USub(), operand=inner) | ast.Call(func=ast.Name(id="Integer"), args=[inner]):
            return _is_small(inner)
    return False


def _has_power(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Pow) or (isinstance(part, ast.Name) and part.id in _POWERS) for part in ast.walk(node)
    )


def _is_plain_name(name: str) -> bool:
    """Return whether a name is a symbol as torch makes them: letters, digits, no leading underscore."""
    return name.isascii() and name.isidentifier() and not name.startswith("_")


def _is_size_of_input(node: ast.expr) -> bool:
    """Match `L['x'].size()[0]` and `L['x'][1]['k'].size()[0]`: sizes of inputs, by constant keys only."""
    match node:
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return _is_key(key) and _is_size_of_input(inner)
        case ast.Call(func=ast.Attribute(attr=method, value=inner), args=[], keywords=[]):
            return method in _SIZE_METHODS and _is_input(inner)
    return _is_input(node)


def _is_input(node: ast.expr) -> bool:
    match node:
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return _is_key(key) and _is_input(inner)
    return isinstance(node, ast.Name) and node.id == "L"


def _is_key(key: object) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and _is_plain_name(key))
