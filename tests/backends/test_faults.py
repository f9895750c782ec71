import signal
import subprocess
import sys
from dataclasses import asdict
from json import dumps, loads
from pathlib import Path

import pytest

from qtool.backends.faults import conv_fault
from qtool.backends.registry import BACKENDS, backend
from qtool.types import Op
from tests.backends.engines.cases import Geometry, kernel_case, weight_patterns

ROOT = Path(__file__).parents[2]


def fault(name, groups, per_group, kernel=(3, 3), outputs_per_group=None):
    num_outputs = groups * (outputs_per_group or per_group)
    return conv_fault(backend(name), Op(f"conv{len(kernel)}d"), (num_outputs, per_group, *kernel), groups)


@pytest.mark.parametrize("name", ["fbgemm", "x86"])
@pytest.mark.parametrize(("groups", "per_group"), [(9, 2), (33, 2), (65, 2), (5, 4), (7, 4), (23, 4)])
def test_channels_left_over_by_sixteens(name, groups, per_group):
    assert "crashes the process" in fault(name, groups, per_group)


@pytest.mark.parametrize("name", ["fbgemm", "x86"])
@pytest.mark.parametrize(("groups", "per_group"), [(9, 2), (33, 2), (5, 4), (7, 4)])
def test_channels_left_over_in_three_dimensions(name, groups, per_group):
    assert "crashes the process" in fault(name, groups, per_group, (3, 3, 3))


@pytest.mark.parametrize(
    ("groups", "per_group", "kernel", "outputs_per_group"),
    [
        (8, 2, (3, 3), 2),
        (32, 4, (3, 3), 4),  # ResNeXt
        (5, 2, (3, 3), 2),  # fits into one step
        (3, 4, (3, 3), 4),
        (9, 8, (3, 3), 8),
        (9, 1, (3, 3), 1),
        (9, 2, (5, 5), 2),
        (9, 2, (3, 3), 4),
        (9, 2, (3,), 2),
        (9, 2, (1, 3, 3), 2),
        (8, 4, (3, 3, 3), 4),
        (1, 2, (3, 3), 2),
    ],
)
def test_all_others_are_fine(groups, per_group, kernel, outputs_per_group):
    assert fault("fbgemm", groups, per_group, kernel, outputs_per_group) == ""


@pytest.mark.parametrize("record", BACKENDS, ids=lambda record: record.name)
def test_only_fbgemm_has_the_fault(record):
    assert bool(fault(record.name, 5, 4)) == (record.name in {"fbgemm", "x86"})


@pytest.mark.parametrize(
    ("shape", "groups", "is_wrong"),
    [
        ((8, 8, 2, 2), 1, True),
        ((16, 24, 2, 6), 1, True),
        ((8, 8, 2, 2), 2, False),
        ((8, 12, 2, 2), 1, False),
        ((4, 8, 2, 2), 1, False),
        ((8, 8, 3, 2), 1, False),
        ((8, 8, 1, 2), 1, False),
    ],
)
def test_case_10_transposed_windows_of_height_2(shape, groups, is_wrong):
    assert bool(conv_fault(backend("fbgemm"), Op.CONV_TRANSPOSE2D, shape, groups)) == is_wrong
    assert conv_fault(backend("fbgemm"), Op.CONV_TRANSPOSE1D, (*shape[:2], 2), groups) == ""
    assert conv_fault(backend("qnnpack"), Op.CONV_TRANSPOSE2D, shape, groups) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "per_group", "kernel"),
    [(9, 2, (3, 3)), (33, 2, (3, 3)), (5, 4, (3, 3)), (9, 2, (3, 3, 3)), (33, 2, (3, 3, 3))],
)
def test_the_fault_is_still_there(groups, per_group, kernel):
    """One that upstream mends shows here, and its record can go. The C library may notice the damage and abort."""
    geometry = Geometry(channels=(groups * per_group,) * 2, kernel=kernel, groups=groups)
    case = kernel_case("fbgemm", geometry, weight_patterns(geometry.weight_shape)["positive"], 127)
    request = dumps(["largest_errors", [asdict(case)] * 50]) + "\n"
    command = [sys.executable, "-m", "tests.backends.engines.worker"]
    ended = subprocess.run(command, input=request, capture_output=True, text=True, cwd=ROOT, check=False)
    is_wrong = ended.returncode == 0 and max(loads(ended.stdout)) > 1
    assert is_wrong or ended.returncode in (-signal.SIGABRT, -signal.SIGSEGV)
