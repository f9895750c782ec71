"""A command without torch that misbehaves on request, run through the real frame: `python -m tests.cli.toy ...`.

It shows in a tenth of a second what the frame does with output, signals and errors of any command.
"""

import atexit
import ctypes
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import click

from qtool.cli.main import COMMANDS, main
from qtool.cli.messages import say
from qtool.cli.options import file_argument, output_option, traceback_option
from qtool.cli.streams import check_output, claimed_stdout, read_input, write_output
from qtool.errors import (
    ConfigError,
    DataError,
    FileFormatError,
    MissingEngineError,
    UncalibratedError,
    UsageError,
)

ERRORS = {
    "config": ConfigError(["c.yaml:1:1: a: wrong", "c.yaml:2:1: b: wrong"]),
    "usage": UsageError("the option is wrong"),
    "data": DataError("the picture does not decode"),
    "format": FileFormatError("the file is damaged"),
    "uncalibrated": UncalibratedError("3 of 7 observers saw no data", ["a"]),
    "engine": MissingEngineError("no engine 'fbgemm'"),
    "bug": TypeError("an inner part broke\nsecond line"),
    "memory": MemoryError(),
    "disk": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "socket": BrokenPipeError(errno.EPIPE, "the data server went away"),
    "exit": SystemExit(0),
    "interrupt": KeyboardInterrupt(),
    "escape": UsageError("layer '\x1b[2J\x9b' is odd"),
}


@click.command()
@file_argument
@output_option(required=True)
@click.option("--fail", type=click.Choice(list(ERRORS)))
@click.option("--noise", is_flag=True, help="Write to stdout in every way that user code could.")
@click.option("--swallow", type=click.Choice(["fail", "go-on"]), help="As --sleep, and swallow the signal.")
@click.option("--sleep", is_flag=True, help="Say that work began, then wait for a signal.")
@click.option("--findings", is_flag=True)
@traceback_option
def command(
    file: str, output: str, fail: str | None, noise: bool, sleep: bool, swallow: str | None, findings: bool
) -> int:
    """Copy FILE."""
    check_output(output)
    source = read_input(file)
    say("work begins")
    with claimed_stdout() as stdout:
        if noise:
            make_noise()
        if sleep:
            time.sleep(30)
        if swallow:
            swallow_a_signal(fail_after=swallow == "fail")
        if fail is not None:
            raise ERRORS[fail]
        write_output(output, source if isinstance(source, bytes) else Path(source).read_bytes(), stdout)
    return 1 if findings else 0


def swallow_a_signal(*, fail_after: bool) -> None:
    """Do as numpy and torch do when a signal comes while they are imported."""
    try:
        time.sleep(30)
    except BaseException:
        if fail_after:
            message = "module 'numpy' has no attribute 'logical_and'"
            raise AttributeError(message) from None


def make_noise() -> None:
    print("noise: print")  # noqa: T201 (what user code does)
    print("noise: never flushed", end="")  # noqa: T201
    os.write(1, b"noise: descriptor\n")
    sys.__stdout__.write("noise: the first sys.stdout\n")
    ctypes.CDLL(None).printf(b"noise: C, buffered\n")
    subprocess.run(["/bin/echo", "noise: child"], check=True)
    atexit.register(print, "noise: at exit")


def register() -> None:
    module = ModuleType("qtool.cli.toy")
    module.command = command
    sys.modules["qtool.cli.toy"] = module
    COMMANDS["toy"] = "Copy a file."


if __name__ == "__main__":
    register()
    sys.exit(main())
