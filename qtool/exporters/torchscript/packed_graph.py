"""From the reference program to a graph of torch's packed ops, which TorchScript can store.

    dq(c) -> conv -> relu -> q      becomes      quint8(c) -> quantized.conv2d_relu -> int_repr -> clamp

Convolutions and linear layers become packed ops; all else keeps the arithmetic of the reference program. A weight
that several layers share, with its bias, is packed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from qtool.errors import MismatchError
from qtool.lowering import lower
from qtool.lowering.mac_nodes import label_of
from qtool.lowering.packed import PackedMac
from qtool.passes import qdq_ops
from qtool.passes.ops import PATTERNS
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from qtool.lowering.mac import Mac

aten = torch.ops.aten

PACKS: Final = "qtool/packs"
"""Where the packed weights stand in the module; with a slash, so that no attribute of a model bears the name."""


def pack_weights(module: GraphModule, engine: str) -> dict[Node, Node]:
    """Replace each int8 convolution and linear layer by the engine's packed op; `module` is edited.

    Returns:
        By node that held the codes of a quantized edge, the one that holds them now; it may be a quantized tensor.

    Raises:
        MismatchError: the activations are int8, or the engine has no kernel for a node, or none that can be stored.
    """
    lower.check_unsigned(module, {"": engine})
    module.add_module(PACKS, torch.nn.Module())
    packing = _Packing(module, engine)
    for node in list(module.graph.nodes):
        if node.target is qdq_ops.quantize_per_tensor:
            packing.pack_edge(node)
    _join_quint8(module)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    left = set(module.graph.nodes)  # codes that only packed ops read are never unwrapped
    return {before: codes if codes in left else result for before, (codes, result) in packing.replaced.items()}


class _Packing:
    """Packs one edge at a time; remembers what is packed already."""

    def __init__(self, module: GraphModule, engine: str) -> None:
        self.module = module
        self.graph = module.graph
        self.engine = engine
        self.replaced: dict[Node, tuple[Node, Node]] = {}
        self._packs: dict[Any, str] = {}

    def pack_edge(self, quantize: Node) -> None:
        """Replace a quantize node and the layer before it, if there is one, by a packed op."""
        activation, node = lower.split_activation(quantize.args[0])  # type: ignore[arg-type]
        if PATTERNS.get(node.target) not in MAC_OPS or not lower.is_dequantize(node.args[0]):
            return
        mac = lower.describe(self.module, quantize, node, activation)
        if mac is None:
            return
        lower.check_kernel(node, mac, self.engine)
        _check_storable(node, mac, self.engine)
        kernel = PackedMac(mac, self.engine)
        with self.graph.inserting_before(quantize):
            codes, result = self._add_op(node, mac, kernel)
        codes.meta.update(quantize.meta)
        quantize.replace_all_uses_with(codes)
        self.replaced[quantize] = codes, result

    def _add_op(self, node: Node, mac: Mac, kernel: PackedMac) -> tuple[Node, Node]:
        """Append the packed op and the ops around it; returns the nodes of the output codes and of the op."""
        call, read = self.graph.call_function, node.args[0]
        assert isinstance(read, type(node))
        grid = (mac.input.scale, mac.input.zero_point)
        x = call(aten._make_per_tensor_quantized_tensor.default, (read.args[0], *grid))
        added = _missing_dims(read.meta["val"].dim(), mac.num_dims)
        for dim in added:
            x = call(aten.unsqueeze.default, (x, dim))
        pack = self.graph.create_node("get_attr", self._pack_path(node, mac, kernel))
        y = call(kernel.run, (x, pack, mac.output.scale, mac.output.zero_point))
        y.meta["custom"] = node.meta.get("custom", {})
        codes = call(aten.int_repr.default, (y,))
        if kernel.clamp is not None:
            codes = call(aten.clamp.default, (codes, *kernel.clamp))
        for dim in reversed(added):
            codes = call(aten.squeeze.dim, (codes, dim))
        return codes, y

    def _pack_path(self, node: Node, mac: Mac, kernel: PackedMac) -> str:
        """Return where the packed weight stands: the same place for the same weight, bias and geometry."""
        bias = None if mac.bias is None else mac.bias.data_ptr()
        key = (mac.codes.data_ptr(), mac.codes.shape, mac.scales.data_ptr(), bias, mac.geometry)
        if key not in self._packs:
            packs, name = self.module.get_submodule(PACKS), f"{label_of(node)}.weight".replace(".", "_")
            while hasattr(packs, name):
                name += "_"
            setattr(packs, name, kernel.packed)
            self._packs[key] = f"{PACKS}.{name}"
        return self._packs[key]


def _check_storable(node: Node, mac: Mac, engine: str) -> None:
    # Source: qconv_unpack.cpp, which saving calls.
    if engine == "qnnpack" and mac.num_dims == 3:
        msg = (
            f"{label_of(node)!r} is a convolution over three dimensions, whose packed weights torch cannot save for "
            f"qnnpack; export for another engine (--engine fbgemm), or to pt2"
        )
        raise MismatchError(msg)


def _missing_dims(rank: int, num_dims: int) -> tuple[int, ...]:
    """Return the dimensions to add, in order, until a packed op takes an input of that rank."""
    if num_dims == 0:
        return (0,) if rank == 1 else ()
    height = (-2,) if num_dims == 1 else ()
    return (*height, 0) if rank == num_dims + 1 else height


def _join_quint8(module: GraphModule) -> None:
    """Let a packed op read what the packed op before it wrote, where nothing clamps the codes between them."""
    for node in list(module.graph.nodes):
        if node.target is not aten._make_per_tensor_quantized_tensor.default:
            continue
        source: Any = node.args[0]
        if source.target is aten.int_repr.default and tuple(source.args[0].args[2:4]) == tuple(node.args[1:3]):
            node.replace_all_uses_with(source.args[0])
            module.graph.erase_node(node)
