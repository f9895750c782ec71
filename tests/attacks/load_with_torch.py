"""Loads files with torch alone and calls what is in them; run in a process of its own, for their code runs.

Usage: python load_with_torch.py FILE...
"""

import contextlib
import io
import logging
import sys
import zipfile
from pathlib import Path

import torch
import torch.ao.quantization.fx._decomposed  # what a converted file needs

logging.disable()
for path in map(Path, sys.argv[1:]):
    with contextlib.suppress(Exception):
        data = path.read_bytes()
        if path.stem == "training_graph":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                data = archive.read("archive/qtool/training.pt2")
        module = torch.export.load(io.BytesIO(data)).module()
        size = next(node.meta["val"].shape for node in module.graph.nodes if node.op == "placeholder")
        module(torch.zeros(2, *map(int, size[1:])))
