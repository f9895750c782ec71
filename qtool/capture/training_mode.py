"""What differs between a model in train mode and in eval mode, where torch.export needs help or a word is due."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from qtool.capture.functional import DROPOUTS, place
from qtool.errors import CaptureError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten

CUMULATIVE = -1.0
"""Momentum that a captured batch norm bears for `momentum=None`: the average of all batches so far.

torch's own code divides by the number of batches, which no graph can hold; `BatchNormPoint` knows the word.
"""

_TRAINING_FLAGS: dict[Any, int] = {**dict.fromkeys(DROPOUTS, 2), aten.batch_norm.default: 5}
"""Where an op that differs between train and eval mode says which of them it is in."""


def name_cumulative_averages(model: nn.Module) -> None:
    """Let every batch norm with `momentum=None` say so by a number."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is None:
            module.momentum = CUMULATIVE


def check_inference(exported: ExportedProgram) -> None:
    """Refuse a model that in eval mode draws random numbers, or whose answer depends on the other samples.

    Raises:
        CaptureError: a dropout or a batch norm is in train mode; the message names its module.
    """
    for node in exported.graph.nodes:
        flag = _TRAINING_FLAGS.get(node.target)
        if flag is None or not node.args[flag]:
            continue
        if node.target is aten.batch_norm.default:
            what = "normalises with the statistics of the batch, so an answer depends on the other samples"
            remedy = "let it track running statistics, and give F.batch_norm training=self.training"
        else:
            what = "is random"
            remedy = "give F.dropout training=self.training, or use nn.Dropout"
        msg = f"{node.target} {place(node)} {what}, in eval mode too; {remedy}"
        raise CaptureError(msg)


def plain_outputs(exported: ExportedProgram) -> ExportedProgram:
    """Let a program return a plain tuple where it returns a named one: no file may name a class.

    GoogLeNet's auxiliary heads come as one in train mode. Returns its argument.
    """
    spec = exported.call_spec.out_spec
    if spec is not None:
        exported._module_call_graph[0].signature.out_spec = _plain(spec)  # type: ignore[union-attr]
    return exported


def _plain(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    if spec.is_leaf():
        return spec
    children = [_plain(child) for child in spec.children()]
    is_named = spec.type is namedtuple
    return pytree.TreeSpec(tuple if is_named else spec.type, None if is_named else spec.context, children)
