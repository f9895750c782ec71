"""Streams and files of a command, on a toy command in real processes: what leaves on stdout, what is left on disk."""

import os
import resource
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.process import TOY, call, default_signals, names_in, open_terminal, start, wait_for

DATA = bytes(range(256)) * 4096  # 1 MiB, more than a pipe holds


def toy(*arguments, **settings):
    return call(arguments, program=TOY, **settings)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.bin"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


def test_file_to_file(source, folder):
    result = toy(source, "-o", folder / "out.bin")
    assert (result.returncode, result.stdout) == (0, b"")
    assert (folder / "out.bin").read_bytes() == DATA
    assert names_in(folder) == ["out.bin"]


def test_stdin_to_stdout():
    result = toy("-", "-o", "-", input=DATA)
    assert (result.returncode, result.stdout) == (0, DATA)


def test_findings_are_exit_1(source, folder):
    assert toy(source, "-o", folder / "x", "--findings").returncode == 1


def test_a_pipeline_of_three(source, folder):
    first = start([source, "-o", "-"], program=TOY)
    with first, start(["-", "-o", "-"], program=TOY, stdin=first.stdout) as second:
        third = call(["-", "-o", folder / "x"], program=TOY, stdin=second.stdout)
    assert (first.returncode, second.returncode, third.returncode) == (0, 0, 0)
    assert (folder / "x").read_bytes() == DATA


def test_noise_never_reaches_stdout(source):
    result = toy(source, "-o", "-", "--noise")
    assert result.returncode == 0
    assert result.stdout == DATA
    for kind in ("print", "never flushed", "descriptor", "the first sys.stdout", "C, buffered", "child", "at exit"):
        assert f"noise: {kind}" in result.stderr


def test_noise_of_a_command_that_writes_a_file(source, folder):
    result = toy(source, "-o", folder / "x", "--noise")
    assert (result.returncode, result.stdout) == (0, b"")


def test_empty_stdin_blames_the_command_before():
    result = toy("-", "-o", "-", input=b"")
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr.endswith("nothing came in: the command before failed, and its message says why\n")
    assert "work begins" not in result.stderr


def test_stdin_from_a_terminal_is_refused(folder):
    ours, theirs = open_terminal()
    result = toy("-", "-o", folder / "x", stdin=theirs)
    os.close(theirs)
    os.close(ours)
    assert result.returncode == 2
    assert "that is a terminal; pipe something in, or name a file" in result.stderr


def test_closed_stdin(folder):
    result = toy("-", "-o", folder / "x", preexec=lambda: os.close(0))
    assert result.returncode == 2
    assert "'-' reads standard input, but it is closed" in result.stderr


def test_binary_to_a_terminal_is_refused_before_any_work(source):
    ours, theirs = open_terminal()
    result = toy(source, "-o", "-", stdout=theirs)
    os.close(theirs)
    os.close(ours)
    assert result.returncode == 2
    assert "write it to a file (-o FILE), or pipe it into the next command" in result.stderr
    assert "work begins" not in result.stderr


def test_a_closed_pipe_ends_quietly(source):
    process = start([source, "-o", "-"], program=TOY)
    assert process.stdout.read(1) == DATA[:1]
    process.stdout.close()
    assert process.wait(timeout=30) == 141
    assert process.stderr.read() == b"work begins\n"
    process.stderr.close()


def test_help_into_a_closed_pipe_ends_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    result = call(["--help"], stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, "")


def test_another_broken_pipe_is_not_taken_for_stdout(source):
    result = toy(source, "-o", "-", "--fail", "socket")
    assert result.returncode == 70
    assert "the data server went away" in result.stderr


def test_closed_stdout(source):
    result = toy(source, "-o", "-", preexec=lambda: os.close(1))
    assert result.returncode == 2
    assert "standard output is closed" in result.stderr


def test_closed_stderr_does_not_end_up_in_a_file(source, folder):
    result = toy(source, "-o", folder / "x", "--noise", preexec=lambda: os.close(2))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", "")
    assert (folder / "x").read_bytes() == DATA


@pytest.mark.parametrize("arguments", [["--help"], ["toy", "--help"], ["--version"]])
def test_help_to_a_full_disk(arguments):
    with Path("/dev/full").open("wb") as full:
        result = call(arguments, program=TOY[:-1], stdout=full)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "No space left on device" in result.stderr


