"""Whatever numbers a file holds, they end in a report: no exception, no warning, and JSON that every reader takes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from qtool.readers.facts import Compute, Operand, Quantization, Role
from qtool.report.json_report import to_json
from qtool.types import Op
from tests.inspection.hand_made import HandMade, inspected

ODD = st.sampled_from([0.0, -0.0, 1e-45, 1e-320, 1e308, -1e308, float("inf"), float("nan"), 2.0**31, 0.5, 1.0])
NUMBERS = st.one_of(ODD, st.floats())
SHAPES = stn.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
STORED = st.one_of(
    stn.arrays(st.sampled_from([np.float16, np.float32, np.float64]), SHAPES),
    stn.arrays(st.sampled_from([np.int8, np.uint8, np.int32, np.int64]), SHAPES),
)


@st.composite
def operands(draw, made):
    found = []
    for role in draw(st.permutations(list(Role))):
        tensor = made.store(f"{role}", draw(STORED)) if draw(st.booleans()) else None
        low = draw(st.integers(-300, 300))
        values = [
            draw(st.one_of(st.none(), st.lists(NUMBERS, max_size=4).map(tuple))),
            draw(st.one_of(st.none(), st.lists(NUMBERS, max_size=4).map(tuple))),
        ]
        numbers = [made.store("n", draw(STORED)) if draw(st.integers(0, 4)) == 0 else each for each in values]
        quantization = Quantization(
            dtype="int8",
            qmin=low,
            qmax=low + draw(st.integers(0, 300)),
            scale=numbers[0],
            zero_point=numbers[1],
            axis=draw(st.one_of(st.none(), st.integers(-5, 5))),
            group_size=draw(st.sampled_from([None, None, 0, 32])),
        )
        found.append(
            Operand(role=role, name=str(role), tensor=tensor, quantization=draw(st.sampled_from([quantization, None])))
        )
    return tuple(found)


@given(st.data())
def test_any_numbers_end_in_a_report(data):
    made = HandMade()
    for name in ("a", "b"):
        made.node(
            name,
            data.draw(st.sampled_from([None, Op.LINEAR, Op.CONV2D, Op.CONV_TRANSPOSE2D, Op.ADD])),
            *data.draw(operands(made)),
            compute=data.draw(st.sampled_from(list(Compute))),
            groups=data.draw(st.sampled_from([None, 0, 1, 2, -1])),
            is_weight_in_out=data.draw(st.booleans()),
            reads=("a",),
        )
    with pytest.MonkeyPatch.context() as monkeypatch:
        report = inspected(made, monkeypatch, asked={"backend": "portable"})
    assert json.loads(to_json(report))["outcome"] != "ok"
