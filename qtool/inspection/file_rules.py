"""Rules on the file itself: what loading it would execute, and whether its stamp can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtool.backends.registry import backend_names
from qtool.errors import FileFormatError, nearest
from qtool.inspection import codes
from qtool.readers.facts import Compute, FileKind, StampProblemKind
from qtool.readers.recovered import recovered_stamp
from qtool.readers.risks import RiskKind
from qtool.stamp.plan_json import plan_from_json
from qtool.types import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qtool.inspection.codes import Finding
    from qtool.readers.facts import FileFacts

_RISK_CODES = {
    RiskKind.SAMPLE_INPUTS: codes.SAMPLE_INPUTS,
    RiskKind.PICKLED_TENSOR: codes.PICKLED_TENSOR,
    RiskKind.CUSTOM_OBJECT: codes.CUSTOM_OBJECT,
    RiskKind.COMPILED_CODE: codes.COMPILED_CODE,
    RiskKind.EXPRESSION: codes.EXPRESSION,
    RiskKind.OPERATOR: codes.OPERATOR,
    RiskKind.CONTAINER_TYPE: codes.CONTAINER_TYPE,
    RiskKind.NAME: codes.NAME,
    RiskKind.PICKLE_CALL: codes.PICKLE_CALL,
    RiskKind.SCRIPT: codes.SCRIPT,
    RiskKind.OUTSIDE: codes.OUTSIDE,
    RiskKind.MISSING_DATA: codes.MISSING_DATA,
}

_STAMP_CODES = {
    StampProblemKind.MISSING: codes.NO_STAMP,
    StampProblemKind.NEWER: codes.NEWER_STAMP,
    StampProblemKind.UNREADABLE: codes.UNREADABLE_STAMP,
}

_KIND_WORDS = {
    FileKind.PT2: "an exported program",
    FileKind.MODULE: "a whole module, pickled by torch.save (and never unpickled here)",
    FileKind.TORCHSCRIPT: "a TorchScript archive",
    FileKind.CHECKPOINT: "a checkpoint of torch.save",
    FileKind.ZIP: "a zip archive",
    FileKind.ONNX: "an ONNX model",
    FileKind.AOTI: "a package that AOTInductor compiled",
    FileKind.PICKLE: "a pickle",
    FileKind.SAFETENSORS: "a safetensors file",
    FileKind.EXECUTORCH: "an ExecuTorch program",
}

_CODES = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "int1", "uint1")
_MAX_FLAGS = 16
"""Elements of a tensor of small integers that is no weight: torch's observers keep switches in uint8."""


def risks(file: FileFacts) -> Iterator[Finding]:
    """Yield what loading the file would execute."""
    for risk in file.risks:
        yield _RISK_CODES[risk.kind].finding(f"{risk.entry}: {risk.detail}")


def stamp_problem(file: FileFacts) -> Iterator[Finding]:
    """Yield why the file has no stamp that can be used."""
    problem = file.stamp_problem
    if problem is None:
        return
    code = _STAMP_CODES[problem.kind]
    if code is codes.NO_STAMP and file.graph.marks:
        number = len(file.graph.marks.nodes)
        yield codes.STAMP_LOST.finding(f"the file says nothing, but {number} int8 nodes in its graph say their target")
    elif code is codes.NO_STAMP and is_all_float(file):
        yield codes.NOT_QUANTIZED.finding(f"it is {_KIND_WORDS[file.kind]}: {_float_words(file)}")
    elif code is codes.NO_STAMP:
        yield code.finding(
            f"it is {_KIND_WORDS[file.kind]} without a stamp: its target and ranges are unknown{_layers(file)}"
        )
    else:
        yield code.finding(problem.message)


def is_all_float(file: FileFacts) -> bool:
    """Return whether nothing in a file is quantized; only of a model that was understood that can be said."""
    model = file.model
    if not (model.nodes or model.tensors) or model.not_understood or file.graph.num_int8_layers:
        return False
    if any(node.compute not in (Compute.FLOAT, Compute.FAKE_QUANTIZED) for node in model.nodes):
        return False
    return not any(
        tensor.quantization is not None or (tensor.dtype in _CODES and tensor.num_elements > _MAX_FLAGS)
        for tensor in model.tensors
    )


def _float_words(file: FileFacts) -> str:
    rounded = sum(node.compute is Compute.FAKE_QUANTIZED for node in file.model.nodes)
    if rounded:
        nodes = "1 node rounds its" if rounded == 1 else f"{rounded} nodes round their"
        return f"{nodes} values as in training, and compute{'s' if rounded == 1 else ''} in float"
    return "all its layers compute in float"


def _layers(file: FileFacts) -> str:
    number = file.graph.num_int8_layers
    return f"; it has {number} convolutions and linears with int8 weights" if number else ""


def unmarked_layers(file: FileFacts) -> Iterator[Finding]:
    """Yield that some int8 layers of a file without stamp have none of their own either."""
    graph = file.graph
    if graph.num_unmarked and graph.marks:
        yield codes.UNMARKED_LAYERS.finding(
            f"{graph.num_unmarked} of {graph.num_int8_layers} convolutions and linears with int8 weights"
        )


def content_differs(file: FileFacts) -> Iterator[Finding]:
    """Yield a content that is not the one the stamp was written for."""
    if file.stamp is not None and file.states_digest and not file.is_content_verified:
        stated = file.stamp.content_digest[:12] or "none"
        yield codes.CONTENT_DIFFERS.finding(f"sha256 of the content is {file.content_digest[:12]}, stamped is {stated}")


def plan_differs(file: FileFacts) -> Iterator[Finding]:
    """Yield a plan that is missing, damaged, or tells of other nodes than the stamp."""
    if file.stamp is None or file.stamp.stage is Stage.EXPORTED:
        return
    if file.plan_json is None:
        yield codes.PLAN_DIFFERS.finding("the file holds no plan, so it can be neither converted nor run")
        return
    try:
        plan = plan_from_json(file.plan_json)
    except FileFormatError as error:
        yield codes.PLAN_DIFFERS.finding(str(error))
        return
    planned = [(node.name, node.verdict) for node in plan.nodes]
    if planned != [(node.name, node.verdict) for node in file.stamp.nodes]:
        yield codes.PLAN_DIFFERS.finding("plan and stamp tell of different nodes")


def not_calibrated(file: FileFacts) -> Iterator[Finding]:
    """Yield the int8 nodes with a tensor whose scale is not known."""
    for node in file.stamp.int8_nodes() if file.stamp else ():
        tensors = (*node.inputs, node.weight, node.output)
        if any(tensor is not None and not tensor.is_calibrated for tensor in tensors):
            yield codes.NOT_CALIBRATED.finding("its observers saw no data, so it has no scale yet", node=node.name)


def unknown_backend(file: FileFacts) -> Iterator[Finding]:
    """Yield the backends of the stamp that this qtool has no description of."""
    known = backend_names()
    stamp = file.stamp or recovered_stamp(file.graph.marks)
    for name in stamp.backends if stamp else ():
        if name not in known:
            yield codes.UNKNOWN_BACKEND.finding(
                f"{name!r} is not known here{nearest(name, known)}; known: {', '.join(known)}"
            )


FILE_RULES: tuple[Callable[[FileFacts], Iterator[Finding]], ...] = (
    risks,
    stamp_problem,
    unmarked_layers,
    content_differs,
    plan_differs,
    not_calibrated,
    unknown_backend,
)
