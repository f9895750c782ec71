"""The safetensors format: eight bytes of length, a header of JSON, and the tensors without gaps.

Source: https://github.com/huggingface/safetensors, "Format" in the README and `tensor.rs`, for its limits and dtypes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import (
    BITS,
    FileFacts,
    FileKind,
    ModelFacts,
    Place,
    StampProblem,
    StampProblemKind,
    Tensor,
)
from qtool.readers.safetensors.layers import layers_of
from qtool.readers.source import OpenModel
from qtool.stamp import bounded_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qtool.readers.source import Source

DTYPES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F4": "float4_e2m1fn", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip

_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 100_000_000
_MAX_TENSORS: Final = 50_000
"""Models of 70 thousand millions of weights have a thousand; more rows than this take more than two seconds."""
_MAX_DIMENSIONS: Final = 64
_MAX_SIZE: Final = 2**63 - 1
_METADATA: Final = "__metadata__"
_MAX_SHOWN: Final = 80
_MAX_LINES: Final = 20


def open_safetensors(source: Source) -> OpenModel:
    """Return what a safetensors file says and holds; of its tensors no more is read than small scales.

    Raises:
        FileFormatError: the header is damaged, or states tensors that do not lie one after the other in the file.
    """
    header, start = _header(source)
    metadata = header.pop(_METADATA, {})
    words = metadata if isinstance(metadata, dict) else {}
    found = tuple(_tensors(source, header, start))
    nodes = layers_of(found, words)
    unknown = [tensor for tensor in found if tensor.dtype not in BITS]
    model = ModelFacts(
        producer=_producer(words),
        form="quantized tensors" if any(node.operands[0].quantization for node in nodes) else "",
        tensors=found,
        nodes=nodes,
        not_understood=tuple(f"dtype {t.dtype[:_MAX_SHOWN]!r} of {t.name[:_MAX_SHOWN]}" for t in unknown[:_MAX_LINES]),
    )
    facts = FileFacts(
        where=source.where,
        kind=FileKind.SAFETENSORS,
        num_bytes=source.num_bytes,
        stamp=None,
        stamp_problem=StampProblem(StampProblemKind.MISSING, "it has no stamp"),
        plan_json=None,
        config_json=None,
        content_digest="",
        risks=(),
        model=model,
    )
    return OpenModel(facts, source.blocks)


def _header(source: Source) -> tuple[dict[str, Any], int]:
    """Return the header, and where the tensors begin."""
    length = int.from_bytes(source.read(0, _LENGTH_BYTES), "little")
    left = source.num_bytes - _LENGTH_BYTES
    if length > min(left, _MAX_HEADER_BYTES):
        raise _damaged(source, f"its header is said to have {length} bytes; at most {min(left, _MAX_HEADER_BYTES)} can")
    try:
        header = bounded_json.loads(source.read(_LENGTH_BYTES, length), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise _damaged(source, f"its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise _damaged(source, "its header is no object with a row for each tensor")
    return header, _LENGTH_BYTES + length


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a name stands in it twice"
        raise ValueError(msg)
    return found


def _tensors(source: Source, rows: Mapping[str, Any], start: int) -> list[Tensor]:
    """Return the tensors; together they are all bytes behind the header, each once."""
    if len(rows) > _MAX_TENSORS:
        raise _damaged(source, f"it has {len(rows)} tensors; at most {_MAX_TENSORS} are read")
    found = [_tensor(source, name, row, start) for name, row in rows.items()]
    end = start
    for first, last, name in sorted((*_ends(tensor), tensor.name) for tensor in found):
        if first != end:
            fault = "a gap" if first > end else "an overlap"
            raise _damaged(source, f"there is {fault} before tensor {name[:_MAX_SHOWN]!r}")
        end = last
    if end != source.num_bytes:
        raise _damaged(source, f"its tensors end at byte {end}, and it has {source.num_bytes}")
    return found


def _tensor(source: Source, name: str, row: object, start: int) -> Tensor:
    """Return a tensor; its bytes are counted from the end of the header, `start`."""
    shape, offsets, word = _stated(row)
    if shape is None or offsets is None or len(offsets) != 2 or offsets[0] > offsets[1] or word is None:
        raise _damaged(source, f"the row of tensor {name[:_MAX_SHOWN]!r} has no dtype, shape or offsets that can be")
    dtype, num_bytes = DTYPES.get(word, word), offsets[1] - offsets[0]
    if dtype in BITS and math.prod(shape) * BITS[dtype] != 8 * num_bytes:
        stated = f"{dtype} of shape {list(shape)}"
        raise _damaged(source, f"tensor {name[:_MAX_SHOWN]!r} has {num_bytes} bytes, which are no {stated}")
    return Tensor(
        name=name, dtype=dtype, shape=shape, place=Place(part="", offset=start + offsets[0], num_bytes=num_bytes)
    )


def _ends(tensor: Tensor) -> tuple[int, int]:
    assert tensor.place is not None, "each was given one"
    return tensor.place.offset, tensor.place.offset + tensor.place.num_bytes


def _stated(row: object) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None, str | None]:
    """Return what a row states: shape, offsets and dtype; None for what cannot be one."""
    if not isinstance(row, dict):
        return None, None, None
    word = row.get("dtype")
    return _sizes(row.get("shape")), _sizes(row.get("data_offsets")), word if isinstance(word, str) else None


def _sizes(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > _MAX_DIMENSIONS:
        return None
    for each in value:
        if type(each) is not int or not 0 <= each <= _MAX_SIZE:  # True is an int
            return None
    return tuple(value)


def _producer(metadata: Mapping[str, Any]) -> str | None:
    """Return what the metadata says of who wrote it: the framework alone, in nearly every file."""
    word = metadata.get("format")
    known = {"pt": "torch", "tf": "tensorflow", "flax": "flax", "np": "numpy", "mlx": "mlx"}
    return f"safetensors ({known.get(word, word[:_MAX_SHOWN])})" if isinstance(word, str) else None


def _damaged(source: Source, what: str) -> FileFormatError:
    return FileFormatError(
        f"{source.where}: it looks like a safetensors file, but {what}; get it again from its source"
    )
