"""Verify: every quantized edge of a TorchScript archive, run by TorchScript, against the reference program.

The archive's own code runs, with its codes at every edge as extra results. Then the reference program runs with those
codes at the inputs of each node, so that a difference shows at the node where it arises.
"""

from __future__ import annotations

import io
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from qtool.capture.program import plain_module
from qtool.exporters.torchscript.model import write_script
from qtool.lowering.engine_switch import packing_for
from qtool.runtime.verify import code_differences

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from qtool.exporters.formats import ExportedModel
    from qtool.runtime.converted import ConvertedModel

_DEPRECATED = r"`torch\.jit\..*is deprecated"


@torch.no_grad()
def torchscript_differences(
    converted: ConvertedModel, files: ExportedModel, engine: str, inputs: tuple[Any, ...]
) -> dict[str, int]:
    """Return the largest difference of each quantized edge in steps, by edge name; at most 1 is what rounding costs."""
    variables = write_script(converted, engine).source.edges
    codes = _run(_loaded(files.data, engine), variables, inputs)
    return code_differences(plain_module(converted.exported), codes, inputs)


def _loaded(data: bytes, engine: str) -> Any:  # noqa: ANN401 - a scripted module
    with packing_for(engine), _deprecation_unsaid():
        return torch.jit.load(io.BytesIO(data))


@contextmanager
def _deprecation_unsaid() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATED)
        yield


def _run(script: Any, variables: Mapping[str, str], inputs: tuple[Any, ...]) -> dict[str, Tensor]:  # noqa: ANN401
    """Return the values of some variables, by what they are asked for."""
    graph = script.graph.copy()
    # A variable that the source names `x` is `x.1` in the graph.
    values = {value.debugName().rpartition(".")[0]: value for node in graph.nodes() for value in node.outputs()}
    graph.eraseOutput(0)
    for variable in variables.values():
        graph.registerOutput(values[variable])
    graph.makeMultiOutputIntoTuple()
    results = torch._C._create_function_from_graph("edge_codes", graph)(script, *inputs)
    return {edge: _codes(result) for edge, result in zip(variables, results, strict=True)}


def _codes(result: Tensor) -> Tensor:
    """Return codes, laid out as the reference program has them."""
    return (result.int_repr() if result.is_quantized else result).contiguous()
