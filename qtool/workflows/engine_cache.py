"""`<file>.engines.json`: the engines that `auto` found for a file, kept beside it for the same machine."""

from __future__ import annotations

import json
import platform
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from qtool.backends.host import host_facts
from qtool.errors import QtoolWarning, UsageError
from qtool.workflows.atomic_file import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT_VERSION = 1
MOST_BYTES = 16 * 2**20
"""A file that is larger is not one of ours: a line a node is 100 bytes."""


def cache_path(file: Path) -> Path:
    """Return where the engines of a model file are kept."""
    return file.with_name(f"{file.name}.engines.json")


def cache_key(content_digest: str, shapes: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return what a timing holds for: the file's content, this CPU and its caps, torch, threads and input shapes."""
    host = host_facts()
    return {
        "content_digest": content_digest,
        "cpu": _cpu_model(),
        "cpu_flags": list(host.isa_flags or ()),
        "caps": [list(cap) for cap in host.caps],
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "shapes": [list(shape) for shape in shapes],
    }


def read_engines(path: Path, key: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the engine of each node that a file keeps; None without a file.

    A file that is broken, or was timed for something else, is ignored with a warning. What it says is a wish: whether
    an engine is right for a node is for the caller to check.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            _say_ignored(path, "is too large to be one")
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _say_ignored(path, f"cannot be read ({type(error).__name__})")
        return None
    engines = kept.get("engines") if isinstance(kept, dict) else None
    if not isinstance(engines, dict) or not all(isinstance(engine, str) for engine in engines.values()):
        _say_ignored(path, "is not one")
        return None
    if kept.get("format_version") != FORMAT_VERSION or kept.get("key") != json.loads(json.dumps(key)):
        _say_ignored(path, "was made for another file, machine, torch, number of threads or input shape")
        return None
    return engines


def write_engines(path: Path, key: Mapping[str, Any], engines: Mapping[str, str]) -> None:
    """Keep the engine of each node; the file appears whole or not at all, and where it cannot be kept, this is said."""
    content = {"format_version": FORMAT_VERSION, "key": key, "engines": dict(engines)}
    try:
        write_atomically(path, json.dumps(content, indent=1, sort_keys=True).encode())
    except UsageError as error:
        warnings.warn(f"the engines found are not kept: {error}", QtoolWarning, stacklevel=3)


def _say_ignored(path: Path, why: str) -> None:
    text = f"{str(path)!r} {why}: engines are timed again, and it is written anew"
    warnings.warn(text, QtoolWarning, stacklevel=4)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
