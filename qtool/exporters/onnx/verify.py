"""Verify: every quantized edge of an ONNX file, run by ONNX Runtime, against the reference program.

ONNX Runtime runs the whole file, with its codes at every edge as extra outputs. Then the reference program runs with
those codes at the inputs of each node, so that a difference shows at the node where it arises. qtool multiplies by
1/scale and ONNX divides by scale, so a tie may end one step apart.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnxruntime
import torch
from torch.utils import _pytree as pytree

from qtool.capture.program import plain_module
from qtool.exporters.formats import ExportedModel
from qtool.exporters.onnx.container import write_into
from qtool.exporters.onnx.stamps import EDGE_KEY
from qtool.runtime.verify import code_differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from qtool.runtime.converted import ConvertedModel

OPTIMIZATIONS: Final = {
    "off": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "on": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""ONNX Runtime runs the graph as it stands, or fuses it into int8 kernels."""

_ERRORS_ONLY: Final = 3

_EXACT_KERNELS: Final = "session.x64quantprecision"
"""Source: onnxruntime_session_options_config_keys.h: u8 x u8 kernels, which add in int32 on every CPU."""


def onnx_differences(
    converted: ConvertedModel,
    files: ExportedModel,
    location: str | None,
    inputs: tuple[Any, ...],
    *,
    exact_kernels: bool = False,
) -> dict[str, dict[str, int]]:
    """Return the largest difference of each quantized edge in steps, for each level of optimization.

    Args:
        converted: the model that was exported.
        files: what it was exported to.
        location: the name by which the file refers to its weights, if they are external.
        inputs: what the model is called with.
        exact_kernels: keep ONNX Runtime from kernels that saturate on a CPU without VNNI.

    Returns:
        `{"off": {edge: steps}, "on": {edge: steps}}`; at most 1 is what rounding may cost.
    """
    found = {}
    for word in OPTIMIZATIONS:
        codes = edge_codes(files, location, inputs, word, exact_kernels=exact_kernels)
        found[word] = code_differences(plain_module(converted.exported), codes, inputs)
    return found


def edge_codes(
    files: ExportedModel,
    location: str | None,
    inputs: tuple[Any, ...],
    optimization: str = "on",
    *,
    exact_kernels: bool = False,
) -> dict[str, Tensor]:
    """Return the codes that ONNX Runtime computes at each quantized edge, by edge name."""
    proto = onnx.load_model_from_string(files.data)
    values = _code_values(proto)
    if not values:
        return {}  # ONNX Runtime takes an empty list of outputs for all of them
    shown = {output.name for output in proto.graph.output}
    known = {info.name: info for info in proto.graph.value_info}
    proto.graph.output.extend(known[value] for value in dict.fromkeys(values.values()) if value not in shown)
    with TemporaryDirectory(prefix="qtool-") as folder:
        shown_files = ExportedModel(proto.SerializeToString(), files.external)
        path = write_into(Path(folder), shown_files, location)
        session = _session(path, optimization, exact_kernels=exact_kernels)
    feed = dict(zip((i.name for i in session.get_inputs()), _arrays(inputs), strict=True))
    results = session.run(list(values.values()), feed)
    return {edge: torch.from_numpy(result) for edge, result in zip(values, results, strict=True)}


def _code_values(proto: Any) -> dict[str, str]:  # noqa: ANN401 - protobuf's classes are made at run time
    """Return the name of the value that holds the codes of each edge: of its Clip, or of its QuantizeLinear."""
    found: dict[str, str] = {}
    for node in proto.graph.node:
        stamp = _metadata(node)
        if EDGE_KEY in stamp and node.op_type in ("QuantizeLinear", "Clip"):
            found[stamp[EDGE_KEY]] = node.output[0]  # the Clip comes last
    return found


def _metadata(node: Any) -> Mapping[str, str]:  # noqa: ANN401
    return {entry.key: entry.value for entry in node.metadata_props}


def _session(path: Path, optimization: str, *, exact_kernels: bool) -> Any:  # noqa: ANN401
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = OPTIMIZATIONS[optimization]
    options.add_session_config_entry(_EXACT_KERNELS, str(int(exact_kernels)))
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _arrays(inputs: tuple[Any, ...]) -> list[Any]:
    return [leaf.numpy() for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
