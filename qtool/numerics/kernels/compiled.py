"""C files of this folder as shared libraries: compiled on first use, kept for every later process of the same user.

Whoever can write a library that we load runs code as us. So the cache folder belongs to the user alone, it and all
folders above it, or it is not used; and a file in it ends in the digest of the rest, so that one that was cut short is
compiled again and never mapped.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path
from threading import Lock

from qtool.errors import QtoolWarning

COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fopenmp"),
    "-ffp-contract=off",  # a product and a sum are two roundings, as in ATen
    *("-fno-math-errno", "-fno-trapping-math"),  # no value depends on them; loops with comparisons become vectors
)
SWITCH = "QTOOL_NATIVE"
TIME_LIMIT_SECONDS = 120
NO_FOLDER = (
    "the kernels for training are compiled anew in every process, some seconds: the cache folder (qtool/native in "
    "XDG_CACHE_HOME, or in ~/.cache) cannot be made, or others than you could write to it"
)
DIGEST_BYTES = 32

_lock = Lock()
_said: list[str] = []


def library(name: str) -> ctypes.CDLL | None:
    """Return the compiled C file `name` of this folder; None if it cannot be compiled or is not wanted.

    QTOOL_NATIVE=0 in the environment says that it is not wanted. Where it cannot be compiled there is one
    `QtoolWarning` in a process: the same numbers then come from ATen ops, slower.
    """
    with _lock:
        return _library(name)


@lru_cache
def _library(name: str) -> ctypes.CDLL | None:
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        folder = _cache_folder()
        if folder is None:
            _say_once(NO_FOLDER)
        return built(Path(__file__).with_name(name), folder)
    except (OSError, subprocess.SubprocessError) as error:
        _say_once(
            f"the kernels for training could not be compiled ({_reason(error)}): ATen ops compute the same numbers, "
            f"slower; install a C compiler with OpenMP, or set {SWITCH}=0 to say that this is meant"
        )
        return None


def built(source: Path, folder: Path | None) -> ctypes.CDLL:
    """Return the library of a C file, from `folder` if it is there, else compiled and left there.

    Args:
        source: the C file.
        folder: private to the user; None compiles for this process alone.

    Raises:
        OSError: there is no compiler, or a file cannot be written.
        SubprocessError: the compiler failed.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        msg = f"none of {', '.join(COMPILERS)} is installed"
        raise FileNotFoundError(msg)
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="qtool-") as own:  # a library stays mapped when its file is gone
            return _compile(compiler, source, Path(own) / "library.so")
    kept = folder / f"{source.stem}-{_key(source, compiler)}.so"
    return _loaded(kept) or _compile(compiler, source, kept)


def _compile(compiler: str, source: Path, kept: Path) -> ctypes.CDLL:
    handle, draft = tempfile.mkstemp(dir=kept.parent, suffix=".so")
    os.close(handle)
    try:
        command = [compiler, *FLAGS, str(source), "-o", draft, "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS)  # noqa: S603
        content = Path(draft).read_bytes()
        Path(draft).write_bytes(content + hashlib.sha256(content).digest())
        Path(draft).replace(kept)
    finally:
        Path(draft).unlink(missing_ok=True)
    return ctypes.CDLL(str(kept))


def _loaded(kept: Path) -> ctypes.CDLL | None:
    try:
        content = kept.read_bytes()
        is_whole = hashlib.sha256(content[:-DIGEST_BYTES]).digest() == content[-DIGEST_BYTES:]
        return ctypes.CDLL(str(kept)) if is_whole else None
    except OSError:
        return None


def _key(source: Path, compiler: str) -> str:
    """Return what the library depends on, in 32 hexadecimal digits."""
    real = Path(compiler).resolve()
    built_by = f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"
    parts = [source.read_bytes().hex(), *FLAGS, built_by, _cpu()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _cpu() -> str:
    """Return what -march=native looks at; another CPU may lack an instruction."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    return "\n".join(line for line in lines if line.startswith(("vendor", "model", "flags", "Features", "CPU")))


def _cache_folder() -> Path | None:
    """Return the cache folder, made if need be; None where it cannot be had or is not the user's alone."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = (root / "qtool" / "native").resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if is_private(folder) else None
    except (OSError, RuntimeError):  # Path.home knows no home
        return None


def is_private(folder: Path) -> bool:
    """Return whether nobody but the user (and root) can put a file into `folder` or another folder in its place.

    Args:
        folder: absolute, without symbolic links.
    """
    user = os.getuid()
    here = folder.stat()
    if here.st_uid != user or here.st_mode & 0o077:
        return False
    return all(_keeps_its_own(parent.stat(), user) for parent in folder.parents)


def _keeps_its_own(folder: os.stat_result, user: int) -> bool:
    others_write = folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX
    return folder.st_uid in (0, user) and not others_write


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stderr).strip().splitlines()
        return next((line for line in lines if "error" in line), lines[0] if lines else f"{error.cmd[0]} failed")
    return str(error)


def _say_once(message: str) -> None:
    if _said:
        return
    _said.append(message)
    warnings.warn(message, QtoolWarning, stacklevel=2)
