"""Export to .pt2: plain ATen that `torch.export.load` opens with nothing but torch imported."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from qtool.capture.program import strip_origins
from qtool.exporters.aten import DECOMPOSITIONS
from qtool.exporters.formats import ExportedModel
from qtool.exporters.guards import insert_guards
from qtool.exporters.node_meta import keep_only_stamps, unchanged_meta
from qtool.exporters.output_names import output_names
from qtool.readers.marks import marks_of
from qtool.runtime.container import pack_entries
from qtool.types import Stage

if TYPE_CHECKING:
    from qtool.runtime.converted import ConvertedModel


@torch.no_grad()
def pt2_files(converted: ConvertedModel) -> ExportedModel:
    """Return the bytes of a .pt2 with the model in plain ATen; the same model gives the same bytes.

    Weights stay int8. The stamp lies in `extra/qtool/stamp.json`, each node's in `meta["custom"]` and in a guard.
    """
    with unchanged_meta(converted.exported):
        program = converted.exported.run_decompositions(DECOMPOSITIONS)
    stamp = dataclasses.replace(converted.stamp, stage=Stage.EXPORTED)
    program = insert_guards(keep_only_stamps(strip_origins(program)), marks_of(stamp))
    return ExportedModel(pack_entries(program, stamp, {}))


@torch.no_grad()
def pt2_differences(converted: ConvertedModel, files: ExportedModel, inputs: tuple[Any, ...]) -> dict[str, int]:
    """Return how many values of each output differ from the reference program's in any bit, by output name."""
    loaded = torch.export.load(io.BytesIO(files.data)).module()
    found, expected = pytree.tree_leaves(loaded(*inputs)), pytree.tree_leaves(converted(*inputs))
    names = output_names(converted.exported, converted.stamp.inputs)
    return {
        name: _num_different(one, other)
        for name, one, other in zip(names, found, expected, strict=True)
        if isinstance(one, Tensor)
    }


def _num_different(one: Tensor, other: Tensor) -> int:
    if one.shape != other.shape or one.dtype != other.dtype:
        return max(one.numel(), other.numel(), 1)
    is_equal = (one == other) | (one.isnan() & other.isnan())
    return int((~is_equal).sum())
