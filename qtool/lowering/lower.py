"""Lower: from the reference program to a module whose int8 ops run on an engine.

    dq(c) -> conv -> relu -> q          becomes   conv kernel of the engine, codes to codes
    dq(c) -> view, pad, max_pool -> q   becomes   the same op on codes, where both sides have one grid
    dq(a), dq(b) -> add -> q            becomes   one pass from codes to codes, see value_ops.py
    dq(a) -> softmax, window mean -> q  stays     float between decoded codes

The graph is read by structure alone, so a program that lost its stamps is lowered the same.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.fx import GraphModule, Node, map_arg

from qtool.capture.program import tensor_of
from qtool.capture.view_inverse import SPLITS
from qtool.errors import MismatchError
from qtool.lowering.casts import Dequantize, Quantize, ToCodes, ToQuint8
from qtool.lowering.grid import Grid
from qtool.lowering.mac import Mac
from qtool.lowering.mac_nodes import WEIGHT_DEQUANTIZES, label_of
from qtool.lowering.max_pool import MaxPool
from qtool.lowering.missing_kernel import PACKED_ENGINES, missing_kernel
from qtool.lowering.packed import PackedMac
from qtool.lowering.plain import PlainConv, plain_mac
from qtool.lowering.shared_weights import share_weights
from qtool.lowering.value_ops import Average, LookUp, Pair, value_kernel
from qtool.passes import qdq_ops
from qtool.passes.match import conv_geometry
from qtool.passes.ops import PATTERNS, SHARING, clamp_bounds, classify, pad_mode, value_inputs
from qtool.types import MAC_OPS, Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import fx

aten = torch.ops.aten

KERNELS = "qtool/kernels"
"""Where a lowered module holds its kernels; with a slash, so that no attribute of a model bears the name."""

CODES = "codes"
"""Key in a lowered node's meta: True where its value is the codes of a quantized edge."""


def lower(module: GraphModule, engines: Mapping[str, str]) -> GraphModule:
    """Edit the module of a reference program so that its int8 ops run on engines; returns its argument.

    Args:
        module: the reference program.
        engines: torch engine by the name of every node that `mac_nodes` returns; they may differ.

    Raises:
        MismatchError: the program's activations are int8, and torch's engines take uint8; or an engine has no kernel
            for a node.
    """
    check_unsigned(module, engines)
    module.add_module(KERNELS, nn.Module())
    for node in list(module.graph.nodes):
        if node.target is qdq_ops.quantize_per_tensor:
            _lower_edge(module, node, engines)
    _lower_casts(module)
    _join_casts(module)
    share_weights(module)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    _drop_unused_tensors(module)
    module.graph.lint()
    module.recompile()
    return module


def check_unsigned(module: GraphModule, engines: Mapping[str, str]) -> None:
    """Refuse int8 activations before a kernel does; shifted to uint8 they could saturate, which nobody checked."""
    engine = " or ".join(sorted(set(engines.values()))) or "torch"
    if any(n.target is qdq_ops.quantize_per_tensor and Grid.of(n).dtype is not torch.uint8 for n in module.graph.nodes):
        msg = (
            f"the model's activations are int8, and {engine} takes uint8: it was made for a runtime outside torch. "
            f"Prepare the model for {engine} with target.backend, or run what qtool.convert returned, without an engine"
        )
        raise MismatchError(msg)


def _lower_edge(module: GraphModule, quantize: Node, engines: Mapping[str, str]) -> None:
    """Replace one quantize node and the op before it by the op on codes, if there is one."""
    value: Any = quantize.args[0]
    activation, node = split_activation(value)
    made = None
    if PATTERNS.get(node.target) in MAC_OPS:
        made = _lower_mac(module, quantize, node, activation, engines)
    elif classify(node)[0] in SHARING:
        made = _lower_on_codes(module, quantize, node, activation)
    elif classify(node)[0] is not None:
        made = _lower_values(module, quantize, node, activation)
    if made is None:
        return
    made.meta = {**quantize.meta, CODES: True}
    quantize.replace_all_uses_with(made)
    module.graph.erase_node(quantize)


def split_activation(value: Node) -> tuple[Node | None, Node]:
    """Return the activation fused into an op and the op; an activation that reads codes itself is the op."""
    if PATTERNS.get(value.target) is not Op.ACTIVATION or len(value.users) != 1:
        return None, value
    source: Any = value.args[0]
    if is_dequantize(source) or source.op != "call_function" or len(source.users) != 1:
        return None, value
    return value, source


