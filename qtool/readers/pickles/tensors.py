"""What a pickle says of a tensor: dtype, shape, quantizer, and where its bytes lie; the bytes are not read.

Source: torch/_utils.py and torch/_tensor.py for what rebuilds tensors, torch/serialization.py for storages, and
torch/csrc/jit/serialization/pickler.cpp, which writes the same from C++.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.errors import FileFormatError
from qtool.readers.facts import BITS, Place, Quantization, Tensor
from qtool.readers.pickles.values import Call, Name, Reference

if TYPE_CHECKING:
    from collections.abc import Callable

    StoragePlace = Callable[[str], Place | None]

_OF_STORAGES: Final = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64",
    "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexDouble": "complex128",
    "ComplexFloat": "complex64", "ComplexHalf": "complex32", "QUInt8": "quint8", "QInt8": "qint8", "QInt32": "qint32",
    "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4",
}  # fmt: skip
"""dtype by the name of a storage's class, `FloatStorage`. Source: torch/storage.py, _dtype_to_storage_type_map."""

_CODES: Final = {
    "quint8": ("uint8", 0, 255), "qint8": ("int8", -128, 127), "qint32": ("int32", -(2**31), 2**31 - 1),
    "quint4x2": ("uint4", 0, 15), "quint2x4": ("uint2", 0, 3),
}  # fmt: skip
"""dtype, smallest and largest code of torch's quantized dtypes."""

_SCHEMES: Final = frozenset({"per_tensor_affine", "per_channel_affine"})
"""All that torch saves: other schemes are written as one of the two."""

_ALIASES: Final = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32",
                   "short": "int16", "cfloat": "complex64", "cdouble": "complex128"}  # fmt: skip
_STORAGE_CLASS: Final = re.compile(r"(?P<dtype>[A-Z]\w*)Storage")
_MAX_WRAPPED: Final = 8
"""Functions around the one that has the storage, as those of a parameter with attributes."""

_MAX_DIMENSIONS: Final = 64
"""Source: the most that torch's TensorIterator takes; nothing that is saved has as many."""

_INNER_FIRST: Final = frozenset({
    "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer", "torch._utils._rebuild_device_tensor_from_cpu_tensor",
})  # fmt: skip
"""Functions whose first argument is the tensor."""

_FROM_TYPE: Final = frozenset({"torch._tensor._rebuild_from_type_v2", "torch._tensor._rebuild_from_type"})
"""Functions whose arguments are another function, a type, and the arguments of that function."""


def tensor_of(value: object, name: str, storage_place: StoragePlace) -> Tensor | None:
    """Return the tensor that a value of a pickle stands for; None if it stands for none.

    Args:
        value: from `qtool.readers.pickles.machine`.
        name: what the file calls it.
        storage_place: place of a whole storage, by its key; None where its bytes are not there or not plain.

    Raises:
        FileFormatError: the value is damaged, or reaches beyond its storage.
    """
    call = _innermost(value)
    reader = _READERS.get(call.name) if call is not None else None
    if call is None or reader is None:
        return None
    try:
        return reader(call.arguments, name, storage_place)
    except FileFormatError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        msg = f"tensor {name!r} is damaged: {call.name} has arguments of another kind than torch writes"
        raise FileFormatError(msg) from error


def is_tensor(value: object) -> bool:
    """Return whether a value of a pickle stands for a tensor, as `tensor_of` would read it."""
    call = _innermost(value) if isinstance(value, Call) else None
    return call is not None and call.name in _READERS


def _innermost(value: object) -> Call | None:
    """Return the call that makes the tensor itself, without what is wrapped around it."""
    for _ in range(_MAX_WRAPPED):
        if not isinstance(value, Call):
            return None
        if value.name in _INNER_FIRST and value.arguments:
            value = value.arguments[0]
        elif value.name in _FROM_TYPE and len(value.arguments) > 2 and isinstance(value.arguments[2], tuple):
            value = Call(value.arguments[0], value.arguments[2])
        else:
            return value
    return None


def subclass_of(value: object) -> str | None:
    """Return the class of a tensor that has no bytes of its own, but wraps other tensors; None of all else.

    Example:
        >>> subclass_of(weight_of_torchao)
        'torchao.quantization.Int8Tensor'
    """
    wrapped = _wrapper(value)
    if wrapped is None:
        return None
    cls = wrapped.arguments[1]
    return str(cls) if isinstance(cls, Name) else None


def parts_of(value: object) -> list[tuple[object, object]]:
    """Return (name, value) of what a tensor consists of that has no bytes of its own."""
    call = _innermost(value)
    reader = _READERS.get(call.name) if call is not None else None
    wrapped = _wrapper(value) if reader is _of_subclass else None
    if wrapped is not None:
        state = wrapped.arguments[3] if len(wrapped.arguments) > 3 else None
        state = state[0] if isinstance(state, tuple) and state else state  # attributes, and those in slots
        return list(state.items()) if isinstance(state, dict) else []
    if call is None or reader is not _sparse or len(call.arguments) < 2:
        return []
    parts = call.arguments[1]
    return list(enumerate(parts)) if isinstance(parts, list | tuple) else []


