"""Open model files made by hand: their tensors are arrays in memory, and what a reader would say is said here."""

from __future__ import annotations

import contextlib
import math

import numpy as np

from qtool.inspection import inspect as inspect_module
from qtool.readers.facts import (
    Compute,
    FileFacts,
    FileKind,
    ModelFacts,
    Node,
    Operand,
    Place,
    Quantization,
    Role,
    StampProblem,
    StampProblemKind,
    Tensor,
)
from qtool.readers.source import BLOCK_BYTES, OpenModel
from qtool.types import Op

UINT8, INT8, INT32 = ("uint8", 0, 255), ("int8", -128, 127), ("int32", -(2**31), 2**31 - 1)


class HandMade:
    """Tensors and nodes of a file that is being made.

    Attributes:
        nodes: what its reader finds.
        tensors: all that it stores.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.tensors: list[Tensor] = []
        self._parts: dict[str, bytes] = {}
        self.num_read = 0

    def store(self, name, values, **fields):
        """Store an array as a tensor of that name."""
        values = np.ascontiguousarray(values)
        part = f"data/{len(self._parts)}"
        self._parts[part] = values.astype(values.dtype.newbyteorder("<")).tobytes()
        place = Place(part=part, offset=0, num_bytes=len(self._parts[part]))
        tensor = Tensor(**({"name": name, "dtype": values.dtype.name, "shape": values.shape, "place": place} | fields))
        self.tensors.append(tensor)
        return tensor

    def node(self, name, op, *operands, compute=Compute.STATIC, **fields):
        """Add a node."""
        settings = {"name": name, "op": op, "target": str(op), "compute": compute, "operands": operands}
        self.nodes.append(Node(**(settings | fields)))
        return self.nodes[-1]

    def layer(self, name, codes, *, op=Op.LINEAR, scale=0.01, reads=UINT8, bias=None, axis=None, input_scale=0.02,
              output_scale=0.05, zero_point=(), **fields):  # fmt: skip
        """Add a layer of int8 codes with all its tensors; one with kernel dimensions is a convolution of one group."""
        codes = np.asarray(codes)
        weight = self.store(f"{name}.weight", codes)
        ends = INT8 if codes.dtype == np.int8 else UINT8
        scales = (scale,) if isinstance(scale, float) else scale
        operands = [
            Operand(role=Role.INPUT, name=f"{name}.x", quantization=quantization(reads, input_scale)),
            Operand(
                role=Role.WEIGHT,
                name=weight.name,
                tensor=weight,
                quantization=quantization(ends, scales, zero_point=zero_point, axis=axis),
            ),
            Operand(role=Role.OUTPUT, name=f"{name}.y", quantization=quantization(UINT8, output_scale)),
        ]
        if bias is not None:
            operands.append(bias)
        if op is not Op.LINEAR:
            fields = {"groups": 1} | fields
        return self.node(name, op, *operands, **fields)

    def open(self, *, kind=FileKind.ONNX, stamp=None, **facts):
        """Return the file as it would be opened."""
        model = ModelFacts(nodes=tuple(self.nodes), tensors=tuple(self.tensors), **facts)
        problem = None if stamp else StampProblem(StampProblemKind.MISSING, "it has no stamp")
        return OpenModel(
            FileFacts(
                where="made by hand",
                kind=kind,
                num_bytes=sum(map(len, self._parts.values())),
                stamp=stamp,
                stamp_problem=problem,
                plan_json=None,
                config_json=None,
                content_digest=stamp.content_digest if stamp else "",
                risks=(),
                model=model,
            ),
            self._blocks,
        )

    def _blocks(self, place):
        data = self._parts[place.part][place.offset : place.offset + place.num_bytes]
        self.num_read += len(data)
        for start in range(0, len(data), BLOCK_BYTES):
            yield data[start : start + BLOCK_BYTES]


def quantization(ends, scale, *, zero_point=(), axis=None, **fields):
    dtype, qmin, qmax = ends
    scale = (scale,) if isinstance(scale, float) else scale
    settings = {"dtype": dtype, "qmin": qmin, "qmax": qmax, "scale": scale, "zero_point": zero_point, "axis": axis}
    return Quantization(**(settings | fields))


def inspected(made, monkeypatch, *, asked=None, **facts):
    """Return the report on a file made by hand."""
    model = made.open(**facts)
    monkeypatch.setattr(inspect_module, "opened_model", lambda _: contextlib.nullcontext(model))
    return inspect_module.inspect_file(b"", **(asked or {}))


def codes_of(report):
    return [finding.code for finding in report.findings]


def random_codes(shape, *, seed=0, low=-127, high=127):
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int8)


def num_elements(shape):
    return math.prod(shape)
