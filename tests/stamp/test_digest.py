import hashlib
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qtool.stamp.digest import combine_digests, content_digest, parameter_digest
from qtool.stamp.schema import STAMP_ENTRY

entries = st.dictionaries(st.text(max_size=8), st.binary(max_size=16), max_size=5)


def test_parameter_digest_is_the_sha256_of_little_endian_floats_and_ints():
    expected = hashlib.sha256(struct.pack("<2f2i", 0.5, 0.25, 3, -1)).hexdigest()
    assert parameter_digest(np.float32([0.5, 0.25]), np.int32([3, -1])) == expected
    assert parameter_digest(np.array([0.5, 0.25], ">f4"), np.array([3, -1], ">i8")) == expected


def test_a_scalar_and_a_list_of_one_have_one_digest():
    assert parameter_digest(np.float32(0.5), np.int32(3)) == parameter_digest(np.float32([0.5]), np.int32([3]))


def test_one_bit_of_a_scale_changes_the_digest():
    one = np.float32([1.0])
    assert parameter_digest(one, np.int32([0])) != parameter_digest(np.nextafter(one, np.float32(2)), np.int32([0]))


@given(entries, st.binary(max_size=8))
def test_the_stamp_is_not_part_of_the_content(content, stamp):
    assert content_digest(content | {STAMP_ENTRY: stamp}) == content_digest(
        {name: data for name, data in content.items() if name != STAMP_ENTRY}
    )


@given(entries)
def test_the_order_of_entries_does_not_matter(content):
    backwards = dict(reversed(content.items()))
    assert content_digest(content) == content_digest(backwards)
    assert content_digest(content) == combine_digests(
        {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    )


@given(entries, entries)
def test_different_contents_have_different_digests(one, other):
    one, other = (({name: data for name, data in each.items() if name != STAMP_ENTRY}) for each in (one, other))
    assert (content_digest(one) == content_digest(other)) == (one == other)
