"""The names of torchvision's classification models, read from its source files: nothing of it is imported."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

_MODEL = re.compile(r"^@register_model\(\)\n(?:@[^\n]*\n)*def (\w+)\(", re.MULTILINE)
"""How torchvision 0.29 marks the functions that build a model (torchvision/models/*.py)."""


def torchvision_models() -> tuple[str, ...]:
    """Return the names in order; none where torchvision is not installed.

    Example:
        >>> "resnet18" in torchvision_models()
        True
    """
    spec = find_spec("torchvision")
    folders = [Path(folder) / "models" for folder in spec.submodule_search_locations or ()] if spec else []
    texts = [file.read_text("utf-8") for folder in folders for file in sorted(folder.glob("*.py"))]
    return tuple(sorted(name for text in texts for name in _MODEL.findall(text)))