def _wrapper(value: object) -> Call | None:
    """Return the call that rebuilds a tensor subclass which wraps others."""
    call = _innermost(value)
    if call is None or call.name != "torch._utils._rebuild_wrapper_subclass":
        return None
    for _ in range(_MAX_WRAPPED):
        if not isinstance(value, Call) or not value.arguments:
            return None
        if value.name in _FROM_TYPE:
            return value
        value = value.arguments[0]
    return None


def _plain(arguments: tuple[object, ...], name: str, storage_place: StoragePlace) -> Tensor:
    """Read `_rebuild_tensor_v2(storage, offset, size, stride, ...)`, and v1, which is the same."""
    storage, offset, shape, strides = arguments[:4]
    dtype, place = _storage(storage, storage_place)
    return _tensor(name, dtype, (offset, shape, strides), place)


def _with_dtype(arguments: tuple[object, ...], name: str, storage_place: StoragePlace) -> Tensor:
    """Read `_rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, ...)`."""
    storage, offset, shape, strides, _, _, dtype = arguments[:7]
    _, place = _storage(storage, storage_place)
    return _tensor(name, _dtype(dtype), (offset, shape, strides), place)


def _quantized(arguments: tuple[object, ...], name: str, storage_place: StoragePlace) -> Tensor:
    """Read `_rebuild_qtensor(storage, offset, size, stride, quantizer_params, ...)`."""
    storage, offset, shape, strides, parameters = arguments[:5]
    dtype, place = _storage(storage, storage_place)
    codes, qmin, qmax = _CODES.get(dtype, (dtype, 0, 0))
    scheme, scale, zero_point, *axis = _a_tuple(parameters)
    if not isinstance(scheme, Name) or scheme.name not in _SCHEMES:
        raise TypeError
    quantization = Quantization(
        dtype=codes,
        qmin=qmin,
        qmax=qmax,
        scale=_parameter(scale, f"{name}.scale", storage_place),
        zero_point=_parameter(zero_point, f"{name}.zero_point", storage_place),
        axis=_an_integer(axis[0]) if axis else None,
    )
    return _tensor(name, codes, (offset, shape, strides), place, quantization)


def _parameter(value: object, name: str, storage_place: StoragePlace) -> tuple[float, ...] | Tensor:
    """Return one number, or those of a list or tensor."""
    if isinstance(value, int | float):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(_a_number(number) for number in value)
    tensor = tensor_of(value, name, storage_place)
    if tensor is None:
        raise TypeError
    return tensor


def _without_bytes(arguments: tuple[object, ...], name: str, _storage_place: StoragePlace) -> Tensor:
    """Read `_rebuild_meta_tensor_no_storage(dtype, size, ...)`."""
    return _tensor(name, _dtype(arguments[0]), (0, arguments[1], None), None)


def _of_subclass(arguments: tuple[object, ...], name: str, _storage_place: StoragePlace) -> Tensor:
    """Read `_rebuild_wrapper_subclass(class, dtype, size, ...)`: its bytes are those of the tensors it wraps."""
    return _tensor(name, _dtype(arguments[1]), (0, arguments[2], None), None)


def _sparse(arguments: tuple[object, ...], name: str, storage_place: StoragePlace) -> Tensor:
    """Read `_rebuild_sparse_tensor(layout, (indices, values, size, ...))`; rows and columns may have indices each."""
    parts = _a_tuple(arguments[1])
    first = 2 if is_tensor(parts[2]) else 1
    values = tensor_of(parts[first], name, storage_place)
    if values is None:
        raise TypeError
    return _tensor(name, values.dtype, (0, parts[first + 1], None), None)


_READERS: Final[dict[str, Callable[[tuple[object, ...], str, StoragePlace], Tensor]]] = {
    "torch._utils._rebuild_tensor": _plain,
    "torch._utils._rebuild_tensor_v2": _plain,
    "torch._utils._rebuild_tensor_v3": _with_dtype,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_meta_tensor_no_storage": _without_bytes,
    "torch._utils._rebuild_wrapper_subclass": _of_subclass,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_sparse_csr_tensor": _sparse,
}


def storage_dtype(reference: Reference) -> tuple[str, str] | None:
    """Return key and dtype of a storage from its id; None of what is no storage.

    Example:
        >>> storage_dtype(Reference(("storage", Name("torch", "HalfStorage"), "0", "cpu", 12)))
        ('0', 'float16')
    """
    parts = reference.id
    if not isinstance(parts, tuple) or len(parts) < 5 or parts[0] != "storage" or not isinstance(parts[2], str | int):
        return None
    cls = parts[1].name if isinstance(parts[1], Name) else parts[1]
    found = _STORAGE_CLASS.fullmatch(cls) if isinstance(cls, str) else None
    # An untyped storage counts bytes.
    return None if found is None else (str(parts[2]), _OF_STORAGES.get(found["dtype"], "uint8"))


