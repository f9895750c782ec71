from __future__ import annotations

import gc
import threading
import weakref
from math import inf

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from qtool.numerics.combine import combine
from qtool.numerics.fake_quantize import fake_quantize
from qtool.numerics.grid import NO_BOUNDS, Bounds, Grid
from qtool.numerics.kernels.fake_quantize import decode
from tests.numerics.coded_samples import GRID, bytes_saved, same_bits

RELU, RELU6 = Bounds(0.0, inf), Bounds(0.0, 6.0)
NARROW = GRID._replace(scale=torch.tensor(0.01))
PER_CHANNEL = Grid(torch.tensor([0.01, 0.02, 0.5]), torch.tensor([0, 100, 7], dtype=torch.int32), 0, 200, 1)
FORMATS = [torch.contiguous_format, torch.channels_last]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def tensor(*shape, seed=0, dtype=torch.float32, memory_format=torch.contiguous_format):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mul_(2).to(dtype)
    return x.contiguous(memory_format=memory_format).requires_grad_()


def by_autograd(x, addend, bounds, grid):
    """The same in single steps, as torch computes them; in float32 where the kernels do."""
    y = x if x.dtype == torch.float64 else x.float()
    if addend is not None:
        y = y + (addend if addend.dtype == torch.float64 else addend.float())
    before = y.clamp(*bounds) if bounds != NO_BOUNDS else y
    after = before if grid is None else fake_quantize(before, *grid[:4], axis=grid.axis)
    # The gradient of clamp is 1 at its bounds, ours is 0: they are no more inside than what the grid clamps.
    inside = (y > bounds.low) & (y < bounds.high)
    return torch.where(inside, after, after.detach()).to(x.dtype), before.detach()


