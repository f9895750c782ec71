"""Hypothesis strategies for plans and stamps: whatever the records allow, names with any printable or odd text."""

from __future__ import annotations

import hashlib

from hypothesis import strategies as st

from qtool.plan import EdgePlan, NodePlan, Plan
from qtool.stamp.schema import InputStamp, NodeStamp, SaturationStamp, Stamp, TensorStamp
from qtool.types import DTYPE_LIMITS, Dtype, FixedParameters, Granularity, Isa, Op, Spec, Stage, Verdict

texts = st.text(max_size=12)
digests = st.binary(max_size=4).map(lambda data: hashlib.sha256(data).hexdigest())
scales = st.floats(min_value=1e-30, max_value=1e30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=6,
)


@st.composite
def layouts(draw):
    """Draw dtype, range, granularity and axis that agree with each other."""
    dtype = draw(st.sampled_from(Dtype))
    low, high = DTYPE_LIMITS[dtype]
    qmin = draw(st.integers(low, high - 1))
    axis = draw(st.none() | st.integers(0, 4))
    return {
        "dtype": dtype,
        "qmin": qmin,
        "qmax": draw(st.integers(qmin + 1, high)),
        "granularity": Granularity.TENSOR if axis is None else Granularity.CHANNEL,
        "axis": axis,
    }


@st.composite
def specs(draw):
    layout = draw(layouts())
    is_fixed = layout["axis"] is None and draw(st.booleans())
    zero_points = st.integers(layout["qmin"], layout["qmax"])
    is_whole = (layout["qmin"], layout["qmax"]) == DTYPE_LIMITS[layout["dtype"]]
    fixed = st.builds(FixedParameters, scale=scales, zero_point=zero_points) if is_fixed else st.none()
    return Spec(
        **layout,
        symmetric=not is_fixed and draw(st.booleans()),
        fixed=draw(fixed),
        reduce_range=not is_whole and draw(st.booleans()),
        observer=draw(texts),
        why=draw(texts),
        source=draw(texts),
    )


@st.composite
def tensor_stamps(draw):
    layout = draw(layouts())
    if draw(st.booleans()):
        return TensorStamp(edge=draw(texts), **layout)
    small, large = sorted((draw(scales), draw(scales)))
    zeros = st.integers(layout["qmin"], layout["qmax"])
    low, high = sorted((draw(zeros), draw(zeros)))
    return TensorStamp(
        edge=draw(texts),
        **layout,
        scale_min=small,
        scale_max=large,
        zero_point_min=low,
        zero_point_max=high,
        digest=draw(digests),
    )


saturation_stamps = st.builds(
    SaturationStamp,
    verdict=st.sampled_from(["safe", "can_saturate", "unknown"]),
    num_channels=st.integers(0, 4096),
    worst_pair_sum=st.integers(-70000, 70000),
)
node_stamps = st.builds(
    NodeStamp,
    name=texts,
    op=st.none() | st.sampled_from(Op),
    target=texts,
    verdict=st.sampled_from(Verdict),
    reason=texts,
    backends=st.lists(texts, max_size=2).map(tuple),
    inputs=st.lists(tensor_stamps(), max_size=2).map(tuple),
    weight=st.none() | tensor_stamps(),
    output=st.none() | tensor_stamps(),
    activation=st.none() | texts,
    depthwise=st.booleans(),
    channel_multiplier=st.none() | st.integers(1, 8),
    reduce_range=st.booleans(),
    requires_full_range=st.booleans(),
    saturation=st.none() | saturation_stamps,
)
input_stamps = st.builds(
    InputStamp, name=texts, shape=st.lists(st.integers(0, 2**40) | texts, max_size=4).map(tuple), dtype=texts
)
stamps = st.builds(
    Stamp,
    tool_version=texts,
    stage=st.sampled_from(Stage),
    backends=st.lists(texts, max_size=2).map(tuple),
    isa=st.sampled_from(Isa),
    config_digest=digests,
    source_digest=digests,
    content_digest=digests | st.just(""),
    preprocessing=st.none() | st.dictionaries(texts, json_values, max_size=3),
    inputs=st.lists(input_stamps, max_size=2).map(tuple),
    nodes=st.lists(node_stamps, max_size=3, unique_by=lambda node: node.name).map(tuple),
)


@st.composite
def plans(draw):
    names = draw(st.lists(texts, max_size=4, unique=True))
    edges = [EdgePlan(name=name, value=draw(texts), spec=draw(specs()), group=draw(texts)) for name in names]
    edge_names = st.sampled_from(names) if names else st.nothing()
    node = st.builds(
        NodePlan,
        name=texts,
        op=st.none() | st.sampled_from(Op),
        target=texts,
        verdict=st.sampled_from(Verdict),
        reason=texts,
        members=st.lists(texts, max_size=2).map(tuple),
        inputs=st.lists(edge_names, max_size=2).map(tuple) if names else st.just(()),
        output=st.none() | edge_names if names else st.none(),
        weight=st.none() | specs(),
        activation=st.none() | texts,
        depthwise=st.booleans(),
        channel_multiplier=st.none() | st.integers(1, 8),
        batch_norm=st.booleans(),
        reduce_range=st.booleans(),
    )
    nodes = draw(st.lists(node, max_size=3, unique_by=lambda each: each.name))
    return Plan(
        backends=tuple(draw(st.lists(texts, min_size=1, max_size=3))),
        isa=draw(st.sampled_from(Isa)),
        nodes=tuple(nodes),
        edges=tuple(edges),
    )
