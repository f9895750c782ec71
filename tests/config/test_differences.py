import pytest

from qtool.config.differences import differences


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ["a.c: 3, was 2"]),
        ({"a": [1, 2]}, {"a": [2]}, ["a: [2], was [1, 2]"]),
        ({"a": None}, {"a": {"b": "x"}}, ['a: {"b": "x"}, was null']),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, ["a: null, was 1", "b: 3, was 2", "c: 4, was null"]),
        ({"a": None}, {}, []),
    ],
)
def test_each_key_that_differs_is_named_with_both_values(old, new, expected):
    assert differences(old, new) == expected
