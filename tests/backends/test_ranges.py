from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.backends.ranges import (
    INT_RANGES,
    Consumer,
    activation_spec,
    check_activation,
    int_range,
    weight_spec,
    would_saturate,
)
from qtool.backends.record import RangeName, Support
from qtool.backends.registry import BACKENDS, backend
from qtool.errors import RangeError, UsageError
from qtool.types import DTYPE_LIMITS, MAC_OPS, Dtype, Granularity, Isa, Op, Reduce, Spec

CONV = Consumer(node="conv", op=Op.CONV2D)
DEPTHWISE = Consumer(node="dw", op=Op.CONV2D, depthwise=True, channel_multiplier=1)
LINEAR = Consumer(node="fc", op=Op.LINEAR)
ADD = Consumer(node="add", op=Op.ADD)


def is_supported_by_all(op):
    return all(record.rule(op).support is not Support.UNSUPPORTED for record in BACKENDS)


consumers = st.builds(
    Consumer,
    node=st.sampled_from(["a", "b"]),
    op=st.sampled_from([op for op in Op if is_supported_by_all(op)]),
    depthwise=st.booleans(),
    channel_multiplier=st.sampled_from([None, 1, 2]),
    reduce=st.sampled_from(Reduce),
)


def agreeing(readers):
    """Let all ask never where one does: what one asks to keep cannot be reduced for another."""
    if any(reader.reduce is Reduce.NEVER for reader in readers):
        return [replace(reader, reduce=Reduce.NEVER) for reader in readers]
    return readers


readers_of_one_value = st.lists(consumers, max_size=4).map(agreeing)
backends = st.sampled_from(BACKENDS)
isas = st.sampled_from(Isa)


def spec(name, isa, *readers):
    return activation_spec(backend(name), isa, readers, observer="minmax")


def asking(consumer, reduce):
    return Consumer(node=consumer.node, op=consumer.op, depthwise=consumer.depthwise, reduce=reduce)


@pytest.mark.parametrize(
    ("name", "isa", "reader", "qmax"),
    [
        ("fbgemm", Isa.ANY, CONV, 127),
        ("fbgemm", Isa.NO_VNNI, CONV, 127),
        ("fbgemm", Isa.VNNI, CONV, 255),
        ("fbgemm", Isa.VNNI, DEPTHWISE, 127),
        ("fbgemm", Isa.ANY, LINEAR, 127),
        ("x86", Isa.ANY, LINEAR, 127),
        ("x86", Isa.VNNI, LINEAR, 255),
        ("x86", Isa.VNNI, DEPTHWISE, 127),
        ("onednn", Isa.ANY, CONV, 127),
        ("onednn", Isa.ANY, DEPTHWISE, 255),
        ("onednn", Isa.VNNI, CONV, 255),
        ("qnnpack", Isa.ANY, CONV, 255),
        ("qnnpack", Isa.NO_VNNI, DEPTHWISE, 255),
        ("onnxruntime", Isa.ANY, CONV, 127),
        ("onnxruntime", Isa.ANY, DEPTHWISE, 255),
        ("xnnpack", Isa.NO_VNNI, CONV, 127),
    ],
)
def test_one_consumer(name, isa, reader, qmax):
    found = spec(name, isa, reader)
    low, _ = DTYPE_LIMITS[found.dtype]
    assert (found.qmin, found.qmax) == (low, qmax)
    assert found.reduce_range == (found.dtype is Dtype.UINT8 and qmax == 127)


@pytest.mark.parametrize("isa", Isa)
@pytest.mark.parametrize("readers", [(), (ADD,), (ADD, Consumer(node="pool", op=Op.MAX_POOL, reduce=Reduce.ALWAYS))])
def test_an_edge_that_no_multiplication_reads_keeps_the_full_range(isa, readers):
    found = spec("fbgemm", isa, *readers)
    assert (found.qmin, found.qmax, found.reduce_range) == (0, 255, False)
    assert found.why == "no int8 convolution or linear reads it"


def test_one_consumer_that_needs_it_is_enough():
    found = spec("onednn", Isa.ANY, DEPTHWISE, ADD, CONV)
    assert found.qmax == 127
    assert found.why == "onednn's conv2d adds pairs in int16 on a CPU that may lack VNNI (conv)"


def test_always_reduces_where_nothing_saturates():
    found = spec("qnnpack", Isa.ANY, asking(CONV, Reduce.ALWAYS))
    assert (found.qmax, found.reduce_range, found.why) == (127, True, "asked for: always (conv)")
    assert found.source == "config: reduce_range"


def test_always_on_signed_activations():
    found = spec("xnnpack", Isa.ANY, asking(CONV, Reduce.ALWAYS))
    assert (found.qmin, found.qmax) == (-64, 63)


