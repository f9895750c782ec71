"""Whatever a file holds, loading and converting it ends soon, in a model or in an error of qtool's.

What was changed gets a stamp that holds the digest of the change: the digest is not what protects.
"""

import contextlib
import json
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtool.errors import FileFormatError, QtoolError, QtoolWarning
from qtool.runtime.prepared import PreparedModel
from qtool.stamp.schema import STAMP_ENTRY
from qtool.workflows.convert import convert
from qtool.workflows.load import load, read
from tests.attacks.hostile_programs import CONSTANTS_TABLE, entries_of, stamped
from tests.attacks.mutations import places, with_value
from tests.readers.sample_files import GRAPH, WEIGHTS_TABLE, zip_bytes
from tests.stamp.fixtures.make import FOLDER
from tests.stamp.strategies import json_values

FILES = {stage: (FOLDER / f"format_1_{stage}.pt2").read_bytes() for stage in ("prepared", "int8")}
ENTRIES = {stage: entries_of(data) for stage, data in FILES.items()}
STAGES = st.sampled_from(list(FILES))

FEW = settings(max_examples=settings().max_examples // 5)
"""A load that gets as far as torch takes half a second."""
MOST_SECONDS = 30
"""Of one file; the slowest take 2 (measured)."""

HUGE = st.sampled_from([2**31, 2**53, 2**63, -(2**63) - 1, 10**400, 1e308, 1e-320, -1])
CODE = st.sampled_from(["9**9**9", "s" * 4000, "(" * 2000, "1+" * 2000 + "1", "Max(1,2)", "Mod(s77, 0)", "1/0"])


def take(data: bytes) -> None:
    """Load it and convert it: whatever comes out, no error but qtool's comes out."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", QtoolWarning)
        try:
            model = load(data)
            converted = convert(model) if isinstance(model, PreparedModel) else convert(read(data), "x86")
            assert converted.plan.nodes
        except QtoolError:
            pass
    assert time.process_time() - began < MOST_SECONDS


def restamped(entries: dict[str, bytes]) -> bytes:
    try:
        return stamped(entries)
    except (KeyError, FileFormatError):  # the stamp itself was changed
        return zip_bytes(entries)


def test_the_files_are_taken_as_they_are():
    for entries in ENTRIES.values():
        assert load(stamped(entries)) is not None


@FEW
@given(STAGES, st.data())
def test_a_value_in_a_json_entry_is_another(stage, data):
    entries = ENTRIES[stage]
    name = data.draw(st.sampled_from([name for name, content in entries.items() if content.startswith(b"{")]))
    tree = json.loads(entries[name])
    path = data.draw(st.sampled_from(places(tree)))
    changed = with_value(tree, path, data.draw(json_values | HUGE | CODE))
    take(restamped(entries | {name: json.dumps(changed).encode()}))


@FEW
@given(STAGES, st.data())
def test_two_values_of_the_graph_change_places(stage, data):
    tree = json.loads(ENTRIES[stage][GRAPH])
    one, other = (data.draw(st.sampled_from(places(tree)[1:])) for _ in range(2))
    values = [_value(tree, path) for path in (one, other)]
    if one[: len(other)] != other and other[: len(one)] != one:
        tree = with_value(with_value(tree, one, values[1]), other, values[0])
    with contextlib.suppress(FileFormatError):  # that its operators agree with each other shows when it is packed
        read(stamped(ENTRIES[stage] | {GRAPH: json.dumps(tree).encode()}))


def _value(tree, path):
    for key in path:
        tree = tree[key]
    return tree


@FEW
@given(STAGES, st.data())
def test_two_entries_change_places(stage, data):
    entries = ENTRIES[stage]
    names = st.sampled_from([name for name in entries if name != STAMP_ENTRY])
    one, other = data.draw(names), data.draw(names)
    take(stamped(entries | {one: entries[other], other: entries[one]}))


@FEW
@given(STAGES, st.data())
def test_an_entry_is_gone_cut_or_other_bytes(stage, data):
    entries = dict(ENTRIES[stage])
    name = data.draw(st.sampled_from([name for name in entries if name != STAMP_ENTRY]))
    content = entries.pop(name)
    if data.draw(st.booleans()):
        entries[name] = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=8))
    take(stamped(entries))


@given(STAGES, st.data())
def test_bits_of_the_file_are_flipped(stage, data):
    content = bytearray(FILES[stage])
    for position in data.draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=4)):
        content[position // 8] ^= 1 << position % 8
    take(bytes(content))


@given(STAGES, st.integers(0, 2**16))
def test_the_file_is_cut(stage, length):
    with pytest.raises(FileFormatError):
        load(FILES[stage][: length % len(FILES[stage])])


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS_TABLE, CONSTANTS_TABLE, "extra/qtool/plan.json", STAMP_ENTRY])
@pytest.mark.parametrize("depth", [500, 5_000, 1_000_000])
@pytest.mark.parametrize("text", ['{"a":', "["])
def test_json_as_deep_as_it_likes(name, depth, text):
    tail = {"[": "]", '{"a":': "}"}[text]
    with pytest.raises(FileFormatError):
        load(restamped(ENTRIES["int8"] | {name: (text * depth + "1" + tail * depth).encode()}))
