import re
from pathlib import Path

import pytest

from qtool.inspection import explain
from qtool.inspection.codes import CODES

COPY = Path(__file__).parents[2] / "docs" / "findings.md"
PAGE = explain.PAGE.read_text()
SECTIONS = dict(re.findall(r"^### (QT\d{3}: .*?)\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))


def test_the_page_in_docs_is_a_copy_of_the_packages():
    assert COPY.read_text() == PAGE, f"cp {explain.PAGE} {COPY}"


def test_the_page_has_every_code_and_no_other_in_order():
    assert list(SECTIONS) == [f"{code.name}: {code.title}" for code in CODES]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_each_section_states_severity_cause_example_and_remedy(code):
    text = SECTIONS[f"{code.name}: {code.title}"]
    assert text.startswith(f"\n*{code.severity.value}*\n")
    for part in ("**Cause.**", "**Example.**", "**Remedy.**"):
        assert part in text
