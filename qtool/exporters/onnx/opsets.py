"""Older opsets: torch writes opset 18 at the oldest, and a converter takes it from there."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnxscript import version_converter

from qtool.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir


def in_opset(model: ir.Model, opset: int) -> None:
    """Convert a model to an opset in place, its nodes' `meta["stamp"]` kept.

    Raises:
        ModelError: an op of the model cannot be said in that opset.
    """
    stamps = {node.name: node.meta.get("stamp", {}) for node in model.graph}
    with _silent("onnxscript.version_converter"):  # it logs that it converts, and its failure, which is said below
        version_converter.convert_version(model, opset, fallback=True)
    found = model.graph.opset_imports[""]
    if found != opset:
        msg = f"the model cannot be written in opset {opset}; it can in opset {found}: use --opset {found}"
        raise ModelError(msg)
    for node in model.graph:
        node.meta["stamp"] = stamps.get(node.name, {})


@contextmanager
def _silent(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
