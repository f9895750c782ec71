"""Names for what a model returns, from where each value stands in it; the same in all formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.export import ExportedProgram

    from qtool.stamp.schema import InputStamp

ONLY_OUTPUT = "output"


def output_names(exported: ExportedProgram, inputs: Sequence[InputStamp]) -> list[str]:
    """Return a name for each value that a model returns, None and numbers too, in their order.

    An output bears a name that an input has with `_output` added.

    Example:
        A tensor is `output`; of `(a, {"mask": b})` they are `output.0` and `output.1.mask`; of `{"logits": a}`
        `logits`.
    """
    structure = exported.call_spec.out_spec
    nested = pytree.tree_unflatten(range(structure.num_leaves), structure)
    names = [_joined(path) for path, _ in pytree.tree_flatten_with_path(nested)[0]]
    taken = {stamp.name for stamp in inputs}
    return [f"{name}_output" if name in taken else name for name in names]


def _joined(path: Sequence[object]) -> str:
    """Return a path of keys as one name; `output` stands before a number, and alone for the whole."""
    parts = [str(_key(part)) for part in path]
    if not parts or isinstance(_key(path[0]), int):
        parts.insert(0, ONLY_OUTPUT)
    return ".".join(parts)


def _key(part: object) -> object:
    for attribute in ("key", "idx", "name"):  # of a dict, a sequence, a dataclass or named tuple
        if hasattr(part, attribute):
            return getattr(part, attribute)
    return part
