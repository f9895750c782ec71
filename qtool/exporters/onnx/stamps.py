"""The stamp of an ONNX file: as JSON in the model's metadata, and on each node what it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qtool.readers.marks import marks_of, words_of
from qtool.readers.onnx_graph import KEYS
from qtool.readers.onnx_messages import NODE_PREFIX
from qtool.stamp.schema import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from qtool.stamp.schema import Stamp

MODEL_KEY: Final = "qtool.stamp"
"""In the model's `metadata_props`."""

EDGE_KEY: Final = f"{NODE_PREFIX}edge"
"""In the metadata of a node that makes or reads codes; int8 nodes have `qtool.node` and what its mark says."""


def write_stamp(model: ir.Model, stamp: Stamp) -> None:
    """Write a stamp into a model, and into its nodes what it says of those that their `meta["stamp"]` names."""
    model.metadata_props[MODEL_KEY] = to_json(stamp)
    marks = {mark.name: words_of(mark) for mark in marks_of(stamp).nodes}
    keys = {ours: theirs for theirs, ours in KEYS.items()}
    for node in model.graph:
        said: Mapping[str, Any] = node.meta.get("stamp", {})
        words = marks.get(said.get("node", ""), {})
        node.metadata_props.update({f"{NODE_PREFIX}{keys.get(key, key)}": word for key, word in words.items()})
        if "edge" in said:
            node.metadata_props[EDGE_KEY] = said["edge"]