def test_never_is_allowed_and_says_what_it_risks():
    found = spec("fbgemm", Isa.ANY, asking(CONV, Reduce.NEVER))
    assert (found.qmax, found.reduce_range) == (255, False)
    assert found.why == ("asked for: never (conv), but fbgemm's conv2d can saturate on a CPU that may lack VNNI")


def test_never_that_risks_nothing_is_not_mentioned():
    assert "never" not in spec("qnnpack", Isa.ANY, asking(CONV, Reduce.NEVER)).why


def test_several_outputs_per_group_count_as_the_worse_kernel():
    """oneDNN's depthwise kernel takes one output per group, fbgemm's one or two; see test_kernel_saturation.py."""
    several = {"depthwise": True, "channel_multiplier": 2}
    assert would_saturate(backend("onednn"), Isa.NO_VNNI, Op.CONV2D, **several)
    assert would_saturate(backend("fbgemm"), Isa.VNNI, Op.CONV2D, **several)
    assert not would_saturate(backend("onednn"), Isa.VNNI, Op.CONV2D, **several)


def test_an_unknown_number_of_outputs_counts_as_the_worse_kernel():
    assert would_saturate(backend("onednn"), Isa.ANY, Op.CONV2D, depthwise=True)


@pytest.mark.parametrize("record", BACKENDS, ids=lambda record: record.name)
@pytest.mark.parametrize("op", Op)
def test_every_dtype_role_and_isa_resolves(record, op):
    if record.rule(op).support is Support.UNSUPPORTED:
        with pytest.raises(RangeError, match=f"'n': {record.name} has no int8 {op.value}; keep that node in float"):
            activation_spec(record, Isa.ANY, [Consumer(node="n", op=op)], observer="minmax")
        return
    for isa in Isa:
        found = activation_spec(record, isa, [Consumer(node="n", op=op)], observer="mse")
        assert (found.observer, bool(found.why), bool(found.source)) == ("mse", True, True)
        check_activation(found)


@given(backends, isas, readers_of_one_value)
def test_full_range_never_meets_a_kernel_that_saturates_unless_asked_for(record, isa, readers):
    found = activation_spec(record, isa, readers, observer="minmax")
    risky = [
        reader
        for reader in readers
        if reader.op in MAC_OPS
        and would_saturate(
            record, isa, reader.op, depthwise=reader.depthwise, channel_multiplier=reader.channel_multiplier
        )
    ]
    if not found.reduce_range:
        assert all(reader.reduce is Reduce.NEVER for reader in risky)
        assert found.why.startswith("asked for: never") == bool(risky)


@given(backends, isas, readers_of_one_value)
def test_reduced_only_for_a_reason(record, isa, readers):
    if activation_spec(record, isa, readers, observer="minmax").reduce_range:
        assert any(
            reader.op in MAC_OPS
            and (
                reader.reduce is Reduce.ALWAYS
                or would_saturate(
                    record, isa, reader.op, depthwise=reader.depthwise, channel_multiplier=reader.channel_multiplier
                )
            )
            for reader in readers
        )


@given(backends, readers_of_one_value)
def test_what_is_safe_on_any_cpu_is_safe_on_each(record, readers):
    on_any = activation_spec(record, Isa.ANY, readers, observer="minmax")
    assert on_any.qmax == activation_spec(record, Isa.NO_VNNI, readers, observer="minmax").qmax
    assert on_any.qmax <= activation_spec(record, Isa.VNNI, readers, observer="minmax").qmax


@pytest.mark.parametrize(
    ("record", "op"),
    [
        pytest.param(record, op, id=f"{op}-{record.name}")
        for record, op in product(BACKENDS, sorted(MAC_OPS))
        if Granularity.CHANNEL in record.rule(op).granularities
    ],
)
def test_weights_are_per_channel_where_nothing_else_is_asked(record, op):
    found = weight_spec(record, op, granularity=None, axis=0, observer="minmax")
    assert (found.dtype, found.qmin, found.qmax, found.symmetric) == (Dtype.INT8, -127, 127, True)
    assert (found.granularity, found.axis, found.reduce_range) == (Granularity.CHANNEL, 0, False)
    assert found.why == "symmetric, so that codes can be negated; one scale a channel is the best the backend can do"


def test_only_fbgemms_transposed_convolutions_have_one_scale():
    with_weight = [(r.name, rule.op, rule.granularities) for r in BACKENDS for rule in r.rules if rule.granularities]
    one_scale = {(name, op) for name, op, granularities in with_weight if Granularity.CHANNEL not in granularities}
    assert one_scale == {("fbgemm", Op.CONV_TRANSPOSE1D), ("fbgemm", Op.CONV_TRANSPOSE2D)}


def test_case_11_a_weight_without_an_axis_of_channels_has_one_scale_and_says_why():
    found = weight_spec(backend("qnnpack"), Op.CONV_TRANSPOSE2D, granularity=None, axis=None, observer="minmax")
    assert (found.granularity, found.axis) == (Granularity.TENSOR, None)
    assert "its output channels lie on no axis of the weight" in found.why


