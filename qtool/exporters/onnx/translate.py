"""Translate: from an exported program to an ONNX graph without anything that tells of this machine."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import onnx_ir as ir
import onnx_ir.passes.common as ir_passes
import torch
from onnxscript.optimizer import _constant_folding as folding

from qtool._version import __version__
from qtool.capture.program import plain_module
from qtool.capture.writes import written_tensors
from qtool.errors import ModelError
from qtool.exporters.node_meta import unchanged_meta
from qtool.exporters.onnx.ops import TRANSLATIONS
from qtool.passes.to_reference import NODE_STAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram

_OLDEST_WRITTEN: Final = 18
"""Opset that torch's translations are written in; older ones are reached by converting."""

_FOLDED: Final = ("Cast", "CastLike")
"""Ops on constants that are worked out whatever their size: the casts of zero points and of a clamp's bounds."""


def translate(exported: ExportedProgram, opset: int) -> ir.Model:
    """Return the ONNX model of a reference program in an opset of at least 18.

    Each node's `meta["stamp"]` holds what the reference program says of it. Weights stay int8: no DequantizeLinear
    is worked out. The program is left as it is, and its tensors are shared.

    Raises:
        ModelError: an op has no translation, or the program writes to a buffer.
    """
    _check_has_no_state(exported)
    model = _translated(exported, max(opset, _OLDEST_WRITTEN))
    for node in model.graph:
        source = node.meta.get("node")
        node.meta["stamp"] = source.meta.get("custom", {}).get(NODE_STAMP, {}) if source is not None else {}
    _strip_origins(model)
    result = ir.passes.Sequential(
        folding.FoldConstantsPass(
            shape_inference=True,
            input_size_limit=folding.DEFAULT_CONSTANT_FOLD_INPUT_SIZE_LIMIT,
            output_size_limit=folding.DEFAULT_CONSTANT_FOLD_OUTPUT_SIZE_LIMIT,
            should_fold=lambda node: True if node.op_type in _FOLDED else None,
        ),
        ir_passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        ir_passes.RemoveUnusedNodesPass(),
    )(model)
    return result.model


def _check_has_no_state(exported: ExportedProgram) -> None:
    written = sorted(written_tensors(plain_module(exported).graph.nodes))
    if written:
        msg = (
            f"the model keeps {written[0]!r} from call to call, and an ONNX model keeps nothing: pass it in and return "
            f"it, or export to pt2"
        )
        raise ModelError(msg)


def _translated(exported: ExportedProgram, opset: int) -> ir.Model:
    try:
        with unchanged_meta(exported), _without_log():
            program = torch.onnx.export(
                exported,
                dynamo=True,
                opset_version=opset,
                custom_translation_table=TRANSLATIONS,
                optimize=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        msg = f"the model cannot be written as ONNX: {_first_cause(error)}"
        raise ModelError(msg) from error
    assert program is not None
    return program.model


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep torch from telling on stderr what it leaves out: a None that a model returns, as documented here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _first_cause(error: BaseException) -> str:
    """Return the first line of the innermost error: the outer ones speak of torch's own code."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().split("\n")[0] or type(error).__name__


def _strip_origins(model: ir.Model) -> None:
    """Remove what torch writes of its own: it names modules, source lines and versions of this machine."""
    model.producer_name, model.producer_version = "qtool", __version__
    model.doc_string = None
    model.metadata_props.clear()
    ir_passes.ClearMetadataAndDocStringPass()(model)
    for graph in model.graphs():
        graph.metadata_props.clear()
        for value in (*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)):
            value.metadata_props.clear()
            value.doc_string = None
