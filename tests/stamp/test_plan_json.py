import json

import pytest
from hypothesis import given

from qtool.errors import FileFormatError
from qtool.stamp.plan_json import plan_from_json, plan_to_json
from qtool.stamp.strict_json import NewerVersionError
from tests.readers.sample_files import sample_plan
from tests.stamp.strategies import plans


def document() -> dict:
    return json.loads(plan_to_json(sample_plan()))


@given(plans())
def test_any_plan_survives_json(plan):
    text = plan_to_json(plan)
    assert plan_from_json(text) == plan
    assert plan_to_json(plan_from_json(text.encode())) == text


def test_a_newer_version_is_named_as_such():
    with pytest.raises(NewerVersionError, match="format version 9 is newer"):
        plan_from_json(json.dumps(document() | {"format_version": 9}))


def test_an_unknown_field_is_refused_at_every_depth():
    wrong = document()
    wrong["plan"]["edges"][0]["spec"]["bits"] = 4
    with pytest.raises(FileFormatError, match=r"plan\.edges\.0\.spec\.bits"):
        plan_from_json(json.dumps(wrong))


def test_a_contradiction_is_refused():
    wrong = document()
    wrong["plan"]["edges"][0]["spec"]["qmax"] = 256
    with pytest.raises(FileFormatError, match="does not fit uint8"):
        plan_from_json(json.dumps(wrong))


def test_a_node_that_reads_an_edge_that_is_not_there_is_refused():
    wrong = document()
    wrong["plan"]["nodes"][0]["inputs"] = ["y"]
    with pytest.raises(FileFormatError, match="node 'stem' names the edge 'y'"):
        plan_from_json(json.dumps(wrong))


@pytest.mark.parametrize("part", ["nodes", "edges"])
def test_a_name_given_twice_is_refused(part):
    wrong = document()
    wrong["plan"][part].append(wrong["plan"][part][0])
    with pytest.raises(FileFormatError, match="bear one name"):
        plan_from_json(json.dumps(wrong))
