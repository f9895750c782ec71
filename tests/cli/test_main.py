"""The frame of every command: exit statuses, messages, help, and what happens to errors of each kind."""

import subprocess
import sys
from importlib import import_module

import pytest
from click.testing import CliRunner

from qtool._version import __version__
from qtool.cli.main import COMMANDS, cli, run
from qtool.cli.messages import harmless
from tests.cli import toy
from tests.cli.process import QTOOL, call, environment

EXITED = (
    "qtool toy: code that the command ran (the model's, the data's or an import's) called sys.exit(0); "
    "nothing was written\n"
)


@pytest.fixture
def toy_command(monkeypatch, tmp_path):
    """The toy among the commands, as a function from its options to an exit status."""
    monkeypatch.setitem(COMMANDS, "toy", "Copy a file.")
    monkeypatch.setitem(sys.modules, "qtool.cli.toy", sys.modules.get("qtool.cli.toy"))
    toy.register()
    (tmp_path / "in").write_bytes(b"x")
    return lambda *options: run([*options[:0], "toy", str(tmp_path / "in"), "-o", str(tmp_path / "out"), *options])


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        ("config", 2, "c.yaml:1:1: a: wrong\nc.yaml:2:1: b: wrong\n"),
        ("usage", 2, "qtool toy: the option is wrong\n"),
        ("data", 3, "qtool toy: the picture does not decode\n"),
        ("format", 3, "qtool toy: the file is damaged\n"),
        ("uncalibrated", 3, "qtool toy: 3 of 7 observers saw no data\n"),
        ("engine", 4, "qtool toy: no engine 'fbgemm'\n"),
        ("interrupt", 130, "qtool toy: interrupted; nothing was written\n"),
        ("disk", 2, "qtool toy: No space left on device; make room and run it again\n"),
        ("escape", 2, "qtool toy: layer '\\x1b[2J\\x9b' is odd\n"),
        ("exit", 3, EXITED),
    ],
)
def test_each_kind_of_error_has_its_status_and_no_traceback(toy_command, capsys, error, status, message):
    assert toy_command("--fail", error) == status
    captured = capsys.readouterr()
    assert captured.err == f"work begins\n{message}"
    assert captured.out == ""


@pytest.mark.parametrize(("error", "name"), [("bug", "TypeError: an inner part broke"), ("memory", "MemoryError")])
def test_a_fault_of_ours_says_so_and_asks_for_a_report(toy_command, capsys, tmp_path, error, name):
    assert toy_command("--fail", error) == 70
    message = capsys.readouterr().err
    assert f"qtool toy: internal error: {name}" in message
    assert "second line" not in message
    assert f"This is a fault in qtool {__version__}" in message
    assert f"qtool --traceback toy {tmp_path}/in -o {tmp_path}/out --fail {error}\n" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(("error", "status"), [("bug", 70), ("data", 3), ("interrupt", 130)])
def test_traceback_on_request(toy_command, capsys, error, status):
    assert toy_command("--fail", error, "--traceback") == status
    message = capsys.readouterr().err
    assert "Traceback (most recent call last):" in message
    assert "raise ERRORS[fail]" in message


def test_traceback_before_the_command(toy_command, capsys, tmp_path):
    status = run(["--traceback", "toy", str(tmp_path / "in"), "-o", str(tmp_path / "out"), "--fail", "data"])
    assert status == 3
    assert "Traceback" in capsys.readouterr().err


def test_stdout_is_given_back(toy_command):
    before = sys.stdout
    toy_command("--fail", "bug")
    assert sys.stdout is before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspct"], "there is no command 'inspct'; did you mean 'inspect'?"),
        (["zzz"], "there is no command 'zzz'"),
        (["--vers"], "No such option"),
        (["inspect"], "Missing argument 'FILE'"),
        (["convert", "x.pt2", "--bakend", "fbgemm"], "No such option"),
        (["inspect", "x.pt2", "--isa", "vni"], "'vni' is not one of 'any', 'vnni', 'no-vnni'"),
        (["prepare", "c.yaml", "--seed", "-1"], "-1 is not in the range"),
    ],
)
def test_usage_errors_are_exit_2(arguments, message):
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert run(arguments) == 2


def test_help_lists_every_command_in_the_order_of_work():
    result = CliRunner().invoke(cli, ["-h"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line[2:3].strip()]
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert "--traceback" in result.stdout
    assert import_module(f"qtool.cli.{name}").command.name == name


def test_no_command_shows_the_help():
    result = call([])
    assert (result.returncode, result.stdout) == (2, b"")
    assert "Commands:" in result.stderr


def test_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"qtool {__version__}\n"


def test_completion_of_a_command_name():
    script = environment(_QTOOL_COMPLETE="bash_complete", COMP_WORDS="qtool insp", COMP_CWORD="1")
    result = subprocess.run(QTOOL, env=script, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "plain,inspect\n")


def test_harmless_keeps_readable_text():
    assert harmless("Größe │\n  ok\n") == "Größe │\n  ok\n"
    assert harmless("\r\x00\x7f") == "\\r\\x00\\x7f"
