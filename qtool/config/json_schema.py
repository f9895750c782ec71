"""The JSON schema of a config file, for editors: what a key may be, offered while one types."""

from __future__ import annotations

from typing import Any

from qtool.config.document import EXTENDS
from qtool.config.schema import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PART = "Part"
_REF = "#/$defs/"


def config_schema() -> dict[str, Any]:
    """Return the schema, in draft 2020-12, made from the models that a config is checked with.

    A file that extends another may leave out what the other says: it is checked by definitions whose names end in
    `Part`, where no key but `version` is required. Rules between keys, such as one origin of the weights, are left
    out.

    Example:
        >>> config_schema()["$schema"]
        'https://json-schema.org/draft/2020-12/schema'
    """
    whole = Config.model_json_schema()
    definitions = {**whole.pop("$defs"), "Config": whole}
    parts = {f"{name}{_PART}": _part(definition) for name, definition in definitions.items()}
    part = parts[f"Config{_PART}"]
    path = {"type": "string", "minLength": 1, "description": "config file that this one starts from"}
    part["properties"] = {EXTENDS: path, **part["properties"]}
    part["required"] = ["version", EXTENDS]
    return {
        "$schema": DIALECT,
        "title": "qtool config",
        "type": "object",
        "if": {"required": [EXTENDS]},
        "then": {"$ref": f"{_REF}Config{_PART}"},
        "else": {"$ref": f"{_REF}Config"},
        "$defs": {**definitions, **parts},
    }


def _part(schema: Any) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return a schema in which nothing is required, and references lead to others of that sort."""
    if isinstance(schema, list):
        return [_part(item) for item in schema]
    if not isinstance(schema, dict):
        return f"{schema}{_PART}" if isinstance(schema, str) and schema.startswith(_REF) else schema
    # Without `kind` a source may be one of several: anyOf. The discriminator says what oneOf says anyway.
    names = {"oneOf": "anyOf"}
    return {
        names.get(key, key): _part(value)
        for key, value in schema.items()
        if key not in ("discriminator", "default") and not (key == "required" and isinstance(value, list))
    }