def is_dequantize(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node decodes the codes of an edge."""
    return isinstance(node, Node) and node.target is qdq_ops.dequantize_per_tensor


# --- convolution and linear


def _lower_mac(
    module: GraphModule, quantize: Node, node: Node, activation: Node | None, engines: Mapping[str, str]
) -> Node | None:
    if not is_dequantize(node.args[0]):
        return None
    mac = describe(module, quantize, node, activation)
    if mac is None:
        return None
    codes, engine = node.args[0].args[0], engines[node.name]  # type: ignore[union-attr]
    check_kernel(node, mac, engine)
    kernel = PackedMac(mac, engine) if engine in PACKED_ENGINES else plain_mac(mac, engine)
    name = _add(module, kernel)
    with module.graph.inserting_before(quantize):
        if not isinstance(kernel, PackedMac):
            return module.graph.call_module(name, (codes,))
        wrapped = module.graph.call_module(_add(module, ToQuint8(mac.input)), (codes,))
        result = module.graph.call_module(name, (wrapped,))
        result.meta = {**quantize.meta, CODES: True}
        return module.graph.call_module(_add(module, ToCodes()), (result,))


def check_kernel(node: Node, mac: Mac, engine: str) -> None:
    """Refuse a layer that the engine's kernel must never be given: a file made for another one may hold it."""
    op, shape = PATTERNS[node.target], mac.codes.shape
    why = missing_kernel(engine, op, shape, mac.geometry, has_scale_per_channel=bool(mac.scales.dim()))
    if why:
        name = label_of(node)
        msg = f"{name!r} cannot run on {engine}: {why}. Run on another engine, or prepare the model for {engine}"
        raise MismatchError(msg)


def describe(module: GraphModule, quantize: Node, node: Node, activation: Node | None) -> Mac | None:
    """Return the layer as data, or None where its weight is not stored in int8."""
    weight: Any = node.args[1]
    if weight.target not in WEIGHT_DEQUANTIZES:
        return None
    codes = tensor_of(module, weight.args[0])
    assert codes is not None
    if weight.target is qdq_ops.dequantize_per_channel:
        scales = tensor_of(module, weight.args[1])
        assert scales is not None
    else:
        scales = torch.tensor(weight.args[1], dtype=torch.float32)
    output = Grid.of(quantize)
    low, high = clamp_bounds(activation) if activation is not None else (None, None)
    return Mac(
        input=Grid.of(node.args[0]),  # type: ignore[arg-type]
        output=output,
        codes=codes.detach(),
        scales=scales.detach(),
        bias=_bias(module, node),
        geometry=None if PATTERNS[node.target] is Op.LINEAR else conv_geometry(node),
        bounds=output.code_bounds(low, high),
        has_relu=low == 0.0,
    )


def _bias(module: GraphModule, node: Node) -> torch.Tensor | None:
    bias = tensor_of(module, node.args[2]) if len(node.args) > 2 else None
    return None if bias is None else bias.detach()


# --- ops on codes


def _lower_on_codes(module: GraphModule, quantize: Node, node: Node, activation: Node | None) -> Node | None:
    """Let an op that moves, chooses or clamps values do so with codes, if all its grids are the result's."""
    steps = _steps(node)
    operands = [source for step in steps for source in step.all_input_nodes if source not in steps]
    grid = Grid.of(quantize)
    values = [source for source in operands if is_dequantize(source)]
    if not values or any(Grid.of(source) != grid for source in values):
        return None
    if any(isinstance(s.meta.get("val"), torch.Tensor) and not is_dequantize(s) for s in operands):
        return None
    graph, op, codes = module.graph, PATTERNS[node.target], values[0].args[0]
    with graph.inserting_before(quantize):
        if op is Op.ACTIVATION:
            result = _clamped(graph, codes, node, grid)
        elif op is Op.MAX_POOL:
            result = graph.call_module(_add(module, MaxPool(node)), (codes,))
        else:
            result = _copied(graph, steps, grid)
        return _clamped(graph, result, activation, grid) if activation is not None else result


def _steps(node: Node) -> list[Node]:
    source: Any = node.args[0]
    return [source, node] if node.target is operator.getitem and source.target in SPLITS else [node]


def _copied(graph: fx.Graph, steps: list[Node], grid: Grid) -> Node:
    """Append copies of the nodes that read codes in place of decoded codes."""
    made: dict[Node, Any] = {}

    def on_codes(source: Node) -> Any:  # noqa: ANN401
        return made.get(source, source.args[0] if is_dequantize(source) else source)

    for step in steps:
        args, kwargs = map_arg(step.args, on_codes), map_arg(step.kwargs, on_codes)
        target: Any = step.target
        if pad_mode(step) == "constant":
            target, args, kwargs = aten.constant_pad_nd.default, (args[0], args[1], grid.zero_point), {}
        made[step] = graph.call_function(target, args, kwargs)
    return made[steps[-1]]


def _clamped(graph: fx.Graph, codes: Any, activation: Node, grid: Grid) -> Node:  # noqa: ANN401
    bounds = grid.code_bounds(*clamp_bounds(activation))
    return graph.call_function(aten.clamp.default, (codes, *bounds))


def _lower_values(module: GraphModule, quantize: Node, node: Node, activation: Node | None) -> Node | None:
    """Replace an op that computes values by a kernel from codes to codes, if there is one."""
    operands: Any = value_inputs(node, PATTERNS[node.target])
    if not all(map(is_dequantize, operands)):
        return None
    output = Grid.of(quantize)
    bounds = output.code_bounds(*(clamp_bounds(activation) if activation is not None else (None, None)))
    kernel = value_kernel(node, [Grid.of(operand) for operand in operands], output, bounds)
    if kernel is None:
        return None
    with module.graph.inserting_before(quantize):
        return module.graph.call_module(_add(module, kernel), tuple(operand.args[0] for operand in operands))


# --- casts

READ_BOTH = (Pair, Average, LookUp, Dequantize)
"""Kernels that read plain codes and torch's quantized tensors."""

FOR_IMAGES = (ToQuint8, PlainConv, MaxPool)
"""Kernels that want images in channels_last; packed layers, behind their cast, do."""


def _lower_casts(module: GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.target not in (qdq_ops.quantize_per_tensor, qdq_ops.dequantize_per_tensor):
            continue
        if not isinstance(node.args[0], Node) or node.args[0].op == "get_attr":
            continue  # a stored weight of a layer that stayed float
        is_quantize = node.target is qdq_ops.quantize_per_tensor
        grid = Grid.of(node)
        cast = Quantize(grid, is_for_images=_is_for_images(module, node)) if is_quantize else Dequantize(grid)
        with module.graph.inserting_before(node):
            made = module.graph.call_module(_add(module, cast), (node.args[0],))
        made.meta = {**node.meta, CODES: is_quantize}
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)


def _join_casts(module: GraphModule) -> None:
    """Let kernels that can read what a packed layer wrote, without a cast between them."""
    for node in list(module.graph.nodes):
        if not _is_kernel(module, node, ToCodes):
            continue
        written = node.args[0]
        for reader in list(node.users):
            if _is_kernel(module, reader, ToQuint8):
                reader.replace_all_uses_with(written)
                module.graph.erase_node(reader)
            elif _is_kernel(module, reader, READ_BOTH):
                reader.replace_input_with(node, written)
    for node in list(module.graph.nodes):
        if _is_kernel(module, node, Pair):
            _join_pair(module, node)


def _join_pair(module: GraphModule, pair: Node) -> None:
    """Let a sum or product leave as what packed layers read, where one does and all others can read that too."""
    readers = list(pair.users)
    casts = [reader for reader in readers if _is_kernel(module, reader, ToQuint8)]
    if not casts or not all(_is_kernel(module, reader, (ToQuint8, *READ_BOTH)) for reader in readers):
        return
    kernel: Any = module.get_submodule(str(pair.target))
    kernel.gives_quint8 = True
    for cast in casts:
        cast.replace_all_uses_with(pair)
        module.graph.erase_node(cast)


def _is_for_images(module: GraphModule, made: Node) -> bool:
    """Whether only convolutions and the like read codes of images."""
    readers = list(made.users)
    return bool(readers) and all(_is_kernel(module, reader, FOR_IMAGES) for reader in readers)


def _is_kernel(module: GraphModule, node: Any, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> bool:  # noqa: ANN401
    return (
        isinstance(node, Node) and node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), kind)
    )


def _add(module: GraphModule, kernel: nn.Module) -> str:
    kernels = module.get_submodule(KERNELS)
    name = str(len(kernels._modules))
    kernels.add_module(name, kernel)
    return f"{KERNELS}.{name}"


def _drop_unused_tensors(module: GraphModule) -> None:
    """Let go of the tensors that only the reference program read: their codes are packed now."""
    used = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    for path, _ in (*list(module.named_parameters()), *list(module.named_buffers())):
        if path not in used and not path.startswith(f"{KERNELS}."):
            owner, _, name = path.rpartition(".")
            delattr(module.get_submodule(owner), name)
