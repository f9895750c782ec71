"""Run as a script: does each thing that would read released weights, in a process of its own, and writes how it ended.

    python -m tests.runtime.released_ways FILE

One line of JSON: {"<target>.<way>": [status, first line of what it said]}; a status below 0 is a signal.
"""

import copy
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import qtool
from qtool.errors import QtoolError
from qtool.lowering.quint8 import to_quint8


def in_a_process(way):
    """Return the exit status of a child that does it, and what it said; 99 is an error of torch's own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            way()
        except QtoolError as error:
            status = error.exit_code
            os.write(writer, str(error).encode())
        except BaseException as error:
            status = 99
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        text = said.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (text.splitlines() or [""])[0]


def kernels(module):
    return [kernel for kernel in module.modules() if type(kernel).__name__ in ("ReleasedMac", "PackedMac")]


def at_another_scale(module):
    for kernel in kernels(module):
        kernel(to_quint8(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), kernel.input.scale * 2, 0))


def unpacked(module):
    return [kernel.packed.unpack() for kernel in kernels(module)]


def ways(module, x, folder):
    return {
        "scale": lambda: at_another_scale(module),
        "unpack": lambda: unpacked(module),
        "state_dict": module.state_dict,
        "torch_save": lambda: torch.save(module, folder / "whole.pt"),
        "torch_save_state": lambda: torch.save(module.state_dict(), folder / "state.pt"),
        "pickle": lambda: pickle.dumps(module),
        "copy": lambda: copy.copy(module).state_dict(),
        "deepcopy": lambda: copy.deepcopy(module),
        "script": lambda: torch.jit.script(module),
        "trace": lambda: torch.jit.trace(module, (x,)),
        "qtool_save": lambda: qtool.save(module, folder / "again.pt2"),
        "jit_save": lambda: torch.jit.save(module, str(folder / "jit.pt")),
    }


def main():
    x = torch.randn(2, 3, 8, 8)
    runtime = qtool.load(sys.argv[1])
    targets = {"runtime": runtime, "container": nn.Sequential(runtime), "body": runtime.body}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for target, module in targets.items():
            expected = module(x)
            for name, way in ways(module, x, Path(folder)).items():
                found[f"{target}.{name}"] = in_a_process(way)
            assert torch.equal(module(x), expected)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
