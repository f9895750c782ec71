import warnings

import pytest

from qtool.cli.messages import warnings_said
from qtool.errors import QtoolWarning


def test_warnings_of_ours_are_said_and_others_left_alone(capsys):
    with warnings_said():
        for _ in range(2):
            warnings.warn("ranges differ\x1b[2J", QtoolWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: ranges differ\\x1b[2J\n" * 2
    with warnings_said(), pytest.raises(DeprecationWarning, match="other"):
        warnings.warn("other", DeprecationWarning, stacklevel=1)
