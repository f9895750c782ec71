import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from qtool.errors import QtoolWarning
from qtool.numerics.kernels import compiled
from qtool.numerics.kernels.compiled import built, is_private

C = "int {name}(int x) {{ return x + {add}; }}\n"


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "small.c"
    file.write_text(C.format(name="add", add=1))
    return file


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def fresh(monkeypatch):
    """Have this process begin anew."""
    compiled._library.cache_clear()
    monkeypatch.setattr(compiled, "_said", [])
    yield
    compiled._library.cache_clear()


def test_compiled_once_and_kept(source, folder, monkeypatch):
    assert built(source, folder).add(1) == 2
    (kept,) = folder.iterdir()
    monkeypatch.setattr(compiled, "_compile", lambda *_: pytest.fail("compiled again"))
    assert built(source, folder).add(2) == 3
    assert list(folder.iterdir()) == [kept]


def test_another_source_flag_compiler_or_cpu_is_another_library(source, folder, monkeypatch):
    built(source, folder)
    source.write_text(C.format(name="add", add=2))
    assert built(source, folder).add(1) == 3
    monkeypatch.setattr(compiled, "FLAGS", (*compiled.FLAGS, "-DOTHER"))
    built(source, folder)
    monkeypatch.setattr(compiled, "_cpu", lambda: "another")
    built(source, folder)
    assert len(list(folder.iterdir())) == 4


ADD_ONE = """
import sys
from pathlib import Path
from qtool.numerics.kernels.compiled import built
print(built(*map(Path, sys.argv[1:])).add(1))
"""


def in_another_process(source, folder):
    command = [sys.executable, "-c", ADD_ONE, str(source), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_damaged_file_is_compiled_again(source, folder):
    assert in_another_process(source, folder) == "2\n"
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\0" + whole[1:]):
        kept.write_bytes(damaged)
        assert in_another_process(source, folder) == "2\n"
        assert list(folder.iterdir()) == [kept]
        assert kept.read_bytes() == whole


def test_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch, source):
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    assert is_private(mine)
    mine.chmod(0o770)
    assert not is_private(mine)
    mine.chmod(0o700)
    tmp_path.chmod(0o777)
    assert not is_private(mine)
    tmp_path.chmod(0o1777)  # the owner alone renames
    assert is_private(mine)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not is_private(mine)
    assert built(source, None).add(1) == 2


def test_the_cache_folder_is_made_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = compiled._cache_folder()
    assert folder == tmp_path / "qtool" / "native"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (tmp_path / "qtool" / "native").rmdir()
    (tmp_path / "qtool" / "native").symlink_to("/tmp")
    assert compiled._cache_folder() is None


def test_without_a_compiler_one_notice_and_no_library(fresh, monkeypatch):
    monkeypatch.setattr(compiled.shutil, "which", lambda _: None)
    with pytest.warns(QtoolWarning, match="none of cc, gcc, clang is installed.*QTOOL_NATIVE=0"):
        assert compiled.library("quantize.c") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled.library("other.c") is None


def test_a_compiler_that_fails_is_quoted(fresh, monkeypatch, folder):
    monkeypatch.setattr(compiled, "FLAGS", ("-fnonsense",))
    monkeypatch.setattr(compiled, "_cache_folder", lambda: folder)
    with pytest.warns(QtoolWarning, match="unrecognized command-line option"):
        assert compiled.library("quantize.c") is None
    assert list(folder.iterdir()) == []


def test_not_wanted_is_no_news(fresh, monkeypatch):
    monkeypatch.setenv("QTOOL_NATIVE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled.library("quantize.c") is None


def test_the_source_is_part_of_the_package():
    assert "numerics/kernels/*.c" in (Path(__file__).parents[3] / "pyproject.toml").read_text()
