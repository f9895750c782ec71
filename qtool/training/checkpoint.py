"""A checkpoint: all that an interrupted training needs to go on to the same bits, as the bytes of one file.

    checkpoint/state.json             what epoch it is, whose it is, what was measured
    checkpoint/config.json            the settled config
    checkpoint/model.pt2              the model, a file of its own
    checkpoint/best.pt2               the most accurate model so far, where it is asked for and is another one
    checkpoint/optimizer/*.npy        the optimizer's state, by number of the parameter
    checkpoint/random/*.npy           the states of the random generators

Nothing in it is pickled. The same state gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from qtool.errors import FileFormatError
from qtool.readers.archive import read_archive
from qtool.stamp.strict_json import decode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qtool.readers.archive import Archive

FORMAT_VERSION = 1
ROOT = "checkpoint/"
STATE, CONFIG, MODEL, BEST = "state.json", "config.json", "model.pt2", "best.pt2"
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
        model_digest: sha256 of model.pt2, its stamp with it.
        config_digest: digest of config.json.
        torch_version: torch that it was trained with.
        accuracy: of the last evaluation; None without one.
        best_epoch: epoch of the most accurate model, where the best is asked for.
        best_accuracy: its accuracy.
    """

    format_version: int
    epoch: int
    num_samples: int
    parameters: tuple[str, ...]
    model_digest: str
    config_digest: str
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


def digest_of(data: bytes) -> str:
    """Return the sha256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return a checkpoint as the bytes of its file."""
    entries = {
        STATE: json.dumps(checkpoint.state.__dict__, indent=1, sort_keys=True, allow_nan=False).encode(),
        CONFIG: checkpoint.config_json.encode(),
        MODEL: checkpoint.model,
        **({} if checkpoint.best is None else {BEST: checkpoint.best}),
        **{f"{OPTIMIZER}{name}.npy": _npy(array) for name, array in checkpoint.optimizer.items()},
        **{f"{RANDOM}{name}.npy": _npy(array) for name, array in checkpoint.random.items()},
    }
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
        checkpoint = Checkpoint(
            state=state,
            config_json=archive.read(CONFIG).decode(),
            model=archive.read(MODEL, limit=archive.num_bytes),
            best=archive.read(BEST, limit=archive.num_bytes) if BEST in archive.names else None,
            optimizer=_arrays(archive, OPTIMIZER),
            random=_arrays(archive, RANDOM),
        )
    is_whole = digest_of(checkpoint.model) == state.model_digest
    if not is_whole or digest_of(checkpoint.config_json.encode()) != state.config_digest:
        msg = f"{path}: its parts do not belong together; it was changed, resume from another checkpoint"
        raise FileFormatError(msg)
    return checkpoint


def _arrays(archive: Archive, folder: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(folder).removesuffix(".npy"): _array(
            archive.read(name, limit=min(archive.num_bytes, MAX_ARRAY_BYTES)), f"{archive.where}: {name}"
        )
        for name in archive.names
        if name.startswith(folder) and name.endswith(".npy")
    }


def _array(data: bytes, where: str) -> np.ndarray:
    """Return the array of an .npy file; its header is compared with its size before anything is allocated."""
    stream = io.BytesIO(data)
    try:
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            msg = f"shape {shape} of {dtype} does not fit {len(data)} bytes"
            raise ValueError(msg)  # noqa: TRY301 - told as the other faults of a header are
        stream.seek(0)
        array: np.ndarray = np.load(stream, allow_pickle=False)
    except ValueError as error:
        msg = f"{where}: is no array ({error}); the file is damaged, resume from another checkpoint"
        raise FileFormatError(msg) from error
    return array


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
