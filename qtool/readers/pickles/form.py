"""Who wrote a pickled model, and what it is in one phrase, told from its layers and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qtool.readers.facts import Compute, Role
from qtool.readers.pickles.fake_quantized import has_fake_quantize, has_observers
from qtool.readers.pickles.torch_ao import is_of_graph
from qtool.readers.pickles.torchao import has_torchao

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qtool.readers.facts import Node
    from qtool.readers.pickles.table import Table

_LIGHTNING: Final = "pytorch-lightning_version"
_HOW: Final = {Compute.STATIC: "statically", Compute.DYNAMIC: "dynamically"}


def producer_of(table: Table, nodes: Sequence[Node]) -> str | None:
    """Return who wrote the model.

    Example:
        >>> producer_of(table, nodes)
        'torch.ao (FX)'
    """
    if has_torchao(table):
        return "torchao"
    if has_fake_quantize(table) or has_observers(table) or any(node.compute is not Compute.FLOAT for node in nodes):
        return f"torch.ao ({'FX' if is_of_graph(table) else 'eager'})"
    version = table.word("", _LIGHTNING)
    return f"pytorch-lightning {version}" if version else "torch"


def form_of(table: Table, nodes: Sequence[Node]) -> str:
    """Return what the model is in one phrase.

    Example:
        >>> form_of(table, nodes)
        'statically quantized state dict'
    """
    roots = table.content.roots
    whole = (
        "module"
        if any(table.class_of(root) for root in roots)
        else "state dict"
        if roots
        else "tensors"
        if table.content.tensors
        else "values"
    )
    computes = {node.compute for node in nodes}
    if has_fake_quantize(table):
        form = "training checkpoint (fake-quantized)"
    elif has_observers(table):
        form = "calibration checkpoint (observed, not quantized yet)"
    elif not computes - {Compute.FLOAT}:
        form = f"float {whole}" if computes else whole
    elif computes & _HOW.keys():
        form = f"{' and '.join(_HOW[each] for each in _HOW if each in computes)} quantized {whole}"
    else:
        weights = [node.operand(Role.WEIGHT) for node in nodes if node.compute is Compute.WEIGHT_ONLY]
        has_codes = any(weight is not None and weight.quantization is not None for weight in weights)
        form = f"{whole} with {'quantized' if has_codes else 'float16'} weights"
    return f"{form} with optimizer state" if table.content.has_optimizer else form
