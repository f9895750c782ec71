from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from qtool.numerics.coded import Coded
from qtool.numerics.grid import Grid
from qtool.numerics.kernels import native_max_pool
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.max_pool import NUM_DIMS, max_pool
from tests.numerics.coded_samples import GRID, SIGNED, bytes_saved, random_coded, same_bits

aten = torch.ops.aten
COARSE = Grid(torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), 0, 7)
PER_CHANNEL = Grid(torch.linspace(0.01, 0.5, 5), torch.tensor([0, 9, 200, 7, 255], dtype=torch.int32), 0, 255, 1)
WINDOWS = [
    (2, (), 0, 1, False),
    (3, 2, 1, 1, False),
    (3, 1, 1, 1, True),
    (3, 2, 1, 2, True),
    (2, 3, 1, 1, True),
    (5, 2, 2, 1, True),
]
FORMATS = {
    1: [torch.contiguous_format],
    2: [torch.contiguous_format, torch.channels_last],
    3: [torch.contiguous_format, torch.channels_last_3d],
}
CASES = [(op, fmt) for op, dims in NUM_DIMS.items() for fmt in FORMATS[dims]]
POOL = aten.max_pool2d.default


def assert_same_as_aten(op, x, args, *, leaf=None):
    leaf = x.values if leaf is None else leaf
    found, expected = max_pool(op, x, *args), op(x.values, *args)
    assert same_bits(found.values, expected)
    assert found.values.stride() == expected.stride() or not expected.numel()
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3)).to(expected.dtype)
    got, wanted = (torch.autograd.grad(y, leaf, grad)[0] for y in (found.values, expected))
    assert same_bits(got, wanted)
    assert got.stride() == wanted.stride() or not wanted.numel()
    return found


@pytest.mark.parametrize("is_native", [True, False], ids=["C", "ATen"])
@pytest.mark.parametrize("grid", [GRID, SIGNED, COARSE], ids=["uint8", "int8", "ties"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(("op", "memory_format"), CASES, ids=str)
def test_values_and_gradients_have_the_bits_of_aten(op, memory_format, dtype, grid, is_native, monkeypatch):
    if not is_native:
        monkeypatch.setattr(native_max_pool, "takes", lambda *_: False)
    size = [11, 13, 9][: NUM_DIMS[op]]
    for args in WINDOWS:
        x = random_coded(2, 5, *size, grid=grid, dtype=dtype, memory_format=memory_format)
        found = assert_same_as_aten(op, x, args)
        assert found.codes.stride() == found.values.stride()
        assert same_bits(decode(found.codes, grid, dtype), found.values)


def test_the_c_kernel_runs_here():
    assert native_max_pool.takes(random_coded(1, 1, 2, 2).codes)


@pytest.mark.parametrize("op", NUM_DIMS, ids=str)
def test_without_a_batch(op):
    x = random_coded(5, *[11, 13, 9][: NUM_DIMS[op]])
    assert assert_same_as_aten(op, x, (3, 2, 1)).codes is not None


def test_sizes_of_each_dimension():
    x = random_coded(2, 3, 12, 17)
    assert assert_same_as_aten(POOL, x, ([3, 5], [1, 4], [0, 2], [2, 1], True)).codes is not None
    assert assert_same_as_aten(POOL, x, ([2, 3], [], [1, 0])).codes is not None


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (1, 1, 1, 1), (2, 1, 5, 5), (1, 70, 4, 4), (3, 130, 1, 6)])
@pytest.mark.parametrize("memory_format", FORMATS[2], ids=str)
def test_unusual_sizes(shape, memory_format):
    assert_same_as_aten(POOL, random_coded(*shape, memory_format=memory_format), (3, 2, 1, 1, True))


def test_slices():
    wide = random_coded(2, 6, 12, 12)
    piece = Coded(wide.values[:, 1::2, :, 2:-1], wide.codes[:, 1::2, :, 2:-1], GRID)
    assert assert_same_as_aten(POOL, piece, (3, 2, 1), leaf=wide.values).codes is not None


def test_one_scale_for_each_channel():
    for dtype in (torch.float32, torch.bfloat16):
        x = random_coded(2, 5, 9, 9, grid=PER_CHANNEL, dtype=dtype)
        assert_same_as_aten(POOL, x, (3, 2, 1))
    over_pooled = Grid(torch.linspace(0.1, 1.0, 9), torch.zeros(9, dtype=torch.int32), 0, 255, 3)
    assert assert_same_as_aten(POOL, random_coded(2, 5, 9, 9, grid=over_pooled), (3, 2, 1)).codes is None


def test_windows_beyond_a_byte_or_beyond_the_input_are_left_to_aten():
    large = random_coded(1, 2, 20, 20)
    assert assert_same_as_aten(POOL, large, (16, 2, 0)).codes is None
    assert assert_same_as_aten(POOL, large, ([15, 17], 2, 0)).codes is not None
    with pytest.raises(RuntimeError, match="pad should be"):
        max_pool(POOL, large, 3, 1, 2)
    with pytest.raises(RuntimeError, match="too small"):
        max_pool(POOL, random_coded(1, 2, 2, 2), 3)