@pytest.mark.parametrize("grid", [None, NARROW, PER_CHANNEL], ids=["none", "tensor", "channel"])
@pytest.mark.parametrize("bounds", [NO_BOUNDS, RELU, RELU6, Bounds(-1.0, 1.0)], ids=str)
@pytest.mark.parametrize("has_addend", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
def test_values_range_and_gradients_are_those_of_single_steps(grid, bounds, has_addend, dtype, memory_format):
    x = tensor(2, 3, 5, 7, dtype=dtype, memory_format=memory_format)
    addend = tensor(2, 3, 5, 7, seed=1, dtype=dtype) if has_addend else None
    output, low, high = combine(x, addend, bounds=bounds, grid=grid)
    expected, before = by_autograd(x, addend, bounds, grid)
    assert same_bits(output.values, expected)
    assert output.values.stride() == x.stride()
    assert (low.dtype, high.dtype) == (torch.float32, torch.float32)
    assert (float(low), float(high)) == (float(before.min().float()), float(before.max().float()))
    if grid is None:
        assert output.codes is None
    else:
        assert same_bits(decode(output.codes, grid, dtype), output.values)
    inputs = [each for each in (x, addend) if each is not None]
    grad = tensor(2, 3, 5, 7, seed=2, dtype=dtype).detach()
    found = torch.autograd.grad(output.values, inputs, grad)
    wanted = torch.autograd.grad(expected, inputs, grad)
    assert all(map(same_bits, found, wanted))


@pytest.mark.parametrize("shape", [(), (7,), (3, 1, 1), (2, 1, 5, 7), (1, 1, 1, 1), (4, 2, 3, 5, 7)])
def test_addends_of_another_shape_get_reduced_gradients(shape):
    x, addend = tensor(2, 3, 5, 7), tensor(*shape, seed=1)
    output, _, _ = combine(x, addend, bounds=RELU, grid=NARROW)
    expected, _ = by_autograd(x, addend, RELU, NARROW)
    assert same_bits(output.values, expected)
    found, wanted = (torch.autograd.grad(y.square().sum(), [x, addend]) for y in (output.values, expected))
    assert all(map(same_bits, found, wanted))


def test_addends_of_another_dtype_are_added_as_torch_adds():
    x, addend = tensor(2, 3, dtype=torch.bfloat16), tensor(2, 3, seed=1)
    output, _, _ = combine(x, addend, grid=NARROW)
    assert output.values.dtype == torch.float32
    assert same_bits(output.values, fake_quantize(x + addend, *NARROW[:4]))
    grads = torch.autograd.grad(output.values.sum(), [x, addend])
    assert [grad.dtype for grad in grads] == [torch.bfloat16, torch.float32]


def test_sliced_and_repeated_input():
    wide = tensor(2, 6, 5, 9)
    for x in (wide[:, ::2, :, 1:-1], wide[:, :1, :, :7].expand(2, 3, 5, 7)):
        output, _, _ = combine(x, bounds=RELU, grid=NARROW)
        expected, _ = by_autograd(x, None, RELU, NARROW)
        found, wanted = (torch.autograd.grad(y.square().sum(), wide)[0] for y in (output.values, expected))
        assert same_bits(output.values, expected)
        assert same_bits(found, wanted)


def test_a_gradient_in_another_memory_format():
    x = tensor(2, 3, 5, 7, memory_format=torch.channels_last)
    output, _, _ = combine(x, bounds=RELU, grid=NARROW)
    grad = torch.randn(2, 3, 5, 7)
    expected, _ = by_autograd(x, None, RELU, NARROW)
    found, wanted = (torch.autograd.grad(y, x, grad)[0] for y in (output.values, expected))
    assert same_bits(found, wanted)


def test_nan_stays_and_has_no_codes_and_no_gradient():
    x = torch.tensor([1.0, torch.nan, 0.2, torch.inf, -torch.inf], requires_grad=True)
    output, low, high = combine(x, grid=NARROW)
    assert torch.isnan(output.values).tolist() == [False, True, False, False, False]
    assert output.codes is None
    assert output.grid is None
    assert torch.isnan(torch.stack([low, high])).all()
    (grad,) = torch.autograd.grad(output.values, x, torch.full((5,), torch.inf))
    assert grad.tolist() == [torch.inf, 0.0, torch.inf, 0.0, 0.0]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_small_sizes(size):
    x = tensor(size)
    output, _, _ = combine(x, bounds=RELU, grid=NARROW)
    expected, _ = by_autograd(x, None, RELU, NARROW)
    found, wanted = (torch.autograd.grad(y.sum(), x)[0] for y in (output.values, expected))
    assert same_bits(output.values, expected)
    assert same_bits(found, wanted)


def test_saved_bytes_are_none_few_or_a_bit_for_each():
    x = torch.linspace(0.0, 1.0, 8000, requires_grad=True)
    known = (NARROW.scale, NARROW.zero_point)
    wide = GRID
    assert bytes_saved(lambda: combine(x, grid=wide), besides=known) == 0
    clamped = torch.cat([x.detach()[:-2], torch.tensor([99.0, -99.0])]).requires_grad_()
    assert bytes_saved(lambda: combine(clamped, grid=wide), besides=known) == 2 * 4
    half = (x.detach() - 0.5).requires_grad_()
    assert bytes_saved(lambda: combine(half, bounds=RELU, grid=wide), besides=known) == 1000
    assert bytes_saved(lambda: combine(half, half, bounds=RELU), besides=known) == 1000
    assert bytes_saved(lambda: combine(half.detach(), bounds=RELU, grid=wide)) == 0


def test_neither_input_nor_output_is_kept_alive():
    leaf, addend = tensor(8, 8), tensor(8, 8, seed=1)
    x = leaf * 1.0
    output, _, _ = combine(x, addend, bounds=RELU, grid=NARROW)
    loss = output.values.sum()
    gone = [weakref.ref(each) for each in (x, output.values, output.codes)]
    del x, output
    gc.collect()
    assert [ref() for ref in gone] == [None, None, None]
    loss.backward()
    assert leaf.grad is not None


def test_without_gradients_there_is_neither_mask_nor_code():
    with torch.no_grad():
        output, low, high = combine(tensor(2, 3), grid=NARROW)
    assert output.codes is None
    assert low < high
    frozen, _, _ = combine(tensor(2, 3).detach(), grid=NARROW)
    assert not frozen.values.requires_grad
    assert same_bits(decode(frozen.codes, NARROW), frozen.values)  # a layer keeps it for its weight's gradient


def test_backward_can_be_repeated_and_leaves_the_incoming_gradient():
    x, addend = tensor(4, 4), tensor(4, 4, seed=1)
    output, _, _ = combine(x, addend, bounds=RELU, grid=NARROW)
    grad = torch.randn(4, 4)
    given = grad.clone()
    first = torch.autograd.grad(output.values, [x, addend], grad, retain_graph=True)
    assert all(map(same_bits, first, torch.autograd.grad(output.values, [x, addend], grad)))
    assert torch.equal(grad, given)


def test_case_35_a_second_derivative_is_refused_where_it_is_not_zero():
    x = tensor(4, 4)
    output, _, _ = combine(x, bounds=RELU, grid=NARROW)
    (grad,) = torch.autograd.grad(output.values.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_torch_func_grad():
    x, addend = tensor(4, 4).detach(), tensor(4, 4, seed=1).detach()
    found = torch.func.grad(lambda v: combine(v, addend, bounds=RELU, grid=NARROW).output.values.square().sum())(x)
    wanted = torch.func.grad(lambda v: by_autograd(v, addend, RELU, NARROW)[0].square().sum())(x)
    assert same_bits(found, wanted)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_inside_a_checkpoint(use_reentrant):
    x = tensor(4, 4)
    output = checkpoint(
        lambda v: combine(v * 1.0, bounds=RELU, grid=NARROW).output.values, x, use_reentrant=use_reentrant
    )
    output.square().sum().backward()
    (wanted,) = torch.autograd.grad(by_autograd(x, None, RELU, NARROW)[0].square().sum(), x)
    assert same_bits(x.grad, wanted)


def test_save_on_cpu_sees_the_mask():
    x, seen = tensor(4, 4), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.nbytes), t)[1], lambda t: t):
        output, _, _ = combine(x, bounds=RELU, grid=NARROW)
    assert seen == [2]
    with torch.autograd.graph.save_on_cpu():
        output, _, _ = combine(x, bounds=RELU, grid=NARROW)
    found, wanted = (
        torch.autograd.grad(y.square().sum(), x)[0] for y in (output.values, by_autograd(x, None, RELU, NARROW)[0])
    )
    assert same_bits(found, wanted)


