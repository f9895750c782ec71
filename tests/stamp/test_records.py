from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import pytest

from qtool.errors import RangeError
from qtool.stamp.records import build


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    low: int
    high: int = 9

    def __post_init__(self):
        if self.low > self.high:
            msg = f"{self.low} is above {self.high}"
            raise RangeError(msg)


@dataclass(frozen=True)
class Outer:
    inner: Inner
    many: tuple[Inner, ...] = ()
    maybe: Inner | None = None


def built(kind, value):
    problems: list[str] = []
    return build(kind, value, problems, "x"), problems


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, 5, 5),
        (float, 5, 5.0),
        (float, 0.5, 0.5),
        (str, "é", "é"),
        (bool, True, True),
        (Colour, "red", Colour.RED),
        (Literal["a", "b"], "b", "b"),
        (int | str, 5, 5),
        (int | str, "5", "5"),
        (int | None, None, None),
        (Colour | None, "blue", Colour.BLUE),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int | str, ...], ["n", 2], ("n", 2)),
        (dict[str, Any], {"a": [1]}, {"a": [1]}),
        (Inner, {"low": 1}, Inner(1, 9)),
        (Outer, {"inner": {"low": 1}, "many": [{"low": 2, "high": 3}]}, Outer(Inner(1), (Inner(2, 3),))),
    ],
)
def test_what_fits(kind, value, expected):
    found, problems = built(kind, value)
    assert (found, type(found), problems) == (expected, type(expected), [])


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (int, "5", "x: '5' is not an integer"),
        (int, 5.0, "x: 5.0 is not an integer"),
        (int, True, "x: true is not an integer"),
        (int, None, "x: null is not an integer"),
        (float, "5", "x: '5' is not a number"),
        (float, False, "x: false is not a number"),
        (float, 10**400, f"x: {'1' + '0' * 59}... is not a number"),
        (str, 5, "x: 5 is not text"),
        (str, "\ud800", r"x: '\ud800' is not text"),
        (bool, 1, "x: 1 is not true or false"),
        (Colour, "green", "x: 'green' is not one of 'red', 'blue'"),
        (Colour, ["red"], "x: a list is not one of 'red', 'blue'"),
        (Literal[1], True, "x: true is not one of 1"),
        (int | None, "5", "x: '5' is not an integer"),
        (tuple[int, ...], {"a": 1}, "x: an object is not a list"),
        (tuple[int, ...], [1, None], "x.1: null is not an integer"),
        (dict[str, Any], [], "x: a list is not an object"),
        (Inner, [], "x: a list is not an object"),
        (Inner, {}, "x.low: missing"),
        (Inner, {"low": 1, "lwo": 2}, "x.lwo: unknown key"),
        (Inner, {"low": 10}, "x: 10 is above 9"),
        (Outer, {"inner": {"low": 1}, "many": [{"low": "1"}]}, "x.many.0.low: '1' is not an integer"),
        (Outer, {"inner": {"low": 1}, "maybe": {"low": 10}}, "x.maybe: 10 is above 9"),
    ],
)
def test_what_does_not_fit_is_told_where(kind, value, problem):
    assert built(kind, value)[1] == [problem]


def test_all_problems_are_told_at_once():
    problems = built(Outer, {"inner": {"low": "a", "high": "b"}, "many": 5, "c": 1})[1]
    assert problems == [
        "x.c: unknown key",
        "x.inner.low: 'a' is not an integer",
        "x.inner.high: 'b' is not an integer",
        "x.many: 5 is not a list",
    ]


@pytest.mark.parametrize("kind", [set, dict[str, int], bytes])
def test_an_annotation_that_is_not_read_is_our_own_mistake(kind):
    with pytest.raises(AssertionError, match="not an annotation"):
        built(kind, {})
