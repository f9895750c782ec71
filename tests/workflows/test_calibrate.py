"""Calibrate: what is said of the ranges that were found."""

import math

import pytest
import torch

from qtool.errors import NonFiniteError, QtoolWarning, UncalibratedError
from qtool.runtime.store import from_bytes, to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import Lambda, conv


def test_case_16_ranges_far_apart_in_a_cat_are_told_with_both_ranges():
    torch.manual_seed(0)
    model = Lambda(lambda m, x: torch.cat([m.a(x) * 100, m.b(x) * 0.01], 1), a=conv(), b=conv()).eval()
    x = torch.randn(4, 4, 9, 9)
    config = {"target": {"backend": "fbgemm"}, "quantize": {"overrides": [{"match": "cat", "dtype": "int8"}]}}
    prepared = prepare(model, x, config)
    with pytest.warns(QtoolWarning, match=r"'cat' gives 'mul' \(.* to .*\) and 'mul#2' \(.* to .*\) one scale"):
        calibrate(prepared, [x])
    config = {"target": {"backend": "fbgemm"}, "quantize": {"overrides": [{"match": "cat", "dtype": "float"}]}}
    kept = prepare(model, x, config)
    calibrate(kept, [x])  # a warning would be an error here
    with torch.no_grad():
        error = (kept(x)[:, 8:] - model(x)[:, 8:]).abs().max() / model(x)[:, 8:].abs().max()
    assert float(error) < 0.02


def small(x, **quantize):
    """A convolution and a relu, prepared."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(conv(), torch.nn.ReLU()).eval()
    return prepare(model, x, {"target": {"backend": "fbgemm"}, "quantize": quantize})


def images(batch_size=4, seed=0):
    return torch.randn(batch_size, 4, 9, 9, generator=torch.Generator().manual_seed(seed))


def poisoned(*values):
    x = images(seed=1)
    x[0, 0, 0, : len(values)] = torch.tensor(values)
    return x


@pytest.mark.parametrize(
    ("values", "counts"),
    [((math.nan, math.nan, math.inf), "2 NaN and 1 infinite"), ((-math.inf,), "0 NaN and 1 infinite")],
)
def test_case_20_a_bad_batch_is_an_error_that_names_node_count_and_batch(values, counts):
    prepared = small(images())
    with pytest.raises(NonFiniteError, match=rf"^batch 2: at node 'input': {counts} of 1296 values") as caught:
        calibrate(prepared, [images(), images(seed=3), poisoned(*values)])
    assert isinstance(caught.value, RuntimeError)
    assert "quantize.activations.non_finite: ignore" in str(caught.value)
    expected = small(images())
    calibrate(expected, [images(), images(seed=3)])
    x = images(seed=9)
    assert torch.equal(prepared(x), expected(x))  # what was seen before the bad batch counts, and nothing of it


def test_case_20_ignored_it_leaves_finite_ranges_of_the_finite_values():
    bad = poisoned(math.nan, math.inf, -math.inf)
    prepared = small(images(), activations={"non_finite": "ignore"})
    calibrate(prepared, [images(), bad, images(seed=3)])
    finite = bad[bad.isfinite()]
    point = prepared.activations["input"]
    seen = torch.cat([images().flatten(), finite, images(seed=3).flatten()])
    assert float(point.observer.low) == float(seen.min())
    assert float(point.observer.high) == float(seen.max())
    assert all(float(p.fake_quantize.scale) < 1 for p in prepared.activations.values())
    again = from_bytes(to_bytes(prepared))  # the policy is kept
    calibrate(again, [bad])
    assert torch.equal(again(images()), prepared(images()))


def test_case_20_a_weight_that_is_not_finite_is_named():
    prepared = small(images())
    with torch.no_grad():
        prepared.body.get_parameter("0.weight")[0, 0, 0, 0] = math.nan
    with pytest.raises(NonFiniteError, match=r"node '1': |weight of '0': "):
        calibrate(prepared, [images()])


def test_case_22_values_on_fewer_than_four_codes_are_told_with_node_and_interval():
    prepared = prepare(torch.nn.Linear(50, 4).eval(), torch.zeros(1, 50), {"target": {"backend": "qnnpack"}})
    with pytest.warns(QtoolWarning, match=r"'input' saw values from 1000 to 1001 alone, which lie on 1 of 256 codes"):
        calibrate(prepared, [torch.linspace(1000, 1001, 50).unsqueeze(0)])


def test_case_23_a_set_of_empty_batches_is_one_without_data():
    prepared = small(images())
    assert calibrate(prepared, [images()[:0]]) == 1
    with pytest.raises(UncalibratedError, match="2 of 2 observers saw no data"):
        convert(prepared)
    before = small(images())
    calibrate(before, [images()])
    after = small(images())
    calibrate(after, [images()[:0], images(), images()[:0]])
    assert to_bytes(before) == to_bytes(after)


def test_case_24_the_smallest_scale_is_told_and_nothing_becomes_nan():
    prepared = small(images())
    with pytest.warns(QtoolWarning, match="'input' saw nothing but zeros: its scale is the smallest there is"):
        calibrate(prepared, [torch.zeros(2, 4, 9, 9)])
    assert prepared(torch.zeros(2, 4, 9, 9)).isfinite().all()
    assert prepared(images()).isfinite().all()


def test_case_32_batches_and_pictures_of_other_sizes():
    model = {"factory": "tests.patterns:conv", "random_init": True}
    model["inputs"] = [{"name": "x", "shape": ["batch", 4, "height", "width"]}]
    config = {"target": {"backend": "fbgemm"}, "model": model}
    torch.manual_seed(0)
    first = torch.randn(16, 4, 24, 24)
    prepared = prepare(torch.nn.Sequential(conv(padding=1), torch.nn.ReLU()).eval(), first[:2], config)
    calibrate(prepared, [first, first[:, :, :11, :13], first[:5]])
    assert int(prepared.activations["x"].observer.num_batches) == 3
    assert prepared(first).shape == (16, 8, 24, 24)
    assert prepared(first[:5, :, :11, :13]).shape == (5, 8, 11, 13)
