import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.report.untrusted import printable, shortened


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Co"])))
def test_whatever_comes_in_nothing_but_printed_characters_comes_out(text):
    assert printable(text).isprintable()
    assert shortened(text, 9).isprintable()
    assert len(shortened(text, 9)) <= 9


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_printed_characters_stay(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc", r"a\nb\tc"),
        ("a\u202eb", r"a\u202eb"),
        ("a\x9bb", r"a\x9bb"),
        ("a\u2028b", r"a\u2028b"),
        ("a\x7fb", r"a\x7fb"),
        ("層/λ [bold]", "層/λ [bold]"),
    ],
)
def test_examples(text, expected):
    assert printable(text) == expected
