"""Files appear whole or not at all, whatever ends the writing."""

import os

import pytest

from qtool.errors import UsageError
from qtool.workflows import atomic_file
from qtool.workflows.atomic_file import check_writable, write_atomically, write_together


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_new_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "x").read_bytes() == b"new"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
    assert names_in(tmp_path) == ["x"]


def test_an_old_file_keeps_its_permissions(tmp_path):
    (tmp_path / "x").write_bytes(b"old and longer")
    (tmp_path / "x").chmod(0o604)
    write_atomically(tmp_path / "x", memoryview(b"new"))
    assert (tmp_path / "x").read_bytes() == b"new"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o604


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    check_writable(tmp_path / "link")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x").read_bytes() == b"new"


def test_checking_changes_nothing(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    before = (tmp_path / "x").stat()
    check_writable(tmp_path / "x")
    check_writable(tmp_path / "y")
    assert names_in(tmp_path) == ["x"]
    assert (tmp_path / "x").stat() == before


def test_the_longest_name_a_folder_takes(tmp_path):
    name = tmp_path / ("n" * 255)
    check_writable(name)
    write_atomically(name, b"new")
    assert name.read_bytes() == b"new"


@pytest.mark.parametrize("step", ["fsync", "fchmod"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_whatever_ends_the_writing_nothing_is_left(tmp_path, monkeypatch, step, error):
    (tmp_path / "x").write_bytes(b"old")

    def fail(*_arguments):
        raise error

    monkeypatch.setattr(atomic_file.os, step, fail)
    expected = UsageError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_atomically(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert names_in(tmp_path) == ["x"]


def test_a_read_only_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(atomic_file.os, "access", lambda _path, _mode: False)  # tests may run as root
    with pytest.raises(UsageError, match="it is read-only; name another file"):
        check_writable(tmp_path / "x")


def test_a_folder_that_takes_no_file(tmp_path, monkeypatch):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic_file.os, "open", refuse)
    with pytest.raises(UsageError, match=r"cannot write '.*x': Permission denied"):
        check_writable(tmp_path / "x")


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    # Devices are treated the same; a test on /dev/null, run as root, could replace it.
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_of_several_files_none_is_there_if_one_fails(tmp_path):
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        write_together({tmp_path / "a": b"1", tmp_path / "missing" / "c": b"2"})
    assert names_in(tmp_path) == ["b"]


def test_several_files_appear_together(tmp_path):
    write_together({tmp_path / "a": b"1", tmp_path / "b": memoryview(b"2")})
    assert names_in(tmp_path) == ["a", "b"]
