"""A checkpoint: all that an interrupted training needs to go on to the same bits, as the bytes of one file.

    checkpoint/state.json             what epoch it is, whose it is, what was measured
    checkpoint/config.json            the settled config
    checkpoint/model.pt2              the model, a file of its own
    checkpoint/best.pt2               the most accurate model so far, where it is asked for and is another one
    checkpoint/optimizer/*.npy        the optimizer's state, by number of the parameter
    checkpoint/random/*.npy           the states of the random generators
    checkpoint/digest.txt             sha256 over all of these

Nothing in it is pickled. The same state gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qtool.errors import FileFormatError
from qtool.readers.archive import MAX_TEXT_BYTES, read_archive
from qtool.runtime.npy import array_bytes, array_from
from qtool.stamp.strict_json import decode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

    from qtool.readers.archive import Archive

FORMAT_VERSION = 1
ROOT = "checkpoint/"
STATE, CONFIG, MODEL, BEST, DIGEST = "state.json", "config.json", "model.pt2", "best.pt2", "digest.txt"
OPTIMIZER, RANDOM = "optimizer/", "random/"
MAX_ARRAY_BYTES = 1 << 36
"""Of one array; the largest embedding table in use has some 2**32 (chosen: sixteen times that)."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class State:
    """What state.json says.

    Attributes:
        format_version: of the checkpoint's format.
        epoch: number of complete epochs.
        num_samples: samples of data.train.
        parameters: names of the trained parameters, in the optimizer's order.
        torch_version: torch that it was trained with.
        accuracy: of the last evaluation; None without one.
        best_epoch: epoch of the most accurate model, where the best is asked for.
        best_accuracy: its accuracy.
    """

    format_version: int
    epoch: int
    num_samples: int
    parameters: tuple[str, ...]
    torch_version: str
    accuracy: float | None = None
    best_epoch: int | None = None
    best_accuracy: float | None = None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A training at the end of an epoch.

    Attributes:
        state: what epoch it is, whose it is, what was measured.
        config_json: the settled config, canonical.
        model: the bytes of the model's file.
        best: the bytes of the most accurate model's file; None where that is `model`, or is not asked for.
        optimizer: see `qtool.training.optimizer.state_arrays`.
        random: see `qtool.training.random_state.random_arrays`.
    """

    state: State
    config_json: str
    model: bytes
    best: bytes | None = None
    optimizer: Mapping[str, np.ndarray] = field(default_factory=dict)
    random: Mapping[str, np.ndarray] = field(default_factory=dict)


def digest_of(entries: Mapping[str, bytes]) -> str:
    """Return the sha256 of entries in hexadecimal: of their names and sha256, a line each, sorted.

    Example:
        >>> digest_of({}) == hashlib.sha256(b"").hexdigest()
        True
    """
    lines = sorted(f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in entries.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as the bytes of its file."""
    entries = {
        STATE: json.dumps(checkpoint.state.__dict__, indent=1, sort_keys=True, allow_nan=False).encode(),
        CONFIG: checkpoint.config_json.encode(),
        MODEL: checkpoint.model,
        **({} if checkpoint.best is None else {BEST: checkpoint.best}),
        **{f"{OPTIMIZER}{name}.npy": array_bytes(array) for name, array in checkpoint.optimizer.items()},
        **{f"{RANDOM}{name}.npy": array_bytes(array) for name, array in checkpoint.random.items()},
    }
    entries[DIGEST] = digest_of(entries).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(ROOT + name, date_time=_EPOCH)
            entry.create_system = 0  # the default names the platform
            archive.writestr(entry, data)
    return buffer.getvalue()


def from_file(path: Path) -> Checkpoint:
    """Return the checkpoint in a file; its model is not loaded yet.

    Raises:
        UsageError: the file cannot be read.
        FileFormatError: it is no checkpoint, is damaged, or its parts do not belong together.
    """
    with read_archive(path) as archive:
        if archive.root != ROOT or STATE not in archive.names:
            msg = f"{path} is no checkpoint of qtool's; --resume takes a folder of --checkpoints, or a file in it"
            raise FileFormatError(msg)
        state = decode(State, archive.read(STATE), where=f"{path}: {STATE}", newest=FORMAT_VERSION)
        _check_numbers(state, f"{path}: {STATE}", has_best=BEST in archive.names)
        entries = {name: archive.read(name, limit=_limit(archive, name)) for name in archive.names}
    for name in (CONFIG, MODEL, DIGEST):
        if name not in entries:
            msg = f"{path}: there is no entry {name!r} in it"
            raise FileFormatError(msg)
    checkpoint = Checkpoint(
        state=state,
        config_json=entries[CONFIG].decode(errors="replace"),
        model=entries[MODEL],
        best=entries.get(BEST),
        optimizer=_arrays(entries, OPTIMIZER, path),
        random=_arrays(entries, RANDOM, path),
    )
    digest = entries.pop(DIGEST)
    if digest != digest_of(entries).encode():
        msg = f"{path}: its parts do not belong together; it was changed, resume from another checkpoint"
        raise FileFormatError(msg)
    return checkpoint


def _check_numbers(state: State, where: str, *, has_best: bool) -> None:
    """Refuse numbers that no training writes.

    Raises:
        FileFormatError: a number is out of its range, or the best model is told of and is not there.
    """
    best = state.best_epoch
    fits = {
        f"epoch is {state.epoch}; allowed: at least 1": state.epoch >= 1,
        f"num_samples is {state.num_samples}; allowed: at least 1": state.num_samples >= 1,
        f"accuracy is {state.accuracy}; allowed: 0 to 1": state.accuracy is None or 0 <= state.accuracy <= 1,
        f"best_epoch is {best}; allowed: 1 to epoch": best is None or 1 <= best <= state.epoch,
        f"best_accuracy is {state.best_accuracy}; allowed: 0 to 1, beside best_epoch": (
            best is None if state.best_accuracy is None else best is not None and 0 <= state.best_accuracy <= 1
        ),
        f"best_epoch is {best} of {state.epoch}; allowed: another than epoch, exactly where there is {BEST!r}": (
            has_best is (best not in (None, state.epoch))
        ),
    }
    if problems := [problem for problem, is_fine in fits.items() if not is_fine]:
        msg = f"{where}: {'; '.join(problems)}"
        raise FileFormatError(msg)


def _limit(archive: Archive, name: str) -> int:
    """Return how many bytes an entry may have."""
    if name.endswith(".npy"):
        return min(archive.num_bytes, MAX_ARRAY_BYTES)
    return MAX_TEXT_BYTES if name == CONFIG else archive.num_bytes


def _arrays(entries: Mapping[str, bytes], folder: str, path: Path) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(folder).removesuffix(".npy"): array_from(data, where=f"{path}: {name}")
        for name, data in entries.items()
        if name.startswith(folder) and name.endswith(".npy")
    }
