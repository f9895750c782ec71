"""Compares a text with the one stored beside the tests; `pytest --regen` stores it anew, to be reviewed as a diff."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / name
    if request.config.getoption("--regen", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs: review, then run pytest with --regen"
