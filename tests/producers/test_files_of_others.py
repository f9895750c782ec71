"""Files that are on this machine already, made by others: each gives a report or a clear error, and none a traceback.

Debian's package libonnx-testdata has a thousand small ONNX models; real checkpoints lie in the packages installed here.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from qtool.errors import FileFormatError
from qtool.inspection.inspect import inspect_file
from qtool.readers.facts import FileKind
from qtool.report.json_report import to_json
from qtool.report.text import render_text

DEBIAN = Path("/usr/lib/python3/dist-packages/onnx/backend/test/data")
PACKAGES = Path(sysconfig.get_path("purelib"))
SUFFIXES = ("*.onnx", "*.pt", "*.pth", "*.pt2", "*.ptl", "*.pte", "*.safetensors", "*.jit")


def told(path: Path) -> FileKind | None:
    """Return what a file is said to be, or None if it is refused with words."""
    try:
        report = inspect_file(path)
    except FileFormatError:
        return None
    assert to_json(report)
    assert all(line.isprintable() for line in render_text(report, verbose=True).split("\n"))
    return report.kind


def check_debian(models: list[Path]) -> None:
    refused = [path for path in models if told(path) is not FileKind.ONNX]
    assert refused == []


def test_some_of_debians_models_are_read_where_they_are_installed():
    check_debian(sorted(DEBIAN.rglob("model.onnx"))[::40])


@pytest.mark.slow
def test_all_of_debians_models_are_read_where_they_are_installed():
    check_debian(sorted(DEBIAN.rglob("*.onnx")))


@pytest.mark.slow
def test_what_lies_in_installed_packages_is_read():
    # A .pth in the folder itself is a line of Python's own search path.
    files = [path for suffix in SUFFIXES for path in PACKAGES.rglob(suffix) if path.parent != PACKAGES]
    assert [path for path in files if told(path) is None] == []
