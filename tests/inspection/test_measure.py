"""What is measured of tensors, against numpy on the whole arrays."""

import dataclasses

import numpy as np
import pytest

from qtool.errors import FileFormatError
from qtool.inspection.duplicates import duplicates
from qtool.inspection.meter import Meter
from qtool.inspection.nodes import Histogram, Origin
from qtool.readers.facts import Compute, Operand, Place, Role
from qtool.readers.source import BLOCK_BYTES
from qtool.saturation.pairs import bounds_of
from qtool.saturation.verdict import Bound
from qtool.types import Op
from tests.inspection.hand_made import INT8, UINT8, HandMade, inspected, quantization, random_codes


def only_node(made, monkeypatch, **facts):
    (node,) = inspected(made, monkeypatch, **facts).nodes
    return node


def weight_of(made, monkeypatch):
    return only_node(made, monkeypatch).tensor(Role.WEIGHT)


@pytest.mark.parametrize("shape", [(8, 5), (700, 3000), (12, 8, 3, 3), (6, 3, 5, 5), (4, 1, 3)])
@pytest.mark.parametrize("reads", [UINT8, INT8, ("uint8", 0, 127)])
def test_bounds_are_those_of_the_whole_weight(shape, reads, monkeypatch):
    made, codes = HandMade(), random_codes(shape)
    made.layer("fc", codes, op=Op.LINEAR if len(shape) == 2 else Op.CONV2D, reads=reads)
    node = only_node(made, monkeypatch)
    assert node.bounds == bounds_of(codes, *reads[1:])
    assert node.bounds_origin is Origin.DERIVED
    weight = node.tensor(Role.WEIGHT)
    assert (weight.seen_min, weight.seen_max) == (codes.min(), codes.max())
    assert made.num_read <= codes.size + 100


@pytest.mark.parametrize("shape", [(5, 8), (2100, 700), (7, 3)])
def test_a_weight_stored_in_out_is_that_of_its_transpose(shape, monkeypatch):
    made, codes = HandMade(), random_codes(shape)
    made.layer("fc", codes, is_weight_in_out=True)
    node = only_node(made, monkeypatch)
    assert node.bounds == bounds_of(np.ascontiguousarray(codes.T), 0, 255)
    assert codes.size < BLOCK_BYTES or made.num_read >= BLOCK_BYTES


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_transposed_convolution_has_its_outputs_group_by_group(groups, monkeypatch):
    made, codes = HandMade(), random_codes((8, 6, 3, 3))
    made.layer("up", codes, op=Op.CONV_TRANSPOSE2D, groups=groups)
    per_group = [part.swapaxes(0, 1) for part in np.split(codes, groups)]
    assert only_node(made, monkeypatch).bounds == bounds_of(np.concatenate(per_group), 0, 255)


def test_strides_are_followed(monkeypatch):
    made, codes = HandMade(), random_codes((6, 8, 3, 3))
    channels_last = codes.transpose(0, 2, 3, 1)
    tensor = made.store("w", channels_last, shape=codes.shape, strides=(72, 1, 24, 8))
    weight = Operand(role=Role.WEIGHT, name="w", tensor=tensor, quantization=quantization(INT8, 0.1))
    read = Operand(role=Role.INPUT, name="x", quantization=quantization(UINT8, 0.1))
    made.node("conv", Op.CONV2D, read, weight, groups=1)
    assert only_node(made, monkeypatch).bounds == bounds_of(codes, 0, 255)


@pytest.mark.parametrize(("strides", "shape"), [((4, 2), (2, 4)), ((-1, 1), (2, 4)), ((0, 0), (10**6, 10**6))])
def test_strides_that_leave_the_bytes_are_not_followed(strides, shape, monkeypatch):
    made = HandMade()
    tensor = made.store("w", np.zeros(8, np.int8), shape=shape, strides=strides)
    made.node("fc", Op.LINEAR, Operand(role=Role.WEIGHT, name="w", tensor=tensor, quantization=quantization(INT8, 0.1)))
    assert weight_of(made, monkeypatch).seen_min is None


def test_fewer_bytes_than_elements_are_not_measured(monkeypatch):
    made = HandMade()
    made.layer("fc", np.zeros((2, 4), np.int8))
    weight = made.nodes[0].operand(Role.WEIGHT).tensor
    object.__setattr__(weight, "shape", (2, 5))
    assert weight_of(made, monkeypatch).seen_min is None