def test_case_11_a_scale_per_channel_asked_for_in_vain_is_an_error():
    with pytest.raises(
        UsageError, match=r"'up': granularity 'channel' is not possible for conv_transpose2d with groups"
    ):
        weight_spec(
            backend("qnnpack"),
            Op.CONV_TRANSPOSE2D,
            granularity=Granularity.CHANNEL,
            axis=None,
            observer="minmax",
            node="up",
        )


def test_a_weight_with_one_scale_has_no_axis():
    found = weight_spec(backend("fbgemm"), Op.LINEAR, granularity=Granularity.TENSOR, axis=0, observer="minmax")
    assert (found.granularity, found.axis) == (Granularity.TENSOR, None)
    assert found.why.endswith("one scale a tensor is asked for")


def test_a_granularity_the_backend_cannot_do_is_refused(toy_without_channels):
    with pytest.raises(UsageError, match="'channel' is not possible for linear on toy: use 'tensor'"):
        weight_spec(toy_without_channels, Op.LINEAR, granularity=Granularity.CHANNEL, axis=0, observer="minmax")


def test_an_op_without_weight_is_refused():
    with pytest.raises(
        RangeError, match="'add' has no int8 weight on fbgemm; ops that have one: conv1d, conv2d, conv3d, "
    ):
        weight_spec(backend("fbgemm"), Op.ADD, granularity=None, axis=0, observer="minmax")


@pytest.mark.parametrize("call", [lambda b: would_saturate(b, Isa.ANY, "gru"), lambda b: weight_of(b, "gru")])
def test_an_unknown_op_raises(call):
    with pytest.raises(RangeError, match="'gru' is not an op of backend 'fbgemm'"):
        call(backend("fbgemm"))


def weight_of(record, op):
    return weight_spec(record, op, granularity=None, axis=0, observer="minmax")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "bool", "int32"])
def test_an_unknown_dtype_raises(dtype):
    """torch.ao's helper answers 0..15 here: see test_torch_defaults.py."""
    with pytest.raises(RangeError, match=f"dtype '{dtype}' has no 'full' range; ranges are known for: uint8 full"):
        int_range(dtype, RangeName.FULL)


def test_every_range_fits_its_dtype():
    for (dtype, _), (qmin, qmax) in INT_RANGES.items():
        Spec(dtype=dtype, qmin=qmin, qmax=qmax)


def test_reduced_ranges_are_half_the_dtype():
    for dtype, (low, high) in DTYPE_LIMITS.items():
        qmin, qmax = int_range(dtype, RangeName.REDUCED)
        assert 2 * (qmax - qmin + 1) == high - low + 1


def test_a_reduced_pair_fits_int16():
    _, a_hi = int_range(Dtype.UINT8, RangeName.REDUCED)
    w_lo, w_hi = int_range(Dtype.INT8, RangeName.SYMMETRIC)
    assert 2 * a_hi * w_hi == 32258 <= 32767
    assert 2 * a_hi * w_lo >= -32768


@pytest.mark.parametrize(
    ("reduce_range", "qmin", "qmax"), [(False, 0, 127), (True, 0, 63), (True, 0, 128), (False, 1, 255)]
)
def test_case_07_a_range_that_contradicts_reduce_range_raises(reduce_range, qmin, qmax):
    contradictory = Spec(dtype=Dtype.UINT8, qmin=qmin, qmax=qmax, reduce_range=reduce_range)
    with pytest.raises(ValueError, match=f"reduce_range={reduce_range} contradicts the range {qmin}..{qmax}") as raised:
        check_activation(contradictory)
    assert isinstance(raised.value, RangeError)


@given(backends, isas, readers_of_one_value)
def test_case_07_no_rule_makes_a_contradiction(record, isa, readers):
    check_activation(activation_spec(record, isa, readers, observer="minmax"))


def test_never_that_cannot_be_honoured_is_an_error():
    record = backend("fbgemm")
    readers = [Consumer(node="a", op=Op.CONV2D, reduce=Reduce.NEVER), Consumer(node="b", op=Op.CONV2D)]
    with pytest.raises(UsageError, match=r"'a' asks for reduce_range: never.*'b' would saturate"):
        activation_spec(record, Isa.ANY, readers, observer="minmax")
    readers[1] = Consumer(node="b", op=Op.CONV2D, reduce=Reduce.ALWAYS)
    with pytest.raises(UsageError, match=r"'a' asks for reduce_range: never.*'b' asks for always"):
        activation_spec(record, Isa.VNNI, readers, observer="minmax")
    both = [Consumer(node=name, op=Op.CONV2D, reduce=Reduce.NEVER) for name in "ab"]
    assert activation_spec(record, Isa.ANY, both, observer="minmax").qmax == 255
