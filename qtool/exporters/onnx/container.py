"""The bytes of an ONNX model: one file, or the weights in a second one where protobuf cannot hold them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import onnx
import onnx_ir as ir

from qtool.errors import ModelError
from qtool.exporters.formats import ExportedModel

if TYPE_CHECKING:
    from pathlib import PurePath

EXTERNAL_ABOVE_BYTES: Final = 2**31 - 2**26
"""Weights of more bytes go into a file of their own: protobuf takes no message of 2 GiB. 64 MiB are for the graph."""

_SMALL_BYTES: Final = 1024
"""Tensors below it stay in the model: shape inference wants to see them."""

_ALIGNMENT: Final = 4096
"""Of each tensor in the second file, so that it can be mapped. Source: TensorProto in onnx.proto, `external_data`."""


def external_name(path: PurePath) -> str:
    """Return the name of the file that holds a model's weights, in the folder of the model.

    Example:
        >>> external_name(PurePath("models/large.onnx"))
        'large.onnx.data'
    """
    return f"{path.name}.data"


def to_files(model: ir.Model, location: str | None, *, external_above_bytes: int) -> ExportedModel:
    """Return the bytes of a model that the ONNX checker accepts; the same model gives the same bytes.

    Args:
        model: the model; where its weights become external, it refers to them from then on.
        location: name of the file that holds the weights if they do not fit; None if there can be none.
        external_above_bytes: what fits.

    Raises:
        ModelError: the weights do not fit and there is no place for them.
    """
    external = None
    num_bytes = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if num_bytes > external_above_bytes:
        if location is None:
            msg = (
                f"the model has {num_bytes / 1e6:.1f} MB of weights and one ONNX file holds "
                f"{external_above_bytes / 1e6:.1f} MB: name a file, so that a second one beside it can hold them"
            )
            raise ModelError(msg)
        external = _move_weights(model, location)
    files = ExportedModel(ir.to_proto(model).SerializeToString(deterministic=True), external)
    _check(files, location)
    return files


def _move_weights(model: ir.Model, location: str) -> bytes:
    blob = bytearray()
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or tensor.nbytes < _SMALL_BYTES:
            continue
        blob.extend(bytes(-len(blob) % _ALIGNMENT))
        offset = len(blob)
        blob.extend(tensor.tobytes())
        value.const_value = ir.ExternalTensor(
            location, offset, len(blob) - offset, tensor.dtype, shape=ir.Shape(tensor.numpy().shape), name=name
        )
    return bytes(blob)


def _check(files: ExportedModel, location: str | None) -> None:
    """Let the ONNX checker look at the files; it wants to see external weights on a disk.

    What it raises is let through: no model may come to that, so it is a fault of qtool's.
    """
    with TemporaryDirectory(prefix="qtool-") as folder:
        path = write_into(Path(folder), files, location)
        onnx.checker.check_model(path, full_check=True)


def write_into(folder: Path, files: ExportedModel, location: str | None) -> Path:
    """Write a model's files into a folder for a program that reads paths alone; return the path of the model."""
    path = folder / "model.onnx"
    path.write_bytes(files.data)
    if files.external is not None and location is not None:
        (folder / location).write_bytes(files.external)
    return path
