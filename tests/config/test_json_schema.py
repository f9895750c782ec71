"""The schema for editors, tried with a validator that knows the keywords the schema uses, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qtool.config.json_schema import config_schema
from qtool.config.source import parse_yaml

HERE = Path(__file__).parent
CONFIGS = sorted([*(HERE / "good").glob("*.yaml"), *(HERE.parents[1] / "configs").glob("*.yaml")])
SCHEMA = config_schema()
TYPES = {
    "string": str,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
    "integer": int,
    "number": (int, float),
}
SILENT = {"$schema", "$defs", "title", "description", "default", "discriminator"}  # they allow and forbid nothing


def has_type(value, name):
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def is_valid(value, schema):
    return all(KEYWORDS[keyword](value, rule, schema) for keyword, rule in schema.items() if keyword not in SILENT)


def only(kind, keeps):
    """A rule that speaks of values of one kind; others keep it."""
    return lambda value, rule, schema: not isinstance(value, kind) or keeps(value, rule, schema)


KEYWORDS = {
    "$ref": lambda value, rule, _: is_valid(value, SCHEMA["$defs"][rule.removeprefix("#/$defs/")]),
    "if": lambda value, rule, schema: is_valid(value, schema["then" if is_valid(value, rule) else "else"]),
    "then": lambda *_: True,
    "else": lambda *_: True,
    "type": lambda value, rule, _: has_type(value, rule),
    "enum": lambda value, rule, _: value in rule,
    "const": lambda value, rule, _: value == rule,
    "anyOf": lambda value, rule, _: any(is_valid(value, part) for part in rule),
    "oneOf": lambda value, rule, _: sum(is_valid(value, part) for part in rule) == 1,
    "required": only(dict, lambda value, rule, _: set(rule) <= set(value)),
    "properties": only(
        dict, lambda value, rule, _: all(is_valid(value[key], rule[key]) for key in rule if key in value)
    ),
    "additionalProperties": only(dict, lambda value, rule, schema: rule or set(value) <= set(schema["properties"])),
    "items": only(list, lambda value, rule, _: all(is_valid(item, rule) for item in value)),
    "pattern": only(str, lambda value, rule, _: re.search(rule, value)),
    "minLength": only(str, lambda value, rule, _: len(value) >= rule),
    "maxLength": only(str, lambda value, rule, _: len(value) <= rule),
    "minItems": only(list, lambda value, rule, _: len(value) >= rule),
    "uniqueItems": only(list, lambda value, rule, _: not rule or len(set(map(str, value))) == len(value)),
    "minimum": only(int | float, lambda value, rule, _: value >= rule),
    "maximum": only(int | float, lambda value, rule, _: value <= rule),
    "exclusiveMinimum": only(int | float, lambda value, rule, _: value > rule),
    "exclusiveMaximum": only(int | float, lambda value, rule, _: value < rule),
}


def valid(text):
    return is_valid(parse_yaml(text, "c.yaml").tree, SCHEMA)


@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_right_configs_keep_the_schema(path):
    assert valid(path.read_text("utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "version: 1",
        "version: 2\ntarget: {backend: fbgemm}",
        "version: 1\ntarget: {backend: qnpack}",
        "version: 1\ntarget: {backend: []}",
        "version: 1\ntarget: {backend: [x86, qnpack]}",
        "version: 1\ntarget: {backend: [x86, x86]}",
        "version: 1\ntarget: {backend: fbgemm}\nquantise: {}",
        "version: 1\ntarget: {backend: fbgemm}\ndata: {calibrate: {kind: photo, folder: x}}",
        "version: 1\ntarget: {backend: fbgemm}\ndata: {calibrate: {kind: photos}}",
        "version: 1\ntarget: {backend: fbgemm}\ndata: {calibrate: {kind: synthetic, count: 0}}",
        "version: 1\ntarget: {backend: fbgemm}\nmodel: {factory: a.b, random_init: true, inputs: []}",
        "version: 1\ntarget: {backend: fbgemm}\nmodel: {factory: 'a:b', inputs: [{name: x, shape: [0]}]}",
        "version: 1\ntarget: {backend: fbgemm}\nmodel: {factory: 'a:b', inputs: [{name: x, shape: [true]}]}",
        "extends: a.yaml",
        "version: 1\nextends: a.yaml\ntarget: {isa: vni}",
        "version: 1\nextends: [a.yaml]",
        "version: 1\nextends: a.yaml\ndata: {calibrate: {cuont: 3}}",
    ],
)
def test_wrong_configs_break_it(text):
    assert not valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nextends: a.yaml",
        "version: 1\nextends: a.yaml\ntarget: {isa: vnni}\ndata: {calibrate: {count: 3}}",
        "version: 1\nextends: a.yaml\nmodel: {kwargs: {width: 2}}",
    ],
)
def test_a_file_that_extends_another_may_leave_out_what_that_says(text):
    assert valid(text)


def test_every_reference_leads_to_a_definition():
    references = set(re.findall(r"'\$ref': '#/\$defs/(\w+)'", str(SCHEMA)))
    assert references
    assert references <= set(SCHEMA["$defs"])


def test_every_key_has_its_description_for_the_editor():
    for name, definition in SCHEMA["$defs"].items():
        for key, value in definition.get("properties", {}).items():
            assert value.get("description"), f"{name}.{key}"
