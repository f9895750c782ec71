"""What holds for every observer."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import DtypeError, FileFormatError, NonFiniteError, RangeError, UncalibratedError, UsageError
from qtool.numerics.qparams import SCALE_FLOOR
from qtool.numerics.quantize import quantize
from qtool.observers.registry import OBSERVERS, WEIGHT_OBSERVERS, make_observer
from tests.observers.streams import CHANNEL, REDUCED, SYMMETRIC, UINT8, observe, same_state, streams

every = pytest.mark.parametrize("name", OBSERVERS)
# The three that choose from a histogram keep the same state; moving_average is the one that depends on the order.
every_state = pytest.mark.parametrize("name", ["minmax", "percentile"])
every_weight = pytest.mark.parametrize("name", WEIGHT_OBSERVERS)

ALL = [lambda name=name: make_observer(name) for name in OBSERVERS] + [
    lambda name=name, axis=axis: make_observer(name, axis=axis, is_weight=True)
    for name in WEIGHT_OBSERVERS
    for axis in (None, 0)
]
every_kind = pytest.mark.parametrize("make", ALL)


def batch(seed=0, num_channels=4):
    return torch.randn(num_channels, 50, generator=torch.manual_seed(seed))


@every
@given(streams, st.sampled_from([UINT8, REDUCED, SYMMETRIC]))
def test_any_stream_gives_valid_parameters_that_hold_zero(name, batches, spec):
    observer = observe(make_observer(name), batches)
    if not any(len(each) for each in batches):
        assert int(observer.num_batches) == 0
        return
    scale, zero_point = observer.qparams(spec)
    assert math.isfinite(scale.item())
    assert scale.item() >= SCALE_FLOOR
    assert spec.qmin <= zero_point.item() <= spec.qmax
    code = quantize(torch.zeros(1), scale, zero_point, spec.qmin, spec.qmax, dtype=torch.int32)
    assert code.item() == zero_point.item()


@every_state
@given(streams)
def test_exact_extremes_and_counter_are_kept(name, batches):
    observer = observe(make_observer(name), batches)
    everything = torch.cat(batches)
    assert int(observer.num_batches) == sum(len(each) > 0 for each in batches)
    if len(everything):
        assert observer.low.item() == everything.min().item()
        assert observer.high.item() == everything.max().item()


@every_state
@given(streams)
def test_order_and_cut_do_not_matter(name, batches):
    forward = observe(make_observer(name), batches)
    backward = observe(make_observer(name), reversed(batches))
    assert same_state(forward, backward)
    at_once = observe(make_observer(name), [torch.cat(batches)])
    at_once.num_batches.copy_(forward.num_batches)  # the only difference
    assert same_state(forward, at_once)


@every_state
@given(streams, streams)
def test_merging_equals_observing_everything(name, first, second):
    merged = observe(make_observer(name), first).merged([observe(make_observer(name), second)])
    assert same_state(merged, observe(make_observer(name), [*first, *second]))


@every_weight
@pytest.mark.parametrize("axis", [None, 0])
def test_merging_weights_equals_observing_both(name, axis):
    parts = [make_observer(name, axis=axis, is_weight=True) for _ in range(2)]
    for seed, part in enumerate(parts):
        part.update(batch(seed))
    both = make_observer(name, axis=axis, is_weight=True)
    observe(both, [batch(0), batch(1)])
    assert same_state(parts[0].merged(parts[1:]), both)


@every_kind
def test_merging_changes_nothing_else_and_skips_the_uncalibrated(make):
    observer, empty = observe(make(), [batch()]), make()
    before = copy.deepcopy(observer)
    assert same_state(observer.merged([empty]), before)
    assert same_state(empty.merged([observer, make()]), before)
    assert same_state(observer, before)
    assert same_state(empty, make())
    assert int(empty.merged([make()]).num_batches) == 0


def test_different_kinds_do_not_merge():
    with pytest.raises(RangeError, match="MseObserver of axis None into MinMaxObserver of axis None"):
        make_observer("minmax").merged([make_observer("mse")])
    with pytest.raises(RangeError, match="of axis 1 into MinMaxObserver of axis 0"):
        make_observer("minmax", axis=0).merged([make_observer("minmax", axis=1)])
    narrow = observe(make_observer("minmax", axis=0), [batch(num_channels=3)])
    with pytest.raises(RangeError, match="3 channels"):
        observe(make_observer("minmax", axis=0), [batch()]).merged([narrow])


@every_kind
def test_case_19_the_counter_says_uncalibrated_and_not_the_values(make):
    observer = make()
    with pytest.raises(UncalibratedError, match="saw no data"):
        observer.qparams(UINT8)
    observer.update(torch.zeros(4, 2))  # looks like the start of many an observer
    assert int(observer.num_batches) == 1
    observer.reset()
    assert same_state(observer, make())
    with pytest.raises(UncalibratedError):
        observer.qparams(UINT8)


def test_case_19_a_scale_of_one_is_calibrated():
    assert observe(make_observer("minmax"), [torch.tensor([0.0, 255.0])]).qparams(UINT8).scale.item() == 1.0


@every_kind
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_case_20_non_finite_values_are_refused_with_their_count(make, bad):
    observer = observe(make(), [batch()])
    before = copy.deepcopy(observer)
    poisoned = batch()
    poisoned[1, :3] = bad
    expected = "3 NaN and 0 infinite of 200" if math.isnan(bad) else "0 NaN and 3 infinite of 200"
    with pytest.raises(NonFiniteError, match=expected) as caught:
        observer.update(poisoned)
    assert isinstance(caught.value, RuntimeError)
    assert same_state(observer, before)


@every
def test_case_20_ignore_uses_the_finite_values_only(name):
    observer = make_observer(name, non_finite="ignore")
    observer.update(torch.tensor([[math.nan, 1.0], [math.inf, -2.0]]))
    observer.update(torch.tensor([math.nan, -math.inf]))
    observer.update(torch.tensor([0.5]))
    assert same_state(observer, observe(make_observer(name), [torch.tensor([1.0, -2.0]), torch.tensor([0.5])]))


@every_weight
def test_case_20_ignore_per_channel_counts_them_as_zero(name):
    x = batch()
    x[2] = math.nan
    x[0, 0] = math.inf
    observer = observe(make_observer(name, axis=0, non_finite="ignore"), [x])
    cleaned = observe(make_observer(name, axis=0), [x.nan_to_num(0.0, 0.0, 0.0)])
    assert same_state(observer, cleaned)
    assert observer.qparams(CHANNEL).scale[2].item() == pytest.approx(SCALE_FLOOR)


def test_case_20_a_float64_beyond_float32_is_infinite():
    with pytest.raises(NonFiniteError, match="1 infinite of 2"):
        make_observer("minmax").update(torch.tensor([1e300, 1.0], dtype=torch.float64))


@every
def test_case_21_zeros_then_data(name):
    observer = observe(make_observer(name), [torch.zeros(8), torch.zeros(8)])
    assert observer.qparams(UINT8).scale.item() == SCALE_FLOOR
    observer.update(batch())
    assert 0.001 < observer.qparams(UINT8).scale.item() < 0.1


@every_weight
def test_case_21_a_dead_channel(name):
    weight = batch()
    weight[1] = 0.0
    scale, zero_point = observe(make_observer(name, axis=0), [weight]).qparams(CHANNEL)
    assert scale[1].item() == SCALE_FLOOR
    assert (scale[[0, 2, 3]] > 1e-3).all()
    assert zero_point.tolist() == [0, 0, 0, 0]


@every
@pytest.mark.parametrize("value", [5.0, -3.0, 1e-30, 3e38, -3e38])
def test_case_22_a_constant_is_reproduced_within_a_step(name, value):
    observer = observe(make_observer(name), [torch.full((8,), value)])
    scale, zero_point = observer.qparams(UINT8)
    code = quantize(torch.tensor([value]), scale, zero_point, 0, 255, dtype=torch.int32)
    assert abs(((code - zero_point) * scale).item() - torch.tensor(value).item()) <= scale.item()


@every_kind
def test_case_23_empty_tensors_change_nothing(make):
    observer = make()
    observer.update(torch.empty(0, 3))
    observer.update(torch.empty(4, 0))
    assert same_state(observer, make())
    observer.update(batch())
    after_one = copy.deepcopy(observer)
    observer.update(torch.empty(0, 3))
    assert same_state(observer, after_one)


@every_kind
def test_case_29_integers_are_refused(make):
    for dtype in (torch.int64, torch.uint8, torch.bool):
        with pytest.raises(DtypeError, match=str(dtype)):
            make().update(torch.ones(4, 3, dtype=dtype))


@every
def test_case_32_rank_and_shape_may_change(name):
    observer = observe(make_observer(name), [torch.randn(3, 4, 5), torch.randn(7), torch.tensor(2.0)])
    assert int(observer.num_batches) == 3


@every_weight
def test_case_32_the_number_of_channels_may_not(name):
    observer = observe(make_observer(name, axis=1), [torch.randn(2, 3, 5), torch.randn(4, 3)])
    before = copy.deepcopy(observer)
    with pytest.raises(RangeError, match="4 channels, but had 3"):
        observer.update(torch.randn(2, 4))
    with pytest.raises(RangeError, match="axis 1 does not exist"):
        observer.update(torch.randn(3))
    assert same_state(observer, before)


@every
def test_case_33_state_does_not_grow_and_holds_no_graph(name):
    observer = make_observer(name)
    size = sum(buffer.nbytes for buffer in observer.buffers())
    weight = torch.randn(50, 50, requires_grad=True)
    for seed in range(5):
        observer.update(batch(seed) @ weight)
    assert sum(buffer.nbytes for buffer in observer.buffers()) == size < 20_000
    assert not any(buffer.requires_grad for buffer in observer.buffers())


@every_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_dtypes_count_as_their_float32(make, dtype):
    x = batch().to(dtype)
    assert same_state(observe(make(), [x]), observe(make(), [x.float()]))


@every_kind
def test_layout_does_not_matter(make):
    x = torch.randn(4, 6, 5, 7)
    plain = observe(make(), [x])
    low, high = plain.clipped_range(CHANNEL if plain.axis == 0 else SYMMETRIC)
    for other in (x.to(memory_format=torch.channels_last), x.transpose(2, 3), torch.cat([x, x])[:4]):
        observer = observe(make(), [other])
        again = observer.clipped_range(CHANNEL if plain.axis == 0 else SYMMETRIC)
        assert torch.equal(low, again[0])
        assert torch.equal(high, again[1])


@every_kind
def test_casting_and_copies_keep_every_bit(make):
    observer = observe(make(), [batch()])
    assert same_state(copy.deepcopy(observer), observer)
    assert same_state(pickle.loads(pickle.dumps(observer)), observer)
    for cast in (torch.nn.Module.half, torch.nn.Module.double, torch.nn.Module.bfloat16):
        assert same_state(cast(copy.deepcopy(observer)), observer)


@every_kind
def test_case_61_state_dict_and_arrays_resume_bit_for_bit(make):
    observer = observe(make(), [batch(0)])
    by_state, by_arrays = make(), make()
    by_state.load_state_dict(observer.state_dict())
    by_arrays.load_arrays(observer.to_arrays())
    for each in (observer, by_state, by_arrays):
        each.update(batch(1) * 3)
    assert same_state(by_state, observer)
    assert same_state(by_arrays, observer)
    assert same_state(observe(make(), [batch(0), batch(1) * 3]), observer)


@every_kind
def test_an_uncalibrated_state_survives(make):
    fresh = make()
    fresh.load_arrays(make().to_arrays())
    fresh.load_state_dict(make().state_dict())
    assert same_state(fresh, make())


def test_case_61_another_number_of_channels_is_an_error():
    observer = observe(make_observer("minmax", axis=0), [batch(num_channels=3)])
    with pytest.raises(RuntimeError, match="size mismatch"):
        observer.load_state_dict(observe(make_observer("minmax", axis=0), [batch()]).state_dict())


@every
def test_saved_arrays_are_small(name):
    arrays = observe(make_observer(name), [torch.randn(10_000)]).to_arrays()
    assert sum(array.nbytes for array in arrays.values()) <= 2048 * 4 + 64


@every_kind
@pytest.mark.parametrize(
    "damage",
    [
        {"num_batches": np.array(-1)},
        {"num_batches": np.array(1.0)},
        {"low": np.array(np.nan, dtype=np.float32)},
        {"low": np.array(9.0, dtype=np.float32), "high": np.array(1.0, dtype=np.float32)},
        {"high": np.array(np.inf, dtype=np.float32)},
        {"high": np.zeros((2, 2), dtype=np.float32)},
        {"extra": np.array(1)},
    ],
)
def test_damaged_arrays_are_refused_and_change_nothing(make, damage):
    observer = observe(make(), [batch()])
    before = copy.deepcopy(observer)
    with pytest.raises(FileFormatError):
        observer.load_arrays(observer.to_arrays() | damage)
    missing = observer.to_arrays()
    missing.pop("high")
    with pytest.raises(FileFormatError, match="must hold"):
        observer.load_arrays(missing)
    assert same_state(observer, before)


def test_spec_of_another_axis_is_refused():
    with pytest.raises(RangeError, match="spec has axis 0"):
        observe(make_observer("minmax"), [batch()]).qparams(CHANNEL)
    with pytest.raises(RangeError, match="for axis 0"):
        observe(make_observer("minmax", axis=0), [batch()]).qparams(SYMMETRIC)


def test_unknown_policy_is_refused():
    with pytest.raises(UsageError, match="'drop' is not a policy"):
        make_observer("minmax", non_finite="drop")


@every
def test_forward_passes_the_input_through(name):
    observer, x = make_observer(name), batch()
    assert observer(x) is x
    assert repr(observer).endswith("(1 batches)")
