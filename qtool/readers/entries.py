"""Names of entries by which archives are told apart."""

from __future__ import annotations

from typing import Final

COMPILED_FOLDER: Final = "data/aotinductor/"
"""Of what AOTInductor compiled. Source: torch/export/pt2_archive/constants.py."""

PICKLE_ENTRY: Final = "data.pkl"
"""Of torch.save and TorchScript. Source: torch/serialization.py."""
