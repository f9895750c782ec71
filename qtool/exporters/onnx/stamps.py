"""The stamp of an ONNX file: as JSON in the model's metadata, and on each node what it was made for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from qtool.stamp.schema import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from qtool.stamp.schema import Stamp

MODEL_KEY: Final = "qtool.stamp"
"""In the model's `metadata_props`."""

NODE_PREFIX: Final = "qtool."
"""In a node's: `qtool.node`, `qtool.backend` and `qtool.reduce_range`, or `qtool.edge` where codes are made or read."""

EDGE_KEY: Final = f"{NODE_PREFIX}edge"


def write_stamp(model: ir.Model, stamp: Stamp) -> None:
    """Write a stamp into a model, and into its nodes what their `meta["stamp"]` says."""
    model.metadata_props[MODEL_KEY] = to_json(stamp)
    for node in model.graph:
        node.metadata_props.update(_words(node.meta.get("stamp", {})))


def _words(stamp: Mapping[str, Any]) -> dict[str, str]:
    return {f"{NODE_PREFIX}{key}": _word(value) for key, value in sorted(stamp.items())}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
