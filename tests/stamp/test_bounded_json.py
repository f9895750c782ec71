import json

import pytest
from hypothesis import given

from qtool.stamp import bounded_json
from tests.stamp.strategies import json_values


@given(json_values)
def test_what_is_small_is_read_as_json_reads_it(value):
    text = json.dumps(value, ensure_ascii=False)
    assert repr(bounded_json.loads(text)) == repr(json.loads(text))
    assert repr(bounded_json.loads(text.encode())) == repr(json.loads(text))


def test_what_would_take_much_memory_is_refused_before_it_is_parsed():
    with pytest.raises(ValueError, match="2199999 values could take 212 MiB"):
        bounded_json.loads("[" + "{}," * 1_099_999 + "0]")
    with pytest.raises(ValueError, match="at most 200"):
        bounded_json.loads('"\U0001f600' + " " * (51 * 2**20) + '"')


def test_bytes_are_utf8_and_nothing_else():
    with pytest.raises(ValueError, match="codec"):
        bounded_json.loads("[]".encode("utf-16"))