def test_uint8_weights_are_measured_but_not_proved(monkeypatch):
    made = HandMade()
    made.layer("fc", np.uint8([[128, 130], [128, 128]]), zero_point=(128.0,))
    node = only_node(made, monkeypatch)
    weight = node.tensor(Role.WEIGHT)
    assert (weight.seen_min, weight.seen_max, weight.faults.num_dead_channels) == (128, 130, 1)
    assert node.bounds == ()
    assert (weight.values.low, weight.values.counts[32]) == (0, 4)


def test_histograms_count_every_code_of_a_small_weight(monkeypatch):
    made = HandMade()
    made.layer("fc", np.int8([[-128, -125, 0, 3], [4, 127, 124, 127]]))
    counts = [0] * 64
    counts[0], counts[32], counts[33], counts[63] = 2, 2, 1, 3
    assert weight_of(made, monkeypatch).values == Histogram(low=-128, high=128, counts=tuple(counts))


def test_the_histogram_of_a_large_weight_is_a_sample(monkeypatch):
    made, codes = HandMade(), random_codes((1500, 1000))
    made.layer("fc", codes)
    counts = np.array(weight_of(made, monkeypatch).values.counts)
    assert 200_000 < counts.sum() <= 1 << 18
    assert counts[1:-1].min() > 0.8 * counts.sum() / 64


def test_scales_of_a_tensor_in_the_file(monkeypatch):
    made = HandMade()
    scale = made.store("scale", np.float16([0.5, 0.25, 0.125]))
    zero_point = made.store("zero_point", np.int8([0, 0, 0]))
    made.layer("fc", random_codes((3, 4)), scale=scale, zero_point=zero_point, axis=0)
    weight = weight_of(made, monkeypatch)
    assert (weight.num_scales, weight.scale_min, weight.scale_max) == (3, 0.125, 0.5)
    assert (weight.zero_point_min, weight.zero_point_max, weight.granularity) == (0, 0, "channel")
    assert weight.scales.is_log
    assert sum(weight.scales.counts) == 3


def test_bfloat16_weights_are_floats(monkeypatch):
    made = HandMade()
    bits = (np.float32([[1.5, -2.0], [np.inf, 0.25]]).view(np.uint32) >> 16).astype(np.uint16)
    tensor = made.store("w", bits, dtype="bfloat16")
    made.node("fc", Op.LINEAR, Operand(role=Role.WEIGHT, name="w", tensor=tensor), compute=Compute.FLOAT)
    weight = weight_of(made, monkeypatch)
    assert (weight.faults.num_values_not_finite, weight.values.low, weight.values.high) == (1, -2.0, 1.5)


def test_a_shared_weight_is_read_once(monkeypatch):
    made, codes = HandMade(), random_codes((64, 64))
    first = made.layer("a", codes)
    made.node("b", Op.LINEAR, *first.operands)
    report = inspected(made, monkeypatch)
    assert report.nodes[0].bounds == report.nodes[1].bounds != ()
    assert made.num_read == codes.size


def test_input_codes_that_are_not_known_prove_nothing(monkeypatch):
    made = HandMade()
    weight = made.store("w", random_codes((4, 4)))
    made.node("fc", Op.LINEAR, Operand(role=Role.WEIGHT, name="w", tensor=weight, quantization=quantization(INT8, 0.1)),
              compute=Compute.WEIGHT_ONLY)  # fmt: skip
    node = only_node(made, monkeypatch)
    assert (node.bounds, node.bounds_origin) == ((), Origin.UNKNOWN)
    assert not node.multiplies_codes


def test_depthwise_is_worked_out_from_groups_and_shape(monkeypatch):
    made = HandMade()
    made.layer("depth", random_codes((8, 1, 3, 3)), op=Op.CONV2D, groups=4)
    made.layer("grouped", random_codes((8, 2, 3, 3)), op=Op.CONV2D, groups=4)
    made.layer("unknown", random_codes((8, 2, 3, 3)), op=Op.CONV2D, groups=None)
    found = [(node.depthwise, node.channel_multiplier) for node in inspected(made, monkeypatch).nodes]
    assert found == [(True, 2), (False, None), (True, None)]


