import dataclasses
import math

import pytest

from qtool.inspection.stored_numbers import StoredNumbers, compared_numbers
from qtool.readers.any_file import opened_model
from qtool.readers.facts import Compute, ModelFacts, Node, Operand, Place, Quantization, Role, Tensor
from qtool.readers.source import OpenModel
from qtool.types import Op
from tests.readers.sample_files import sample_file

with opened_model(sample_file()) as model:
    FACTS = model.facts


def opened(data, *, piece=3, scale=(0.5,), zero_point=(0.0,), dtype="int8", tensor_name="w", strides=None, place=True):
    """Return an open model of one linear layer whose weight is `data`, read in pieces."""
    stored = Tensor(
        name=tensor_name,
        dtype=dtype,
        shape=(len(data),),
        place=Place(part="", offset=0, num_bytes=len(data)) if place else None,
        strides=strides,
    )
    codes = Quantization(dtype=dtype, qmin=-128, qmax=127, scale=scale, zero_point=zero_point)
    weight = Operand(role=Role.WEIGHT, name="w", tensor=stored, quantization=codes)
    node = Node(name="fc", op=Op.LINEAR, target="linear", compute=Compute.STATIC, operands=(weight,))
    facts = dataclasses.replace(FACTS, model=ModelFacts(tensors=(stored,), nodes=(node,)))
    return OpenModel(facts, lambda _: (data[start : start + piece] for start in range(0, len(data), piece)))


@pytest.mark.parametrize(("piece", "other"), [(1, 7), (3, 3), (7, 2), (100, 1)])
def test_equal_bytes_are_equal_however_they_are_cut(piece, other):
    data = bytes(range(23))
    assert compared_numbers(opened(data, piece=piece), opened(data, piece=other)) == StoredNumbers(num_same=3)


@pytest.mark.parametrize("index", [0, 11, 22])
def test_one_byte_makes_a_difference(index):
    data = bytes(range(23))
    changed = data[:index] + b"\xff" + data[index + 1 :]
    found = compared_numbers(opened(data, piece=4), opened(changed, piece=5))
    assert found == StoredNumbers(different=(("fc", "weight values"),), num_same=2)


def test_a_place_with_fewer_bytes_is_different():
    short = opened(bytes(5))
    cut = OpenModel(short.facts, lambda _: iter([bytes(4)]))
    assert compared_numbers(short, cut).different == (("fc", "weight values"),)


def test_scales_and_zero_points_are_compared_number_by_number():
    found = compared_numbers(opened(b"x", scale=(0.5, 0.25)), opened(b"x", scale=(0.25, 0.5), zero_point=(1.0,)))
    assert set(found.different) == {("fc", "weight scales"), ("fc", "weight zero points")}
    same = compared_numbers(opened(b"x", scale=(math.nan,)), opened(b"x", scale=(math.nan,)))
    assert same.different == ()


def test_what_is_not_stored_as_plain_bytes_is_unknown():
    for other in (opened(b"xy", place=False), opened(b"xy", strides=(1,))):
        assert compared_numbers(opened(b"xy"), other).unknown == (("fc", "weight values"),)


def test_tensors_of_no_node_are_compared_by_name():
    one, other = opened(b"xy"), opened(b"xz")
    bare = [
        OpenModel(dataclasses.replace(each.facts, model=dataclasses.replace(each.facts.model, nodes=())), each.blocks)
        for each in (one, other)
    ]
    assert compared_numbers(*bare) == StoredNumbers(different=(("", "w"),))


def test_other_dtypes_and_shapes_are_for_the_report_to_tell():
    assert compared_numbers(opened(b"xy"), opened(b"xyz")).different == ()
    assert compared_numbers(opened(b"xy"), opened(b"xy", dtype="uint8")).different == ()
