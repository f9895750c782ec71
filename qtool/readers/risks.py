"""What in a file would be executed, imported or reached for if it were loaded: what every reader reports of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RiskKind(StrEnum):
    """What loading a part of a file would do.

    OUTSIDE is a path that leads out of the file's folder, MISSING_DATA one to bytes that are not there.
    """

    SAMPLE_INPUTS = "sample_inputs"
    PICKLED_TENSOR = "pickled_tensor"
    CUSTOM_OBJECT = "custom_object"
    COMPILED_CODE = "compiled_code"
    EXPRESSION = "expression"
    OPERATOR = "operator"
    CONTAINER_TYPE = "container_type"
    NAME = "name"
    PICKLE_CALL = "pickle_call"
    SCRIPT = "script"
    OUTSIDE = "outside"
    MISSING_DATA = "missing_data"


@dataclass(frozen=True)
class Risk:
    """One part of a file that loading would execute.

    Attributes:
        kind: what loading it would do.
        entry: the archive entry it stands in.
        detail: the part itself, cut to a line; untrusted text.
    """

    kind: RiskKind
    entry: str
    detail: str