def test_reduced_ranges_are_derived_from_codes(monkeypatch):
    made = HandMade()
    for name, ends in [("r", ("uint8", 0, 127)), ("f", UINT8), ("s", ("int8", -64, 63)), ("u", ("uint8", 3, 90))]:
        made.layer(name, random_codes((2, 2)), reads=ends)
    report = inspected(made, monkeypatch)
    assert [node.reduce_range for node in report.nodes] == [True, False, True, None]
    assert report.range_summary().text() == "unknown in 1 of 4 convolutions and linears, 2 reduced, 1 full"


def test_tensors_that_are_stored_twice(monkeypatch):
    made, codes = HandMade(), random_codes((64, 64))
    made.store("a", codes)
    made.store("b", codes)
    made.store("c", random_codes((64, 64), seed=1))
    late = codes.copy().reshape(-1)
    late[-1] += 1
    made.store("nearly", late)
    for name in ("zeros", "more zeros"):
        made.store(name, np.zeros((64, 64), np.float32))
    for name in ("ones", "more ones"):
        made.store(name, np.ones((64, 64), np.float64))
    made.store("small", codes[:1])
    made.store("small too", codes[:1])
    report = inspected(made, monkeypatch)
    assert [(each.names, each.num_bytes, each.wasted_bytes) for each in report.duplicates] == [(("a", "b"), 4096, 4096)]
    assert [finding.code for finding in report.findings if finding.code == "QT412"] == ["QT412"]


def test_tensors_that_share_their_place_are_stored_once():
    made = HandMade()
    tensor = made.store("a", random_codes((64, 64)))
    made.tensors.append(tensor)
    assert duplicates(made.tensors, Meter(made.open())) == ()


def test_overlapping_tensors_are_read_a_few_times_and_no_more(monkeypatch):
    """A file of 1 MB can state tensors of terabytes, all of them over the same bytes."""
    made, size = HandMade(), 1 << 20
    made.layer("fc", random_codes((1024, 1024)))
    weight = made.nodes[0].operand(Role.WEIGHT).tensor
    for index in range(1, 500):
        place = Place(part=weight.place.part, offset=index, num_bytes=size - 1024)
        tensor = made.store(f"w{index}", np.zeros(1, np.int8), shape=(1023, 1024), place=place)
        weight_operand = Operand(role=Role.WEIGHT, name="w", tensor=tensor, quantization=quantization(INT8, 0.1))
        made.node(f"n{index}", Op.LINEAR, weight_operand)
    report = inspected(made, monkeypatch)
    assert made.num_read < 80 * size
    assert "QT212" in [finding.code for finding in report.findings]
    assert report.nodes[-1].tensor(Role.WEIGHT).seen_min is None


def test_worst_sums_are_in_the_report(monkeypatch):
    made = HandMade()
    made.layer("fc", np.int8([[100, 100, 3, 3]]))
    assert only_node(made, monkeypatch).bounds[0] == Bound(pairing="any", num_channels=1, worst_pair_sum=51000)


def test_a_weight_whose_bytes_are_not_there_is_told_and_the_rest_is_measured(monkeypatch):
    made = HandMade()
    for name in ("gone", "here"):
        made.layer(name, random_codes((64, 64)))
    model = made.open()
    lost = model.facts.model.nodes[0].operand(Role.WEIGHT).tensor.place

    def blocks(place, whole=model.blocks):
        if place.part == lost.part:
            msg = "entry 'data/0' has 3 bytes, and a tensor reaches to byte 4096"
            raise FileFormatError(msg)
        yield from whole(place)

    monkeypatch.setattr(made, "open", lambda **_: dataclasses.replace(model, blocks=blocks))
    report = inspected(made, monkeypatch)
    assert [bool(node.bounds) for node in report.nodes] == [False, True]
    assert [finding.message for finding in report.findings if finding.code == "QT212"] == [
        "entry 'data/0' has 3 bytes, and a tensor reaches to byte 4096"
    ]


def test_without_histograms_all_else_is_the_same(monkeypatch):
    made = HandMade()
    made.layer("fc", random_codes((8, 16)), scale=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), input_scale=0.5)
    drawn, bare = (inspected(made, monkeypatch, asked={"histograms": wanted}) for wanted in (True, False))
    assert drawn.nodes[0].tensor(Role.WEIGHT).values
    assert drawn.nodes[0].tensor(Role.WEIGHT).scales
    nodes = tuple(
        dataclasses.replace(
            node, tensors=tuple(dataclasses.replace(tensor, values=None, scales=None) for tensor in node.tensors)
        )
        for node in drawn.nodes
    )
    assert dataclasses.replace(drawn, nodes=nodes) == bare
