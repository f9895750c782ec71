import pytest

from qtool.errors import UsageError
from qtool.inspection.codes import CODES
from qtool.inspection.explain import explained


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_code_is_explained_without_markdown(code):
    text = explained(code.name.lower())
    lines = text.splitlines()
    assert lines[:3] == [f"{code.name}: {code.title}", "", code.severity.value]
    assert all(word in text for word in ("\nCause. ", "\nExample. ", "\nRemedy. "))
    assert not {"**", "](", "###", "\n##"} & {text[i : i + n] for n in (2, 3) for i in range(len(text))}


def test_a_code_that_is_not_known():
    with pytest.raises(UsageError, match=r"finding 'QT999' is not known.*Codes run from QT101 to QT413"):
        explained("QT999")