def test_without_codes_aten_pools_the_values():
    x = random_coded(2, 3, 8, 8)
    found = max_pool(POOL, Coded(x.values), 2)
    assert same_bits(found.values, POOL(x.values, 2))
    assert found.codes is None


def test_kept_is_one_byte_for_each_output():
    x = random_coded(2, 3, 8, 8)
    assert bytes_saved(lambda: max_pool(POOL, x, 2)) == 2 * 3 * 4 * 4


def test_neither_input_nor_output_is_kept_alive():
    leaf, coded = torch.randn(2, 3, 8, 8, requires_grad=True), random_coded(2, 3, 8, 8)
    x = Coded(coded.values.detach() + 0 * leaf, coded.codes.clone(), GRID)
    found = max_pool(POOL, x, 2)
    loss = found.values.sum()
    gone = [weakref.ref(each) for each in (x.values, x.codes, found.values, found.codes)]
    del x, found
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4
    loss.backward()
    assert leaf.grad is not None


def test_infinite_and_undefined_gradients():
    x = random_coded(2, 3, 8, 8, grid=COARSE)
    found, expected = max_pool(POOL, x, 3, 1).values, POOL(x.values, 3, 1)
    grad = torch.randn(expected.shape)
    grad[0, 0], grad[1, 1, 2:4], grad[1, 1, 0] = torch.inf, -torch.inf, torch.nan
    assert same_bits(*(torch.autograd.grad(y, x.values, grad)[0] for y in (found, expected)))


def test_results_do_not_depend_on_the_number_of_threads():
    x = random_coded(4, 64, 56, 56, grid=COARSE)
    before, found = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            y = max_pool(POOL, x, 3, 2, 1).values
            found.append((y, *torch.autograd.grad(y.square().sum(), x.values)))
    finally:
        torch.set_num_threads(before)
    assert all(same_bits(*pair) for other in found[1:] for pair in zip(found[0], other, strict=True))


def test_backward_can_be_repeated_and_leaves_the_incoming_gradient():
    x = random_coded(2, 3, 8, 8)
    y, grad = max_pool(POOL, x, 3, 1).values, torch.randn(2, 3, 6, 6)
    given = grad.clone()
    first = torch.autograd.grad(y, x.values, grad, retain_graph=True)
    assert all(map(same_bits, first, torch.autograd.grad(y, x.values, grad)))
    assert torch.equal(grad, given)


def test_case_35_a_second_derivative_is_refused():
    x = random_coded(2, 3, 8, 8)
    (grad,) = torch.autograd.grad(max_pool(POOL, x, 2).values.square().sum(), x.values, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.square().sum().backward()


def test_torch_func_grad():
    x = random_coded(2, 3, 8, 8)

    def loss(values):
        return max_pool(POOL, x._replace(values=values), 3, 2, 1).values.square().sum()

    wanted = torch.func.grad(lambda values: POOL(values, 3, 2, 1).square().sum())(x.values.detach())
    assert same_bits(torch.func.grad(loss)(x.values.detach()), wanted)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_inside_a_checkpoint(use_reentrant):
    x = random_coded(2, 3, 8, 8)

    def segment(values):
        return max_pool(POOL, x._replace(values=values * 1.0), 3, 2, 1).values

    checkpoint(segment, x.values, use_reentrant=use_reentrant).square().sum().backward()
    assert same_bits(x.values.grad, torch.autograd.grad(POOL(x.values, 3, 2, 1).square().sum(), x.values)[0])


def test_save_on_cpu_and_autocast():
    x = random_coded(2, 3, 8, 8)
    with torch.autograd.graph.save_on_cpu(), torch.autocast("cpu", torch.bfloat16):
        assert assert_same_as_aten(POOL, x, (3, 2, 1)).codes is not None


def test_changes_in_place_are_harmless():
    x = random_coded(2, 3, 8, 8)
    wanted = torch.autograd.grad(POOL(x.values, 2).sum(), x.values)[0]
    found = max_pool(POOL, x, 2)
    changed = found.values.mul_(2.0)
    with torch.no_grad():
        x.values.zero_()
        x.codes.zero_()
        found.codes.zero_()
    assert same_bits(torch.autograd.grad(changed.sum(), x.values)[0], 2.0 * wanted)


def test_two_threads_at_once():
    found = {}

    def train(seed):
        for _ in range(20):
            x = random_coded(2, 8, 16, 16, seed=seed)
            y = max_pool(POOL, x, 3, 2, 1).values
            found.setdefault(seed, []).append(torch.autograd.grad(y.square().sum(), x.values)[0])

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, grads in found.items():
        x = random_coded(2, 8, 16, 16, seed=seed)
        (wanted,) = torch.autograd.grad(POOL(x.values, 3, 2, 1).square().sum(), x.values)
        assert len(grads) == 20
        assert all(same_bits(grad, wanted) for grad in grads)