def test_changes_in_place_are_harmless():
    x, addend = tensor(4, 4), tensor(4, 4, seed=1)
    output, _, _ = combine(x, addend, bounds=RELU, grid=NARROW)
    wanted = torch.autograd.grad(by_autograd(x, addend, RELU, NARROW)[0].sum(), [x, addend])
    changed = output.values.mul_(2.0)
    with torch.no_grad():
        x.zero_()
        output.codes.zero_()
    assert all(map(same_bits, torch.autograd.grad(changed.sum(), [x, addend]), [2.0 * each for each in wanted]))


def test_autocast_changes_nothing():
    x, addend = tensor(4, 4), tensor(4, 4, seed=1, dtype=torch.float32)
    expected = combine(x, addend, bounds=RELU, grid=NARROW).output.values
    with torch.autocast("cpu", torch.bfloat16):
        assert same_bits(combine(x, addend, bounds=RELU, grid=NARROW).output.values, expected)


def test_two_threads_at_once():
    found = {}

    def train(seed):
        for _ in range(20):
            x = tensor(64, 64, seed=seed)
            output, _, _ = combine(x, bounds=RELU, grid=NARROW)
            found.setdefault(seed, []).append(torch.autograd.grad(output.values.square().sum(), x)[0])

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, grads in found.items():
        x = tensor(64, 64, seed=seed)
        (wanted,) = torch.autograd.grad(by_autograd(x, None, RELU, NARROW)[0].square().sum(), x)
        assert len(grads) == 20
        assert all(same_bits(grad, wanted) for grad in grads)
