"""Whatever an archive holds, inspecting it ends in a report that can be shown, or in a FileFormatError."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.inspection.inspect import inspect_file
from qtool.report.json_report import to_json
from qtool.report.text import render_text
from qtool.stamp.plan_json import plan_to_json
from qtool.stamp.schema import PLAN_ENTRY, STAMP_ENTRY
from qtool.stamp.schema import to_json as stamp_to_json
from tests.readers.sample_files import program_entries, sample_plan, sample_stamp, zip_bytes
from tests.stamp.strategies import json_values

PLAN = sample_plan(backend="onednn")
ENTRIES = program_entries() | {
    PLAN_ENTRY: plan_to_json(PLAN).encode(),
    STAMP_ENTRY: stamp_to_json(sample_stamp(PLAN)).encode(),
}
TEXTS = [name for name, data in ENTRIES.items() if data.startswith(b"{")]


def look_at(data: bytes) -> None:
    try:
        report = inspect_file(data, backend="fbgemm", isa="no-vnni")
    except FileFormatError:
        return
    for verbose in (False, True):
        assert all(line.isprintable() for line in render_text(report, verbose=verbose).split("\n"))
    assert json.loads(to_json(report))["outcome"] == report.outcome


def places(tree: object, path: tuple = ()) -> list[tuple]:
    """Return the path of every value in a JSON tree."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


def with_value(tree: object, path: tuple, value: object) -> object:
    if not path:
        return value
    tree[path[0]] = with_value(tree[path[0]], path[1:], value)
    return tree


@given(st.data())
def test_any_value_in_any_json_entry_may_be_another(data):
    name = data.draw(st.sampled_from(TEXTS))
    tree = json.loads(ENTRIES[name])
    path = data.draw(st.sampled_from(places(tree)))
    changed = with_value(tree, path, data.draw(json_values))
    look_at(zip_bytes(ENTRIES | {name: json.dumps(changed).encode()}))


@given(st.sampled_from(list(ENTRIES)), st.data())
def test_any_byte_of_any_entry_may_be_another(name, data):
    content = bytearray(ENTRIES[name] or b"x")
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    look_at(zip_bytes(ENTRIES | {name: bytes(content)}))


@pytest.mark.parametrize("name", list(ENTRIES))
def test_any_entry_may_be_missing_or_empty(name):
    look_at(zip_bytes({other: data for other, data in ENTRIES.items() if other != name}))
    look_at(zip_bytes(ENTRIES | {name: b""}))


@pytest.mark.parametrize("percent", range(0, 100, 5))
def test_a_file_cut_anywhere_is_an_error_never_a_traceback(percent):
    data = zip_bytes(ENTRIES)
    with pytest.raises(FileFormatError):
        inspect_file(data[: len(data) * percent // 100])
