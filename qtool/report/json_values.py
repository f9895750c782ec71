"""Records as JSON values that every JSON reader takes: numbers that JSON has no form for become words."""

from __future__ import annotations

import dataclasses
import math
from enum import Enum
from typing import Any


def json_value(value: Any) -> Any:  # noqa: ANN401 - any record, and any JSON value
    """Return dataclasses as objects, enums as their values, tuples as lists, and NaN and infinities as words.

    Example:
        >>> json_value((Severity.ERROR, math.nan, -math.inf, 0.5))
        ['error', 'NaN', '-Infinity', 0.5]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
