"""The catalog's saturation rules against real kernels: at full and at reduced range, with and without VNNI.

Exactness is claimed of every input, so each pattern, each way to run and each cap must show it. Saturation is claimed
of some input, so one of them is enough.
"""

from functools import cache
from itertools import product

import pytest

from qtool.backends.faults import conv_fault
from qtool.backends.host import host_facts
from qtool.backends.ranges import would_saturate
from qtool.backends.registry import backend
from qtool.types import Op
from tests.backends.engines.cases import Geometry, kernel_case, weight_patterns
from tests.backends.engines.client import CAPS, capped_host, largest_errors

# How a model for a backend is run: as lowered here, and by the packed ops of the engine (as TorchScript would).
WAYS = {"fbgemm": ("fbgemm",), "x86": ("x86", "plain"), "onednn": ("onednn", "plain"), "qnnpack": ("qnnpack",)}

KERNELS = {
    "linear": (Geometry(channels=(64, 16)), Geometry(channels=(33, 7), batch=4)),
    "conv1d": (Geometry(channels=(16, 8), kernel=(3,), batch=2),),
    "conv2d": (
        Geometry(channels=(24, 16), kernel=(1, 1)),
        Geometry(channels=(3, 16), kernel=(3, 3), stride=2, batch=3),
        Geometry(channels=(1, 16), kernel=(3, 3)),  # one channel, one group: not depthwise
        Geometry(channels=(16, 16), kernel=(3, 3), groups=2, per_channel=False),
        Geometry(channels=(16, 16), kernel=(3, 3), groups=4, batch=2),
    ),
    "conv3d": (
        Geometry(channels=(8, 16), kernel=(1, 1, 1)),
        Geometry(channels=(3, 16), kernel=(3, 3, 3), stride=2, batch=2),
        Geometry(channels=(16, 16), kernel=(1, 3, 3), groups=2, per_channel=False),
    ),
    "depthwise conv3d": (
        Geometry(channels=(8, 8), kernel=(3, 3, 3), groups=8),
        Geometry(channels=(16, 16), kernel=(3, 3, 3), groups=16, stride=2, batch=2),
    ),
    "depthwise conv1d": (
        Geometry(channels=(8, 8), kernel=(5,), groups=8),
        Geometry(channels=(104, 104), kernel=(3,), groups=104),
    ),
    "depthwise conv2d": (
        Geometry(channels=(8, 8), kernel=(3, 3), groups=8),
        Geometry(channels=(20, 20), kernel=(3, 3), groups=20, stride=2, batch=2),
        Geometry(channels=(16, 16), kernel=(5, 5), groups=16, stride=2),
        Geometry(channels=(104, 104), kernel=(3, 3), groups=104),
    ),
    "depthwise conv2d, more outputs": (
        Geometry(channels=(8, 16), kernel=(3, 3), groups=8, batch=2),
        Geometry(channels=(4, 32), kernel=(3, 3), groups=4),
        Geometry(channels=(104, 208), kernel=(3, 3), groups=104),
    ),
}


@cache
def largest_error(name, kernel, caps, a_hi):
    """How far the worst sum of one kernel of a backend is off, over every way to run it, geometry and pattern."""
    cases = [
        kernel_case(way, geometry, weight, a_hi)
        for way, geometry in product(WAYS[name], KERNELS[kernel])
        for weight in weight_patterns(geometry.weight_shape).values()
    ]
    return max(largest_errors(cases, CAPS[caps]))


def isa_under(name, caps):
    return capped_host(CAPS[caps]).isa_of(name)


def said_to_saturate(name, kernel, isa):
    geometry = KERNELS[kernel][0]
    return would_saturate(
        backend(name),
        isa,
        Op(geometry.op),
        depthwise=geometry.depthwise,
        channel_multiplier=geometry.channel_multiplier,
    )


def can_be_shown(name, kernel):
    """Whether results depend on the CPU, and this CPU can show it: one case of oneDNN needs AVX-512 without VNNI."""
    needs_avx512 = name == "onednn" and kernel == "depthwise conv2d, more outputs"
    has_avx512 = "avx512bw" in (host_facts().cpu_flags or ())
    return backend(name).isa is not None and (has_avx512 or not needs_avx512)


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", WAYS)
def test_what_the_catalog_calls_exact_is_exact_at_full_range(name, kernel, caps):
    assert largest_error(name, kernel, caps, 255) == 0 or said_to_saturate(name, kernel, isa_under(name, caps))


