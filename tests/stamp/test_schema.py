import json

import pytest
from hypothesis import given

from qtool.errors import FileFormatError, RangeError
from qtool.stamp.schema import Stamp, TensorStamp, from_json, to_json
from qtool.stamp.strict_json import NewerVersionError
from qtool.types import Dtype, Granularity
from tests.readers.sample_files import sample_plan, sample_stamp
from tests.stamp.strategies import stamps


def document() -> dict:
    return json.loads(to_json(sample_stamp(sample_plan())))


def tensor(**changes) -> TensorStamp:
    fields = {
        "edge": "x",
        "dtype": Dtype.UINT8,
        "qmin": 0,
        "qmax": 255,
        "granularity": Granularity.TENSOR,
        "scale_min": 0.1,
        "scale_max": 0.1,
        "zero_point_min": 3,
        "zero_point_max": 3,
        "digest": "d",
    }
    return TensorStamp(**(fields | changes))


@given(stamps)
def test_any_stamp_survives_json(stamp):
    text = to_json(stamp)
    assert from_json(text) == stamp
    assert from_json(text.encode()) == stamp
    assert to_json(from_json(text)) == text


def test_equal_stamps_are_equal_text_with_sorted_keys():
    text = to_json(sample_stamp(sample_plan()))
    assert text == to_json(sample_stamp(sample_plan()))
    assert text.isascii()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_a_newer_version_is_named_as_such_whatever_else_it_holds():
    with pytest.raises(NewerVersionError, match=r"format version 3 is newer than this qtool reads \(2\)"):
        from_json(json.dumps({"format_version": 3, "unheard_of": []}))


@pytest.mark.parametrize("version", [None, 0, -1, True, "1", 1.0])
def test_a_version_that_never_was_is_refused(version):
    with pytest.raises(FileFormatError, match="format_version"):
        from_json(json.dumps(document() | {"format_version": version}))


def test_an_unknown_field_is_refused_at_every_depth():
    with pytest.raises(FileFormatError, match="extra"):
        from_json(json.dumps(document() | {"extra": 1}))
    deep = document()
    deep["nodes"][0]["inputs"][0]["extra"] = 1
    with pytest.raises(FileFormatError, match=r"nodes\.0\.inputs\.0\.extra: unknown key"):
        from_json(json.dumps(deep))


def test_a_missing_field_is_refused():
    short = document()
    del short["nodes"][1]["verdict"]
    with pytest.raises(FileFormatError, match=r"nodes\.1\.verdict: missing"):
        from_json(json.dumps(short))


def test_numbers_must_be_numbers():
    wrong = document()
    wrong["nodes"][0]["inputs"][0]["qmin"] = "0"
    with pytest.raises(FileFormatError, match=r"nodes\.0\.inputs\.0\.qmin: '0' is not an integer"):
        from_json(json.dumps(wrong))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", b"\xff\xfe", "[" * 100_000, '{"format_version": NaN}'])
def test_what_is_not_a_json_object_is_refused(text):
    with pytest.raises(FileFormatError):
        from_json(text)


def test_a_key_given_twice_is_refused():
    text = to_json(sample_stamp(sample_plan()))
    with pytest.raises(FileFormatError, match="twice"):
        from_json(text.replace('"isa":"any"', '"isa":"any","isa":"vnni"'))


def test_nan_is_refused_in_both_directions():
    stamp = sample_stamp(sample_plan())
    with pytest.raises(FileFormatError, match="NaN is not a number"):
        from_json(to_json(stamp).replace('"mean":[0.5,', '"mean":[NaN,'))
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(Stamp(**(vars(stamp) | {"preprocessing": {"mean": float("nan")}})))


def test_a_number_too_large_is_refused():
    text = to_json(sample_stamp(sample_plan()))
    with pytest.raises(FileFormatError, match="1e999 is too large"):
        from_json(text.replace('"mean":[0.5,', '"mean":[1e999,'))


def test_many_problems_are_counted_not_listed():
    wrong = document()
    for node in wrong["nodes"]:
        node["a"] = node["b"] = 1
    with pytest.raises(FileFormatError, match="and 3 more"):
        from_json(json.dumps(wrong))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qmax": 256}, "0..256 does not fit uint8"),
        ({"axis": 0}, "only 'channel' has an axis"),
        ({"scale_min": 0.0}, "finite, > 0"),
        ({"scale_min": 0.2}, "in order"),
        ({"scale_max": float("inf")}, "finite"),
        ({"scale_max": None}, "scales"),
        ({"zero_point_max": 256}, "must lie in 0..255"),
        ({"zero_point_min": None}, "zero points"),
        ({"digest": None}, "no digest"),
    ],
)
def test_a_tensor_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(RangeError, match=message):
        tensor(**changes)


def test_a_contradiction_in_a_file_is_a_format_error():
    wrong = document()
    wrong["nodes"][0]["inputs"][0]["qmax"] = 300
    with pytest.raises(FileFormatError, match=r"nodes\.0\.inputs\.0: .*0\.\.300 does not fit uint8"):
        from_json(json.dumps(wrong))


def test_two_nodes_of_one_name_are_refused():
    wrong = document()
    wrong["nodes"][1]["name"] = wrong["nodes"][0]["name"]
    with pytest.raises(FileFormatError, match="two nodes are named 'stem'"):
        from_json(json.dumps(wrong))


@pytest.mark.parametrize(
    ("qmin", "qmax", "bits"), [(0, 127, 7), (0, 128, 8), (0, 255, 8), (-128, 127, 8), (-64, 63, 7)]
)
def test_num_bits(qmin, qmax, bits):
    dtype = Dtype.INT8 if qmin else Dtype.UINT8
    assert TensorStamp(edge="x", dtype=dtype, qmin=qmin, qmax=qmax, granularity=Granularity.TENSOR).num_bits == bits


def test_only_int8_nodes_are_int8_nodes():
    assert [node.name for node in sample_stamp(sample_plan()).int8_nodes()] == ["stem", "depth", "head"]
