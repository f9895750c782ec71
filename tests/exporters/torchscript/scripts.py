"""Models exported to TorchScript, and loaded without torch's deprecation warnings."""

from __future__ import annotations

import functools
import io
import warnings

import torch

from qtool.exporters.torchscript.model import engine_for, torchscript_files
from qtool.lowering.engine_switch import packing_for
from tests.exporters.together import converted_pattern


def files_of(converted, engine=None):
    return torchscript_files(converted, engine_for(converted.stamp, engine))


@functools.cache
def script_of(name, backend="fbgemm"):
    return files_of(converted_pattern(name, backend)[0])


def loaded(files, engine="fbgemm", **settings):
    with warnings.catch_warnings(), packing_for(engine):
        warnings.filterwarnings("ignore", ".*is deprecated")
        return torch.jit.load(io.BytesIO(files.data), **settings)


def saved(module) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is deprecated")
        torch.jit.save(module, buffer)
    return buffer.getvalue()
