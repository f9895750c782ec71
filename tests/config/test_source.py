from __future__ import annotations

import json
import math
import re
import string
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from yaml.reader import Reader

from qtool.config.document import INT_LIMITS, MAX_DEPTH, Mark, Marks, fault_of
from qtool.config.load import parse_config
from qtool.config.source import MAX_VALUES, mark_of_position, parse_yaml, resolve_plain
from qtool.errors import ConfigError

# A newline inside quotes folds, and what cannot be printed is not YAML: the emitter below escapes all of these.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(*INT_LIMITS),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))
GAPS = st.sampled_from(["", " ", "  ", "\n", "\n   ", " # a comment\n", "\r\n", "\r", "\n\n  "])


class Emitter:
    """Writes a tree as flow YAML with gaps drawn at random, and notes where each key and value begins."""

    def __init__(self, draw):
        self.draw = draw
        self.text = ""
        self.marks = {}

    def here(self):
        lines = self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return Mark(len(lines), len(lines[-1]) + 1)

    def gap(self):
        self.text += self.draw(GAPS)

    def value(self, tree, path=(), key=None):
        self.gap()
        self.marks[path] = Marks(key, self.here())
        if isinstance(tree, dict):
            self.items("{}", tree.items(), path)
        elif isinstance(tree, list):
            self.items("[]", enumerate(tree), path)
        else:
            self.text += quoted(tree) if isinstance(tree, str) else plain(tree)

    def items(self, brackets, items, path):
        self.text += brackets[0]
        for index, item in items:
            self.gap()
            key = None
            if brackets == "{}":
                key = self.here()
                self.text += quoted(index) + ": "
            self.value(item, (*path, index), key)
            self.gap()
            self.text += " ,"
        self.text += brackets[1]


def quoted(text):
    safe = set(string.ascii_letters + string.digits + string.punctuation + " äß€ж") - set('"\\')
    return '"' + "".join(c if c in safe else f"\\U{ord(c):08x}" for c in text) + '"'


def plain(value):
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)


@settings(max_examples=100)
@given(st.data(), TREES)
def test_any_tree_comes_back_with_the_place_of_every_key_and_value(data, tree):
    emitter = Emitter(data.draw)
    emitter.value(tree)
    document = parse_yaml(emitter.text, "c.yaml")
    assert document.problems == ()
    assert document.tree == tree
    assert json.dumps(document.tree) == json.dumps(tree)  # 1 is not 1.0 is not true
    assert document.marks == emitter.marks


@settings(max_examples=100)
@given(st.text(max_size=60))
@example("\ufeff")
@example("%YAML 1.1\n---\n")
@example("? [a\n: b")
@example("- !<!> a")
@example('"\\xd')
@example('"\\UFFFFFFFF"')
@example("&a [*a]")
@example("a: 'x\n...\n")
def test_any_text_is_a_document_or_a_config_error(text):
    assert outcome(parse_yaml, text, "c.yaml")


YAML_PIECES = [
    *("version: 1\n", "target:", "backend", "fbgemm", "kind: photos", "data:", "calibrate:", "quantize: ", "match: "),
    *(
        ": ",
        ", ",
        "\n",
        "  ",
        "- ",
        "&a ",
        "*a",
        "? ",
        " {",
        "---\n",
        "...\n",
        "1e999",
        *"}[]<|>'\"#!%@\t\\~\x85\xff\ufeffé",
    ),
]


@settings(max_examples=100)
@given(st.lists(st.sampled_from(YAML_PIECES), max_size=25), st.sampled_from(["utf-8", "latin-1", "utf-16"]))
def test_any_bytes_are_a_config_or_a_config_error(pieces, encoding):
    content = "".join(pieces).encode(encoding, errors="replace")
    assert outcome(parse_config, content, name="c.yaml", base=Path())


def outcome(function, *args, **kwargs):
    """Return what a reader gives, or the problems it raises, each with a place; any other exception is a failure."""
    try:
        return function(*args, **kwargs)
    except ConfigError as error:
        return [problem for problem in error.problems if re.match(r"c\.yaml:\d+:\d+: .", problem)]


