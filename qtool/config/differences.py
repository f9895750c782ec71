"""What two configs differ in, key by key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qtool.config.document import Tree


def differences(old: Tree, new: Tree, path: str = "") -> list[str]:
    """Return a text for each key whose value differs between two configs as `model_dump(mode="json")` gives them.

    Mappings are compared key by key, everything else as a whole; a key that is missing counts as nothing.

    Example:
        >>> differences({"isa": "any", "w": {"observer": "mse"}}, {"isa": "vnni", "w": {"observer": "mse"}})
        ['isa: "vnni", was "any"']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        prefix = f"{path}." if path else ""
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{prefix}{key}")]
    return [] if old == new else [f"{path}: {json.dumps(new)}, was {json.dumps(old)}"]
