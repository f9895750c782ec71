from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.config.load import load_config, parse_config
from qtool.config.source import parse_yaml
from qtool.config.yaml_text import leaves, scalar, yaml_text

HERE = Path(__file__).parent
CONFIGS = sorted([*(HERE / "good").glob("*.yaml"), *(HERE.parents[1] / "configs").glob("*.yaml")])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.sampled_from(
    ["null", "~", "true", "off", "0123", "1e-4", ".5", ".inf", "<<", "-", "---", "...", "a:", "a: b"]
)
TREES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | WORDS,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(TEXT | WORDS, items, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXT | WORDS, TREES, min_size=1, max_size=4), st.booleans())
def test_what_is_written_reads_back_as_the_same(tree, with_origin):
    text = yaml_text(tree, (lambda _: "c.yaml:1:1") if with_origin else None)
    document = parse_yaml(text, "c.yaml")
    assert document.problems == ()
    assert json.dumps(document.tree) == json.dumps(tree)  # 1 is not 1.0, True is not 1


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_settled_config_is_a_config_of_the_same_meaning(path):
    config = load_config(path)
    text = yaml_text(config.model_dump(mode="json"))
    assert parse_config(text.encode(), name="c.yaml", base=path.parent).digest() == config.digest()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("torchvision.models:resnet18", "torchvision.models:resnet18"),
        ("package:foolbox/data", "package:foolbox/data"),
        ("12", '"12"'),
        ("null", '"null"'),
        ("*.jpg", '"*.jpg"'),
        ("a\tb\n\u2028\U0001f600\ud7ff\x7f", '"a\\tb\\n\\u2028\U0001f600\\ud7ff\\x7f"'),
        ([], "[]"),
        ({}, "{}"),
    ],
)
def test_scalar(value, text):
    assert scalar(value) == text


def test_layout():
    tree = {"a": {"b": [1, 2], "c": []}, "d": [{"e": 1, "f": [[3], 4]}, [5]]}
    assert yaml_text(tree).splitlines() == [
        "a:",
        "  b: [1, 2]",
        "  c: []",
        "d:",
        "  - e: 1",
        "    f:",
        "      - [3]",
        "      - 4",
        "  - [5]",
    ]


def test_leaves_are_all_that_has_an_origin():
    tree = {"a": {"b": [1, 2], "c": []}, "d": None}
    seen = []
    yaml_text(tree, lambda path: seen.append(path) or "x")
    assert seen == [("a", "b", 0), ("a", "b", 1), ("a", "c"), ("d",)]
    assert [path for path, _ in leaves(tree)] == seen