@pytest.mark.parametrize("isa", sorted({isa_under("fbgemm", caps) for caps in CAPS}))
@pytest.mark.parametrize(("name", "kernel"), [pair for pair in product(WAYS, KERNELS) if can_be_shown(*pair)])
def test_what_the_catalog_says_saturates_does(name, kernel, isa):
    """So that no activation gives up its eighth bit in vain."""
    largest = max(largest_error(name, kernel, caps, 255) for caps in CAPS if isa_under(name, caps) is isa)
    assert (largest > 0) == said_to_saturate(name, kernel, isa)


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("name", WAYS)
def test_the_reduced_range_is_exact_everywhere(name, caps):
    assert {kernel: largest_error(name, kernel, caps, 127) for kernel in KERNELS} == dict.fromkeys(KERNELS, 0)


def many_geometries():
    """Every mix of groups, inputs and outputs per group that has a kernel of its own somewhere, and odd ones."""
    for groups, per_group, outputs in product((1, 8, 33, 104), (1, 2, 4, 8), (1, 2, 4, 16)):
        if groups * max(per_group, outputs) > 320:
            continue
        shape = {"channels": (groups * per_group, groups * outputs), "groups": groups}
        for kernel in ((1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (3,)):
            yield Geometry(**shape, kernel=kernel)
            yield Geometry(**shape, kernel=kernel, stride=2, batch=4, per_channel=False)
            yield Geometry(**shape, kernel=kernel, padding=0)
            yield Geometry(**shape, kernel=kernel, dilation=2)
    for channels, batch in product(((8, 8), (33, 7), (256, 100), (1280, 64)), (1, 2, 7, 64)):
        yield Geometry(channels=channels, batch=batch)
        yield Geometry(channels=channels, batch=batch, per_channel=False)


CAPS_THAT_NARROW = {
    "FBGEMM: AVX-512, 256 bits": (("FBGEMM_ENABLE_INSTRUCTIONS", "avx512_256"),),
    "FBGEMM: VNNI": (("FBGEMM_ENABLE_INSTRUCTIONS", "AVX512_E1"),),
    "oneDNN: AVX-VNNI": (("ONEDNN_MAX_CPU_ISA", "AVX2_VNNI"),),
    "oneDNN: AVX-512 VNNI": (("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI"),),
    "oneDNN: old name": (("DNNL_MAX_CPU_ISA", "AVX2"),),
    "oneDNN: SSE4.1": (("ONEDNN_MAX_CPU_ISA", "SSE41"),),
}
ALL_CAPS = {**CAPS, **CAPS_THAT_NARROW}


def has_effect(name, caps):
    record = backend(name)
    variables = {variable for cap in record.isa.caps for variable in cap.variables} if record.isa else set()
    return not ALL_CAPS[caps] or bool(variables & dict(ALL_CAPS[caps]).keys())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "caps"), [pair for pair in product(WAYS, ALL_CAPS) if has_effect(*pair)])
def test_many_geometries(name, caps):
    """What the catalog calls exact is exact at full range; and the reduced range whatever it says."""
    record, isa = backend(name), capped_host(ALL_CAPS[caps]).isa_of(name)
    cases = []
    for way, geometry in product(WAYS[name], many_geometries()):
        op, multiplier = Op(geometry.op), geometry.channel_multiplier
        if conv_fault(record, op, geometry.weight_shape, geometry.groups):
            continue  # it would take the worker down: see test_faults.py
        saturates = would_saturate(record, isa, op, depthwise=geometry.depthwise, channel_multiplier=multiplier)
        a_hi = 127 if saturates else 255
        patterns = weight_patterns(geometry.weight_shape)
        cases += [kernel_case(way, geometry, patterns[pattern], a_hi) for pattern in ("positive", "random")]
    found = zip(largest_errors(cases, ALL_CAPS[caps]), cases, strict=True)
    assert [case for error, case in found if error] == []
