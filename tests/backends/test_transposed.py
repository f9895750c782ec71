"""Transposed convolutions on every engine: at most one step off wherever the catalog lets them run in int8."""

from dataclasses import asdict, dataclass
from itertools import cycle, product

import pytest

from qtool.backends.faults import conv_fault
from qtool.backends.ranges import would_saturate
from qtool.backends.record import Support
from qtool.backends.registry import backend
from qtool.types import Granularity, Op
from tests.backends.engines.client import CAPS, UNCAPPED, ask, capped_host


@dataclass(frozen=True, kw_only=True)
class Transposed:
    channels: tuple[int, int]  # in, out
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    output_padding: int = 0
    dilation: int = 1
    groups: int = 1
    per_channel: bool = False
    zero_point: int = 0
    a_hi: int = 127
    loud: bool = False

    @property
    def op(self):
        return Op(f"conv_transpose{len(self.kernel)}d")

    def fault_on(self, name):
        inputs, outputs = self.channels
        return conv_fault(backend(name), self.op, (inputs, outputs // self.groups, *self.kernel), self.groups)


def steps(engine, cases, caps=UNCAPPED):
    return ask("transposed", [engine, [asdict(case) for case in cases]], caps)


WINDOWS = ((2, 2), (3, 2), (4, 2), (1, 1), (3, 1), (2, 1), (2, 3))  # size, stride
CHANNELS = ((4, 4), (8, 8), (16, 16), (12, 12), (4, 6), (8, 16), (16, 8), (4, 8), (8, 4), (24, 40))
EDGES = ((0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2))  # padding, output padding, dilation


def matrix(name):
    """Mixes of dimensions, channels, windows, groups and scales that the engine takes, with zero points in turn."""
    zero_points = cycle((0, 64, 127))
    for dims, channels, (size, stride), groups in product((1, 2), CHANNELS, WINDOWS, (1, 2, 4)):
        if any(number % groups for number in channels):
            continue
        rule = backend(name).rule(Op(f"conv_transpose{dims}d"))
        can_have_channels = Granularity.CHANNEL in rule.granularities and groups == 1
        for (padding, extra, dilation), per_channel in product(EDGES, (False, True)):
            if extra < max(stride, dilation) and (can_have_channels or not per_channel):
                yield Transposed(
                    channels=channels,
                    kernel=(size,) * dims,
                    stride=stride,
                    padding=padding,
                    output_padding=extra,
                    dilation=dilation,
                    groups=groups,
                    per_channel=per_channel,
                    zero_point=next(zero_points),
                )


@pytest.mark.parametrize("name", ["fbgemm", "qnnpack"])
def test_case_10_what_is_not_refused_is_at_most_one_step_off(name):
    cases = [case for case in matrix(name) if not case.fault_on(name)]
    assert len(cases) > 1000
    assert [case for case, found in zip(cases, steps(name, cases), strict=True) if found > 1] == []


def test_case_10_the_fault_is_still_there():
    """The usual upsampling block. A fault that upstream mends shows here, and its record can go."""
    cases = [
        Transposed(channels=channels, kernel=kernel, stride=stride, zero_point=zero_point)
        for channels, kernel, stride, zero_point in product(
            ((8, 8), (8, 16), (16, 24), (40, 8)), ((2, 1), (2, 2), (2, 6)), (1, 2), (0, 100)
        )
    ]
    assert all(case.fault_on("fbgemm") for case in cases)
    assert not any(case.fault_on("qnnpack") for case in cases)
    assert min(steps("fbgemm", cases)) > 10
    assert max(steps("qnnpack", cases)) <= 1


@pytest.mark.parametrize("name", ["onednn", "x86"])
def test_case_09_onednn_and_x86_are_wrong_where_channels_differ(name):
    """So they have no int8 kernel for transposed convolutions here, and those stay float."""
    differ = [Transposed(channels=channels, kernel=(3, 3)) for channels in ((4, 6), (8, 4), (2, 16))]
    assert min(steps("onednn", differ)) > 10
    assert {backend(name).rule(case.op).support for case in differ} == {Support.UNSUPPORTED}
    assert backend(name).rule(Op.CONV_TRANSPOSE1D).support is Support.UNSUPPORTED


LOUD = [
    Transposed(channels=channels, kernel=kernel, groups=groups, a_hi=255, loud=True)
    for channels, kernel, groups in (
        ((16, 12), (3,), 1), ((16, 12), (3, 3), 1), ((8, 8), (4, 4), 2), ((8, 8), (3,), 8), ((8, 8), (3, 3), 8)
    )
]  # fmt: skip


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("name", ["fbgemm", "qnnpack"])
def test_full_range_saturates_where_the_catalog_says(name, caps):
    isa = capped_host(CAPS[caps]).isa_of(name)
    said = [
        would_saturate(backend(name), isa, case.op, depthwise=case.groups == 8, channel_multiplier=1) for case in LOUD
    ]
    assert [found > 1 for found in steps(name, LOUD, CAPS[caps])] == said


@pytest.mark.parametrize("caps", CAPS)
def test_the_reduced_range_is_exact_everywhere(caps):
    cases = [Transposed(**{**asdict(case), "a_hi": 127}) for case in LOUD]
    assert max(steps("fbgemm", cases, CAPS[caps])) <= 1
