"""Export: from a converted model to a file that another runtime reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qtool.backends.registry import backend as find_backend
from qtool.errors import UsageError
from qtool.exporters.formats import OPSET, Format, check_opset, check_packages, known_format
from qtool.saturation.verdict import judge
from qtool.types import Stage
from qtool.workflows.atomic_file import check_writable, write_together

if TYPE_CHECKING:
    from qtool.exporters.formats import ExportedModel
    from qtool.runtime.converted import ConvertedModel
    from qtool.stamp.schema import Stamp

ONNX_BACKEND = "onnxruntime"
"""The backend whose kernels run an ONNX file."""


def export(
    model: object,
    destination: str | Path | BinaryIO,
    format: str = "onnx",
    *,
    opset: int | None = None,
    external_above_bytes: int | None = None,
) -> None:
    """Write a converted model as a file of another runtime; the same model gives the same bytes.

    Args:
        model: what `convert` returned, or the path of a converted file.
        destination: a path, or a binary file open for writing. Large ONNX weights go into `<path>.data` beside it.
        format: `onnx` (QDQ, for ONNX Runtime) or `pt2` (plain ATen, for `torch.export.load`).
        opset: ONNX opset, 13 to 23; None takes 20.
        external_above_bytes: weights of more bytes go into the second file; None takes what one file can hold.

    Raises:
        UsageError: the model is not converted, the format is not known, the destination cannot be written, or an
            argument has a wrong type.
        ModelError: the model holds something that the format has no word for.
        MissingDependencyError: onnx or onnxscript is not installed.

    Example:
        >>> export(qtool.convert(prepared), "int8.onnx")
    """
    from qtool.workflows.save import check_takes_bytes

    wanted = known_format(format)
    check_opset(opset, wanted)
    _check_limit(external_above_bytes)
    path = Path(destination) if isinstance(destination, (str, Path)) else None
    if path is None:
        check_takes_bytes(destination)
    else:
        check_writable(path)
    check_packages(wanted)
    files = exported_files(_converted(model), wanted, path, opset=opset, external_above_bytes=external_above_bytes)
    if path is not None:
        write_together(paths_of(files, path))
        return
    destination.write(files.data)  # type: ignore[union-attr]  # checked above


def _check_limit(num_bytes: object) -> None:
    if num_bytes is not None and (not isinstance(num_bytes, int) or isinstance(num_bytes, bool) or num_bytes < 0):
        msg = f"external_above_bytes {num_bytes!r} is not a number of bytes; give a whole number from 0 up, or None"
        raise UsageError(msg)


def exported_files(
    converted: ConvertedModel,
    wanted: Format,
    path: Path | None,
    *,
    opset: int | None = None,
    external_above_bytes: int | None = None,
) -> ExportedModel:
    """Return the bytes of the files that a model is exported to; nothing is written.

    Args:
        converted: the model.
        wanted: the format.
        path: where it will go; None if there is no folder for a second file.
        opset: as in `export`.
        external_above_bytes: as in `export`.
    """
    if wanted is Format.PT2:
        from qtool.exporters.pt2 import pt2_files

        return pt2_files(converted)
    from qtool.exporters.onnx.container import EXTERNAL_ABOVE_BYTES, external_name, to_files
    from qtool.exporters.onnx.model import onnx_model

    limit = EXTERNAL_ABOVE_BYTES if external_above_bytes is None else external_above_bytes
    location = None if path is None else external_name(path)
    return to_files(onnx_model(converted, opset or OPSET), location, external_above_bytes=limit)


def paths_of(files: ExportedModel, path: Path) -> dict[Path, bytes]:
    """Return what is written where; the second file first, since the first one refers to it."""
    if files.external is None:
        return {path: files.data}
    from qtool.exporters.onnx.container import external_name

    return {path.with_name(external_name(path)): files.external, path: files.data}


def differences(
    converted: ConvertedModel, files: ExportedModel, wanted: Format, path: Path | None
) -> dict[str, dict[str, int]]:
    """Return how far an exported model is from the reference program, on inputs that cover every calibrated range.

    Returns:
        For ONNX `{"off": {edge: steps}, "on": ...}`, with ONNX Runtime's optimizations off and on; one step is what
        rounding may cost. For pt2 `{"bits": {output: number of values that differ}}`; none may.
    """
    from qtool.capture.program import Call
    from qtool.runtime.generated_inputs import calibrated_ranges, generated_inputs

    inputs: tuple[Any, ...] = generated_inputs(
        Call.of(converted.exported), converted.stamp.inputs, calibrated_ranges(converted.stamp)
    )
    if wanted is Format.PT2:
        from qtool.exporters.pt2 import pt2_differences

        return {"bits": pt2_differences(converted, files, inputs)}
    from qtool.exporters.onnx.container import external_name
    from qtool.exporters.onnx.verify import onnx_differences

    return onnx_differences(converted, files, None if path is None else external_name(path), inputs)


def target_note(stamp: Stamp, wanted: Format) -> str | None:
    """Return what to know when an ONNX file is made of a model for another backend; None if nothing."""
    if wanted is not Format.ONNX or stamp.backends == (ONNX_BACKEND,):
        return None
    record = find_backend(ONNX_BACKEND)
    wrong = [
        node.name
        for node in stamp.int8_nodes()
        if node.multiplies_codes and not judge(record, stamp.isa, node.layer).is_right
    ]
    note = f"note: made for {', '.join(stamp.backends)}, isa {stamp.isa}; the ranges in the file stay as they are"
    if wrong:
        note += (
            f". ONNX Runtime saturates on an x86 CPU without VNNI at {len(wrong)} nodes, first {wrong[0]!r}: "
            f"for such a CPU convert the prepared file with --backend {ONNX_BACKEND}"
        )
    return note


def check_is_converted(stage: Stage, name: str) -> None:
    """Check that a file has come as far as export takes it.

    Raises:
        UsageError: it has not, or farther.
    """
    if stage in (Stage.PREPARED, Stage.TRAINED):
        msg = f"{name} is {stage.value}, and export takes a converted model: convert it first (qtool convert)"
        raise UsageError(msg)
    if stage is Stage.EXPORTED:
        msg = f"{name} is exported already; export takes what `qtool convert` wrote"
        raise UsageError(msg)


def _converted(model: object) -> ConvertedModel:
    from qtool.runtime.converted import ConvertedModel
    from qtool.runtime.prepared import PreparedModel
    from qtool.workflows.load import read

    name = "the model"
    if isinstance(model, (str, Path)):
        name, model = repr(str(model)), read(model)
    if isinstance(model, PreparedModel):
        check_is_converted(model.stamp.stage, name)
    if not isinstance(model, ConvertedModel):
        msg = (
            f"cannot export a {type(model).__name__}: export takes what qtool.convert returned, or the path of a "
            f"converted file"
        )
        raise UsageError(msg)
    return model
