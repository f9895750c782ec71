from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.qparams import affine_qparams, qparams_for
from qtool.observers.expected_error import expected_squared_error
from qtool.observers.mse import MseObserver, MseWeightObserver
from tests.observers.streams import CHANNEL, REDUCED, SYMMETRIC, UINT8, observe


def squared_error(x, qparams, spec):
    return (fake_quantize(x, *qparams, spec.qmin, spec.qmax) - x).double().square().sum().item()


DATA = {
    "normal": torch.randn(50_000, generator=torch.manual_seed(0)),
    "relu": torch.randn(50_000, generator=torch.manual_seed(1)).relu(),
    "heavy tail": torch.randn(50_000, generator=torch.manual_seed(2)).pow(3),
    "uniform": torch.rand(50_000, generator=torch.manual_seed(3)) * 3 - 1,
    "outliers": torch.cat([torch.randn(50_000, generator=torch.manual_seed(4)), torch.tensor([80.0, -60.0])]),
}
every_data = pytest.mark.parametrize("x", DATA.values(), ids=DATA)
every_spec = pytest.mark.parametrize("spec", [UINT8, REDUCED, SYMMETRIC], ids=["full", "reduced", "symmetric"])


@pytest.mark.parametrize("name", DATA)
@every_spec
def test_the_estimate_is_the_real_error(name, spec):
    x = DATA[name]
    # The zeros of a relu and the peak of a heavy tail are spread over their bin.
    tolerance = 0.1 if name in {"relu", "heavy tail"} else 0.004
    edges, counts = observe(MseObserver(), [x]).histogram()
    for share in (1.0, 0.7, 0.3):
        qparams = qparams_for(x.min().reshape(1) * share, x.max().reshape(1) * share, spec)
        estimate = expected_squared_error(edges, counts, qparams, spec).item()
        real = squared_error(x, (qparams.scale[0], qparams.zero_point[0]), spec)
        assert estimate == pytest.approx(real, rel=tolerance)


@given(st.floats(0.5, 20.0), st.floats(0.5, 20.0))
def test_the_integral_of_evenly_spread_values_is_exact(low, high):
    # Fine sampling of the same bins, quantized one by one.
    edges, counts = torch.linspace(-8.0, 8.0, 17).double(), torch.arange(16)
    qparams = affine_qparams(torch.tensor([-low]), torch.tensor([high]), 0, 127)
    centers = (torch.arange(4000).double() + 0.5) / 4000
    x = edges[:-1, None] + centers
    code = (x / qparams.scale.double()).round().add(qparams.zero_point).clamp(0, 127)
    value = (code - qparams.zero_point) * qparams.scale.double()
    sampled = ((x - value).square().mean(dim=1) * counts).sum().item()
    assert expected_squared_error(edges, counts, qparams, REDUCED).item() == pytest.approx(sampled, rel=1e-3)


@every_data
@every_spec
def test_no_candidate_of_a_dense_grid_is_much_better(x, spec):
    observer = observe(MseObserver(), [x])
    found = squared_error(x, observer.qparams(spec), spec)
    low, high = x.min(), x.max()
    shares = [0.05, 0.1, 0.2, 0.4, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]
    best = min(squared_error(x, qparams_for(low * a, high * b, spec), spec) for a in shares for b in shares)
    assert found <= best * 1.02


def test_outliers_on_both_sides_are_cut():
    x = DATA["outliers"]
    low, high = (end.item() for end in observe(MseObserver(), [x]).clipped_range(REDUCED))
    assert -60.0 < low < -3.0
    assert 3.0 < high < 80.0


def test_the_steps_of_the_spec_decide():
    observer = observe(MseObserver(), [DATA["normal"]])
    full, reduced = (observer.clipped_range(spec)[1].item() for spec in (UINT8, REDUCED))
    assert reduced < full  # coarser steps are worth more clamping


@pytest.mark.parametrize("spec", [replace(SYMMETRIC, qmin=-7, qmax=7), replace(UINT8, qmax=15)])
def test_a_weight_is_measured_itself(spec):
    weight = DATA["normal"][:2000]
    observer = observe(MseWeightObserver(), [weight])
    found = squared_error(weight, observer.qparams(spec), spec)
    whole = squared_error(weight, qparams_for(weight.min(), weight.max(), spec), spec)
    assert found < whole
    # and the histogram of the activation observer comes to the same within a few percent
    assert found == pytest.approx(squared_error(weight, observe(MseObserver(), [weight]).qparams(spec), spec), rel=0.05)


def test_each_channel_of_a_weight_finds_its_own_range():
    weight = torch.stack([DATA["normal"][:500], DATA["heavy tail"][:500], DATA["uniform"][:500] * 1e-4])
    scale = observe(MseWeightObserver(0), [weight]).qparams(CHANNEL).scale
    for channel in range(3):
        alone = observe(MseWeightObserver(), [weight[channel]]).qparams(SYMMETRIC).scale
        assert scale[channel].item() == alone.item()


def test_a_weight_is_copied():
    weight = torch.ones(3, 4)
    observer = observe(MseWeightObserver(0), [weight])
    weight.fill_(9.0)
    assert (observer.values == 1.0).all()
