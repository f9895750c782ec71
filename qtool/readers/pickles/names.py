"""Tells the names that a pickle of weights needs, and that do no harm, from all others.

Source: torch/_weights_only_unpickler.py, `_get_allowed_globals`, and what torch.jit's pickler names itself
(torch/csrc/jit/serialization/pickler.cpp), which only its own reader in C++ looks up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtool.readers.pickles.values import Name

_REBUILD: Final = frozenset(
    f"torch._utils._rebuild_{what}"
    for what in ("parameter", "parameter_with_state", "qtensor", "tensor", "tensor_v2", "tensor_v3", "sparse_tensor",
                 "sparse_csr_tensor", "meta_tensor_no_storage", "nested_tensor", "wrapper_subclass",
                 "device_tensor_from_numpy", "device_tensor_from_cpu_tensor")
)  # fmt: skip
_PLAIN: Final = frozenset({
    "collections.OrderedDict", "collections.Counter", "collections.defaultdict", "_codecs.encode",
    "torch._tensor._rebuild_from_type_v2", "torch._tensor._rebuild_from_type", "torch.nn.parameter.Parameter",
    "torch.nn.parameter.Buffer", "torch.serialization._get_layout", "torch.Tensor", "torch.Size", "torch.device",
})  # fmt: skip
_BUILTINS: Final = frozenset(
    f"builtins.{name}" for name in ("set", "frozenset", "complex", "bytearray", "bytes", "int", "float", "bool", "str",
                                    "list", "dict", "tuple", "slice", "range", "object")
)  # fmt: skip
HARMLESS: Final = _REBUILD | _PLAIN | _BUILTINS
"""Functions and classes that make tensors and plain values and do nothing else."""

_TORCH_WORDS: Final = re.compile(
    r"torch(\.cuda|\.storage|\.sparse|\.cuda\.sparse)?\.[A-Z]\w*(Storage|Tensor)"
    r"|torch\.storage\._LegacyStorage"
    r"|torch\.(float|bfloat|complex|u?int|q?u?int|bits)\d+\w*|torch\.(bool|float|double|half|long|int|short|uint8)"
    r"|torch\.per_(tensor|channel)_(affine|symmetric|affine_float_qparams)"
    r"|torch\.(strided|sparse_coo|sparse_cs[rc]|sparse_bs[rc]|contiguous_format|channels_last\w*|preserve_format)"
)
_OF_TORCHSCRIPT: Final = re.compile(r"torch\.jit\._pickle\.\w+|__torch__(\.[\w.]+)?")


def is_harmless(name: Name) -> bool:
    """Return whether a name is one that loading may look up and call without running anything of the file's choice.

    Example:
        >>> is_harmless(Name("torch", "FloatStorage")), is_harmless(Name("os", "system"))
        (True, False)
    """
    full = str(name)
    return full in HARMLESS or bool(_TORCH_WORDS.fullmatch(full)) or bool(_OF_TORCHSCRIPT.fullmatch(full))