def _storage(value: object, storage_place: StoragePlace) -> tuple[str, Place | None]:
    """Return dtype and place of a storage: the id ('storage', class, key, device, number of elements)."""
    found = storage_dtype(value) if isinstance(value, Reference) else None
    if found is None or not isinstance(value, Reference) or not isinstance(value.id, tuple):
        raise TypeError
    key, dtype = found
    place = storage_place(key)
    if place is None:
        return dtype, None
    num_bytes = _an_integer(value.id[4]) * max(8, _bits(dtype)) // 8
    if not 0 <= num_bytes <= place.num_bytes:
        msg = f"storage {key[:50]!r} is said to have {num_bytes} bytes, and has {place.num_bytes}"
        raise FileFormatError(msg)
    place = Place(part=place.part, offset=place.offset, num_bytes=num_bytes)
    view = value.id[5] if len(value.id) > 5 else None
    return dtype, place if view is None else _view(place, view, dtype)


def _view(place: Place, view: object, dtype: str) -> Place:
    """Return the part of a storage that an older torch names (key, first element, number of elements)."""
    _, first, number = _a_tuple(view)
    bits = _bits(dtype)
    offset, num_bytes = _an_integer(first) * bits // 8, (_an_integer(number) * bits + 7) // 8
    if min(offset, num_bytes) < 0 or offset + num_bytes > place.num_bytes:
        msg = f"a view of bytes {offset}..{offset + num_bytes} of a storage that has {place.num_bytes}"
        raise FileFormatError(msg)
    return Place(part=place.part, offset=place.offset + offset, num_bytes=num_bytes)


def _tensor(
    name: str,
    dtype: str,
    layout: tuple[object, object, object],
    place: Place | None,
    quantization: Quantization | None = None,
) -> Tensor:
    """Return a tensor, its bytes cut out of its storage.

    Args:
        name: what the file calls it.
        dtype: of its elements.
        layout: first element in the storage, shape, strides; None for C order.
        place: of the storage.
        quantization: what its codes stand for.
    """
    first = _an_integer(layout[0])
    shape = _sizes(layout[1])
    strides = None if layout[2] is None else _sizes(layout[2])
    if strides is not None and len(strides) != len(shape):
        raise ValueError
    if strides is not None and _is_dense(shape, strides):
        strides = None
    if place is not None:
        place = _part(name, place, first, _extent(shape, strides), _bits(dtype))
    return Tensor(name=name, dtype=dtype, shape=shape, place=place, strides=strides, quantization=quantization)


def _part(name: str, place: Place, first: int, extent: int, bits: int) -> Place:
    """Return the place of `extent` elements of a storage from element `first` on."""
    offset, num_bytes = first * bits // 8, (extent * bits + 7) // 8
    if first < 0 or (num_bytes and offset + num_bytes > place.num_bytes):
        msg = f"tensor {name!r} takes bytes {offset}..{offset + num_bytes} of a storage that has {place.num_bytes}"
        raise FileFormatError(msg)
    return Place(part=place.part, offset=place.offset + offset, num_bytes=num_bytes)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements lie in C order, one after the other."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size not in (1, 0) and stride != expected:
            return False
        expected *= size
    return True


def _extent(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    """Return how many elements of the storage the tensor spans."""
    if 0 in shape:
        return 0
    if strides is None:
        extent = 1
        for size in shape:
            extent *= size
        return extent
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _sizes(value: object) -> tuple[int, ...]:
    sizes = tuple(_an_integer(size) for size in _a_tuple(value))
    if len(sizes) > _MAX_DIMENSIONS or any(not 0 <= size < 1 << 63 for size in sizes):
        raise ValueError
    return sizes


def _a_tuple(value: object) -> tuple[object, ...]:
    if isinstance(value, Call) and value.name == "torch.jit._pickle.build_intlist" and value.arguments:
        value = value.arguments[0]
    if not isinstance(value, tuple | list):
        raise TypeError
    return tuple(value)


def _a_number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError
    return value


def _an_integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError
    return value


def _dtype(value: object) -> str:
    """Return the word for a dtype such as `torch.float16`."""
    if not isinstance(value, Name):
        raise TypeError
    name = _ALIASES.get(value.name, value.name)
    return _CODES[name][0] if name in _CODES else name


def _bits(dtype: str) -> int:
    """Return the bits of an element in its storage."""
    codes = _CODES[dtype][0] if dtype in _CODES else dtype
    return BITS.get(codes, 8)