def test_stdout_on_a_full_disk(source):
    with Path("/dev/full").open("wb") as full:
        result = toy(source, "-o", "-", stdout=full)
    assert result.returncode == 2
    assert result.stderr.endswith("toy: cannot write to standard output: No space left on device\n")


def limit_file_size():
    default_signals()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # the disk is full after 100 kB


def test_a_disk_that_fills_up_leaves_no_partial_file(source, folder):
    result = toy(source, "-o", folder / "x", preexec=limit_file_size)
    assert result.returncode == 2
    assert f"cannot write '{folder / 'x'}': File too large; nothing was left behind" in result.stderr
    assert names_in(folder) == []


def test_a_disk_that_fills_up_leaves_the_old_file(source, folder):
    (folder / "x").write_bytes(b"old")
    assert toy(source, "-o", folder / "x", preexec=limit_file_size).returncode == 2
    assert (folder / "x").read_bytes() == b"old"
    assert names_in(folder) == ["x"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("missing/x", "there is no folder"),
        (".", "it is a folder"),
        ("in.bin/x", "there is no folder"),
        ("/proc/x", "cannot write '/proc/x': "),
    ],
)
def test_unwritable_output_is_found_before_any_work(source, tmp_path, output, reason):
    result = toy(source, "-o", output, cwd=tmp_path)
    assert result.returncode == 2
    assert reason in result.stderr
    assert "work begins" not in result.stderr
    assert names_in(tmp_path) == ["in.bin"]


@pytest.mark.parametrize(
    ("signum", "status", "words"),
    [
        (signal.SIGINT, 130, "interrupted; nothing was written"),
        (signal.SIGTERM, 143, "ended by SIGTERM; nothing was written"),
        (signal.SIGHUP, 129, "ended by SIGHUP; nothing was written"),
    ],
)
@pytest.mark.parametrize("way", ["--sleep", "--swallow=fail", "--swallow=go-on"])
def test_signals_end_the_work(source, folder, signum, status, words, way):
    process = start([source, "-o", folder / "x", way], program=TOY)
    wait_for(process, "work begins")
    time.sleep(0.05)
    process.send_signal(signum)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (status, b"")
    assert err.decode() == f"qtool toy: {words}\n"
    assert names_in(folder) == []


def test_nohup_is_respected(source, folder):
    process = start(
        [source, "-o", folder / "x", "--sleep"],
        program=TOY,
        preexec=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for(process, "work begins")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.1)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143


def test_a_pipe_as_output(source, folder):
    os.mkfifo(folder / "fifo")
    process = start([source, "-o", folder / "fifo"], program=TOY)
    assert (folder / "fifo").read_bytes() == DATA
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert stat.S_ISFIFO((folder / "fifo").stat().st_mode)


def test_process_substitution_as_input(source, folder):
    script = f'"$0" -m tests.cli.toy toy <(cat {source}) -o {folder / "x"}'
    result = call([TOY[0]], program=("bash", "-c", script))
    assert result.returncode == 0
    assert (folder / "x").read_bytes() == DATA


def test_a_missing_file_names_its_neighbour(source, folder):
    result = toy(source.with_name("im.bin"), "-o", folder / "x")
    assert result.returncode == 2
    assert "there is no file" in result.stderr
    assert "did you mean 'in.bin'?" in result.stderr


def test_a_folder_as_input(folder):
    result = toy(folder, "-o", "-")
    assert result.returncode == 2
    assert "is a folder; name a file in it" in result.stderr


def test_text_for_a_stdout_that_lacks_a_character():
    script = "from qtool.cli.streams import claimed_stdout\nwith claimed_stdout() as out: out.write_text('a \\u2502 b')"
    result = call([], program=(TOY[0], "-c", script), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stdout) == (0, b"a ? b\n")


def test_the_exit_status_of_a_shell_pipeline(source):
    script = f'set -o pipefail; "$0" -m tests.cli.toy toy {source} -o - --fail data | "$0" -m tests.cli.toy toy - -o -'
    result = subprocess.run(["bash", "-c", script, TOY[0]], capture_output=True, check=False)
    assert result.returncode == 2
    assert b"the picture does not decode" in result.stderr
    assert b"nothing came in" in result.stderr
