"""What a pickled module holds, by the names its state dict would have; its class is not imported.

Source: torch/nn/modules/module.py for the attributes of modules, torch/ao/nn/quantized/modules/conv.py for those that
pickle a tuple, and aten/src/ATen/native/quantized/cpu/fbgemm_utils.cpp for packed parameters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qtool.readers.pickles.values import Call, Instance

if TYPE_CHECKING:
    from collections.abc import Iterator

    Children = Iterator[tuple[object, object]]

_TREES: Final = ("_parameters", "_buffers", "_modules")
_NOT_LOOKED_AT: Final = re.compile(
    r".*_hooks\w*|_non_persistent_buffers_set|_is_full_backward_hook|_code|_graph\w*|_tracer\w*|meta"
)
_GRAPH_MODULE: Final = re.compile(r"torch\.fx\.graph_module\.reduce_(?:graph|package|deploy_graph)_module")
_QUANTIZED_CONV: Final = re.compile(
    r"torch\.(?:ao\.)?nn\.(?:intrinsic\.)?quantized\.(?:dynamic\.)?modules\.\w*conv\w*\.\w+"
)
_CONV_STATE: Final = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed",
                      "output_padding", "groups", "padding_mode", "weight", "bias", "scale", "zero_point")  # fmt: skip
"""What the pickled state of a quantized convolution begins with."""

_SCRIPT_OBJECT: Final = "torch.ScriptObject"
_PACKED_PREFIX: Final = "__torch__.torch.classes."
_GATES: Final = ("ih", "hh")


def class_of(value: object) -> str | None:
    """Return the class of a pickled module or packed parameter, and None of anything else.

    Example:
        >>> class_of(Instance(Name("torch.nn", "Linear"), (), {"_modules": {}, "_parameters": {}}))
        'torch.nn.Linear'
    """
    if isinstance(value, Call) and _GRAPH_MODULE.fullmatch(value.name):
        return "torch.fx.GraphModule"
    if not isinstance(value, Instance):
        return None
    if value.name == _SCRIPT_OBJECT:
        return _script_state(value)[1]
    if _is_tree(value.attributes) or (_QUANTIZED_CONV.fullmatch(value.name) and isinstance(value.state, tuple)):
        return value.name
    return None


def attributes_of(value: object) -> dict[object, object]:
    """Return the attributes of a pickled module by name."""
    if isinstance(value, Call):
        content = value.arguments[0] if value.arguments else None
        return content if isinstance(content, dict) else {}
    if isinstance(value, Instance) and isinstance(value.state, tuple):
        return dict(zip(_CONV_STATE, value.state, strict=False))
    return value.attributes if isinstance(value, Instance) else {}


def children_of(value: object) -> Children:
    """Yield (name, value) of what a module or packed parameter holds."""
    if isinstance(value, Instance) and value.name == _SCRIPT_OBJECT:
        yield from _packed_children(*_script_state(value))
        return
    attributes = attributes_of(value)
    for tree in _TREES:
        content = attributes.get(tree)
        if isinstance(content, dict):
            yield from content.items()
    for name, content in attributes.items():
        if name not in _TREES and isinstance(name, str) and not _NOT_LOOKED_AT.fullmatch(name):
            yield name, content


def _is_tree(attributes: dict[object, object]) -> bool:
    return all(isinstance(attributes.get(tree), dict) for tree in _TREES)


def _script_state(value: Instance) -> tuple[object, str]:
    """Return the state of an object of torch's own C++ classes, and the name of its class."""
    if isinstance(value.state, tuple) and len(value.state) == 2 and isinstance(value.state[1], str):
        return value.state[0], value.state[1].removeprefix(_PACKED_PREFIX)
    return None, _SCRIPT_OBJECT


def _packed_children(state: object, cls: str) -> Children:
    """Yield the parts of packed parameters: weight and bias of a linear layer, two of them of a recurrent cell."""
    parts = state if isinstance(state, tuple | list) else ()
    if cls != "rnn.CellParamsBase" or len(parts) < 5 or not isinstance(parts[4], list | tuple):
        yield from enumerate(parts)
        return
    kind, biases, _, reduce_range, packed = parts[:5]
    yield "kind", kind
    if isinstance(reduce_range, list | tuple) and reduce_range:
        yield "reduce_range", reduce_range[0]
    yield from zip(_GATES, packed, strict=False)
    if isinstance(biases, list | tuple):
        yield from zip((f"bias_{gate}" for gate in _GATES), biases, strict=False)
