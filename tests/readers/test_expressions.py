import pytest

from qtool.readers.expressions import is_plain_expression, is_plain_guard

# As torch 2.14 writes them.
PLAIN = [
    "Symbol('s77', positive=True, integer=True)",
    "Symbol('zuf0')",
    "Mul(Integer(2), Symbol('s77', positive=True, integer=True))",
    "Add(Symbol('s0', integer=True), Integer(-1))",
    "FloorDiv(Add(Symbol('s0', integer=True), Integer(-1)), Integer(2))",
    "Pow(Symbol('s0', integer=True), Integer(2))",
    "Max(Integer(1), Mod(Symbol('u0', integer=True), Integer(8)))",
    "2*s77 + (s0 - 1)//2",
    "s0**2",
    "Ne(s0, 1) ",
    "s0 >= 2 and s0 < 64",
]
CODE = [
    "__import__('os').system('id')",
    "().__class__.__mro__[1].__subclasses__()",
    "s0.func",
    "getattr(s0, 'x')",
    "eval('1')",
    "exec('1')",
    "open('/etc/passwd')",
    "lambda: 1",
    "[s0 for s0 in (1,)]",
    "(s0 := 1)",
    "f'{s0}'",
    "'a' * 9",
    "Symbol('os.system')",
    "Symbol('__import__')",
    "Symbol('s0', positive=print())",
    "Symbol('s0', commutative=True)",
    "Symbol(*['s0'])",
    "Integer('1')",
    "_private",
    "__builtins__",
    "9**9**9",
    "9**99",
    "(2**16)**16",
    "Pow(Pow(s0, Integer(16)), Integer(16))",
    "Pow(2, s0)",
    "2 if s0 else 3",
    "s0 in s1",
    "s0 if True else s1",
    "s0 @ s1",
    "1; 2",
    "1\n2",
    "",
    "(" * 500,
    "-" * 4000 + "1",
    "1+" * 3000 + "1",
]
GUARDS = [
    "L['x'].size()[0] % 2 == 0",
    "L['x'].size()[0] >= 2",
    "L['args'][0]['k'].size()[1] == 3",
    "L['x'].stride()[0] == 12*L['x'].size()[1]",
    "Eq(Mod(L['x'].size()[0], 2), 0)",
    "not L['flag']",
]
GUARDS_WITH_CODE = [
    "L['x'].__class__",
    "L['x'].tolist()",
    "L['x'].size(print())[0]",
    "L['x\"); import os; (\"'].size()[0] == 1",
    "L[print()].size()",
    "M['x'].size()[0] == 1",
    "L['x'].size().__class__",
    "L['x'].size()[s0:1]",
]


@pytest.mark.parametrize("text", PLAIN)
def test_arithmetic_is_plain(text):
    assert is_plain_expression(text)
    assert is_plain_guard(text)


@pytest.mark.parametrize("text", CODE)
def test_code_is_not(text):
    assert not is_plain_expression(text)
    assert not is_plain_guard(text)


@pytest.mark.parametrize("text", GUARDS)
def test_guards_may_ask_for_sizes_of_inputs_and_expressions_may_not(text):
    assert is_plain_guard(text)
    assert not is_plain_expression(text)


@pytest.mark.parametrize("text", GUARDS_WITH_CODE)
def test_guards_with_code_are_not_plain(text):
    assert not is_plain_guard(text)
