"""Ops called with constants: from Python, finding the types of the arguments costs more than a small layer.

`torch.ops.quantized.conv2d(x, packed, scale, zero_point)` takes 26 microseconds for one pixel, and a function of a
graph that holds all but `x` as constants takes 7, on the same kernel. Only graphs of one op are made of torch's
TorchScript here, and where torch has it no more, the op is called as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

OPTIONAL_NUMBERS = "List[Optional[number]]"
"""A type of arguments: constants of it are made in the graph, as lists of floats are of another type."""


def op_call(op: Any, *constants: Any) -> Callable[[Tensor], Tensor]:  # noqa: ANN401 - a torch op and what it takes
    """Return a function of an op's first argument, a tensor, with all others as they are now.

    Args:
        op: an overload that returns one tensor.
        constants: all arguments after the first.
    """
    if not hasattr(torch._C, "_create_function_from_graph"):
        return lambda x: op(x, *constants)
    graph: Any = torch._C.Graph()
    arguments = zip(op._schema.arguments[1:], constants, strict=True)
    values = [graph.addInput("x"), *(_value(graph, str(argument.type), value) for argument, value in arguments)]
    node = graph.insertNode(graph.create(op._schema.name, values, 1))
    graph.registerOutput(node.output())
    made: Callable[..., Tensor] = torch._C._create_function_from_graph("op_call", graph)
    tensors = tuple(value for value in constants if isinstance(value, torch.Tensor))
    return (lambda x: made(x, *tensors)) if tensors else made


def _value(graph: Any, kind: str, value: Any) -> Any:  # noqa: ANN401 - of torch's C++ side
    if isinstance(value, torch.Tensor):
        return graph.addInput()  # oneDNN's packed tensors cannot be constants
    if kind != OPTIONAL_NUMBERS:
        return graph.insertConstant(list(value) if isinstance(value, tuple) else value)
    numbers = [graph.insertConstant(number) for number in value]
    made = graph.insertNode(graph.create("prim::ListConstruct", numbers, 1))
    number_type = torch._C.NumberType.get()
    made.output().setType(torch._C.ListType(torch._C.OptionalType(number_type)))
    return made.output()