@given(st.integers(*INT_LIMITS))
def test_integers_are_integers(number):
    assert resolve_plain(str(number)) == number
    assert type(resolve_plain(str(number))) is int


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_numbers(number):
    for text in (repr(number), f"{number:e}", f"{number:E}", f"{number:.17g}"):
        value = resolve_plain(text)
        assert type(value) in (float, int)
        assert math.isclose(value, float(text), rel_tol=0, abs_tol=0)


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "no", "on", "off", "y", "n", "Yes", "OFF", "tRUE", "nULL", "~~", "<<", "=", "inf", "nan", "Infinity"),
        *("12:30", "190:20:30", "2026-01-01", "2026-01-01 12:00:00", "2026-01-01T12:00:00Z", "1.2.3", "1 2", "1,5"),
        *("0123", "-017", "0o17", "0x1F", "0b11", "1_000", "00", "00.5", "1f", "1e", "e5", "1e5.0", "--1", "+-1"),
        *(".", "-", "+", "-.", "١٢", "1e٣"),
    ],
)
def test_everything_else_is_text(text):
    assert resolve_plain(text) == text
    assert fault_of(resolve_plain(text)) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1E5", 1e5), ("-2e+3", -2e3), (".5", 0.5), ("5.", 5.0), ("+1.5", 1.5), ("0.0", 0.0), ("-0", 0),
     ("+7", 7), ("", None), ("~", None), ("Null", None), ("True", True), ("FALSE", False)],
)  # fmt: skip
def test_what_is_not_text(text, value):
    assert resolve_plain(text) == value
    assert type(resolve_plain(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e999", "-1e400", str(1 << 63), str(-(1 << 63) - 1), "9" * 10_000],
)
def test_numbers_out_of_range_are_faults(text):
    document = parse_yaml(f"a: [{text}]", "c.yaml")
    assert document.tree == {"a": [None]}
    assert [problem.path for problem in document.problems] == [("a", 0)]


def test_keys_keep_their_spelling():
    assert parse_yaml("no: off\noff: no\non: 1e-4\ny: ~", "c.yaml").tree == {
        "no": "off",
        "off": "no",
        "on": 1e-4,
        "y": None,
    }


def test_the_first_of_two_equal_keys_counts_and_the_second_is_located():
    document = parse_yaml("a: 1\nb:\n  c: 2\n  'c': 3\na: 4\n", "c.yaml")
    assert document.tree == {"a": 1, "b": {"c": 2}}
    assert [(p.path, p.mark) for p in document.problems] == [(("b", "c"), Mark(4, 3)), (("a",), Mark(5, 1))]


def test_an_alias_is_the_value_of_its_anchor():
    document = parse_yaml("a: &x {k: [1, 2]}\nb: *x\n", "c.yaml")
    assert document.tree == {"a": {"k": [1, 2]}, "b": {"k": [1, 2]}}
    assert document.locate(("b", "k", 1)) == "c.yaml:1:15"
    assert document.mark(("b",), at_key=True) == Mark(2, 1)


@pytest.mark.parametrize("num_values", [MAX_VALUES - 3, MAX_VALUES - 2])
def test_the_number_of_values_is_bounded(num_values):
    # The mapping, the key and the list are three more.
    text = f"a: [{','.join(['x'] * num_values)}]"
    if num_values + 3 <= MAX_VALUES:
        assert len(parse_yaml(text, "c.yaml").tree["a"]) == num_values
    else:
        with pytest.raises(ConfigError, match=f"c.yaml:1:{len(text) - 1}: .*more than {MAX_VALUES}"):
            parse_yaml(text, "c.yaml")


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_the_depth_is_bounded(depth):
    text = "[" * depth + "1" + "]" * depth
    if depth <= MAX_DEPTH:
        assert parse_yaml(text, "c.yaml").value((0,) * depth) == 1
    else:
        with pytest.raises(ConfigError, match=f"c.yaml:1:{depth + 1}: .*deep"):
            parse_yaml(text, "c.yaml")


@given(st.text("a\n\r\x85\u2028", max_size=20), st.data())
def test_positions_have_the_marks_of_the_yaml_reader(text, data):
    position = data.draw(st.integers(0, len(text)))
    assume(text[position - 1 : position + 1] != "\r\n")  # nothing begins inside a line end
    reader = Reader(text)
    reader.forward(position)
    assert mark_of_position(text, position) == Mark(reader.line + 1, reader.column + 1)
