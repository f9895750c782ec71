from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

from qtool.numerics.coded import Coded
from qtool.numerics.input_keeping import FORMULAS
from qtool.numerics.kept_as_codes import kept_as_codes
from tests.numerics.coded_samples import GRID, SIGNED, bytes_saved, random_coded, same_bits
from tests.numerics.op_samples import input_keeping_samples, other_samples

aten = torch.ops.aten
LAYOUTS = {
    "contiguous": {},
    "channels_last": {"memory_format": torch.channels_last},
}
NOT_IN_BFLOAT16 = {aten.cdist.default, aten.avg_pool3d.default}
NAMES = list(input_keeping_samples())


def is_coded(x):
    return isinstance(x, Coded)


def plain(args):
    return tree_map(lambda x: x.values if is_coded(x) else x, args, is_leaf=is_coded)


def floats(tensors):
    return [tensor for tensor in tree_leaves(tensors) if isinstance(tensor, Tensor) and tensor.is_floating_point()]


def gradients(outputs, inputs, *, retain_graph=False):
    generator = torch.Generator().manual_seed(4)
    outputs = [output for output in floats(outputs) if output.requires_grad]
    grads = [torch.randn(y.shape, generator=generator).to(y.dtype).copy_(y.detach() * 0.3 + 0.1) for y in outputs]
    return torch.autograd.grad(outputs, inputs, grads, allow_unused=True, retain_graph=retain_graph)


def assert_same_as_autograd(op, args):
    expected = op(*plain(args))
    inputs = [tensor for tensor in floats(plain(args)) if tensor.requires_grad]
    output = kept_as_codes(op, *args)
    for one, other in zip(tree_leaves(output), tree_leaves(expected), strict=True):
        assert same_bits(one, other)
        assert one.stride() == other.stride()
    found, wanted = gradients(output, inputs), gradients(expected, inputs)
    for one, other in zip(found, wanted, strict=True):
        assert same_bits(one, other)
        assert one is None or one.stride() == other.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_have_the_bits_of_autograd(name, dtype, layout):
    op, args = input_keeping_samples(dtype=dtype, **LAYOUTS[layout])[name]
    if dtype is torch.bfloat16 and op in NOT_IN_BFLOAT16:
        for run in (lambda: op(*plain(args)), lambda: kept_as_codes(op, *args)):
            with pytest.raises(RuntimeError, match=r"not implemented|only supports"):
                run()
        return
    assert_same_as_autograd(op, args)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_too(name):
    op, args = input_keeping_samples()[name]
    with torch.autocast("cpu", torch.bfloat16):
        expected = op(*plain(args))
        output = kept_as_codes(op, *args)
    inputs = [tensor for tensor in floats(plain(args)) if tensor.requires_grad]
    assert [y.dtype for y in floats(output)] == [y.dtype for y in floats(expected)]
    for one, other in zip(gradients(output, inputs), gradients(expected, inputs), strict=True):
        assert same_bits(one, other)


def test_backward_inside_another_autocast_region_repeats_the_one_of_the_forward():
    a, b = random_coded(4, 4), random_coded(4, 4, seed=1)
    output, expected = kept_as_codes(aten.matmul.default, a, b), a.values @ b.values
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(output, [a.values, b.values])
        wanted = gradients(expected, [a.values, b.values])
    assert all(map(same_bits, found, wanted))


def test_autocast_keeps_no_weight_without_gradient_for_later_ops():
    x, weight = random_coded(4, 4), torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        first = kept_as_codes(aten.matmul.default, x, weight)
        second = torch.ones(4, 4) @ weight
    (grad,) = torch.autograd.grad(second.sum(), weight)
    assert torch.equal(grad, torch.full((4, 4), 4.0))
    assert first.requires_grad


@pytest.mark.parametrize("name", [str(op) for op in FORMULAS])
def test_gradients_of_slices(name):
    op, args = input_keeping_samples()[name]
    shape = tree_leaves(plain(args))[0].shape
    wide = random_coded(*shape[:-1], shape[-1] + 3, seed=6)
    piece = Coded(wide.values[..., 2:-1], wide.codes[..., 2:-1], wide.grid)
    output, expected = kept_as_codes(op, piece, *args[1:]), op(piece.values, *plain(args)[1:])
    assert all(map(same_bits, gradients(output, [wide.values]), gradients(expected, [wide.values])))


@pytest.mark.parametrize("op", [aten.silu.default, aten.softplus.default, aten.matmul.default])
def test_gradients_of_repeated_values(op):
    row = random_coded(2, 1, 9)
    wide = Coded(row.values.expand(2, 5, 9), row.codes.expand(2, 5, 9), row.grid)
    args = (wide, random_coded(9, 4, seed=1)) if op is aten.matmul.default else (wide,)
    output, expected = kept_as_codes(op, *args), op(*plain(args))
    assert all(map(same_bits, gradients(output, [row.values]), gradients(expected, [row.values])))
    assert bytes_saved(lambda: kept_as_codes(op, wide, *args[1:]), besides=(GRID.scale, GRID.zero_point)) <= 18 + 36


def test_broadcast_factors_get_reduced_gradients():
    a, b = random_coded(2, 4, 6, 6), random_coded(2, 4, 1, 1, grid=SIGNED, seed=1)
    assert_same_as_autograd(aten.mul.Tensor, (a, b))
    assert_same_as_autograd(aten.mul.Tensor, (b, a))
    assert_same_as_autograd(aten.div.Tensor, (a, b))


def test_factors_of_two_dtypes():
    a, b = random_coded(2, 4, dtype=torch.bfloat16), random_coded(2, 4, grid=SIGNED, seed=1)
    assert_same_as_autograd(aten.mul.Tensor, (a, b))
    assert_same_as_autograd(aten.div.Tensor, (a, b))


@pytest.mark.parametrize("op", [aten.mul.Tensor, aten.matmul.default])
def test_a_tensor_times_itself(op):
    a = random_coded(4, 4)
    assert_same_as_autograd(op, (a, a))
    assert bytes_saved(lambda: kept_as_codes(op, a, a), besides=(GRID.scale, GRID.zero_point)) == 16


@pytest.mark.parametrize("op", [aten.mul.Tensor, aten.matmul.default])
@pytest.mark.parametrize("wants", [(True, False), (False, True)])
def test_only_one_factor_wants_a_gradient(op, wants):
    parts = [random_coded(4, 4, seed=seed) for seed in (0, 1)]
    args = [
        part._replace(values=part.values.detach().requires_grad_(want)) for part, want in zip(parts, wants, strict=True)
    ]
    assert_same_as_autograd(op, args)


def test_infinite_and_undefined_gradients():
    x = random_coded(2, 4, 6, 6)
    for op in (aten.silu.default, aten.hardswish.default, aten.avg_pool2d.default):
        args = (x, [2, 2]) if op is aten.avg_pool2d.default else (x,)
        output, expected = kept_as_codes(op, *args), op(*plain(args))
        grad = torch.full_like(expected, torch.inf)
        grad[0, 0] = torch.nan
        (found,), (wanted,) = (torch.autograd.grad(y, x.values, grad) for y in (output, expected))
        assert same_bits(found, wanted)


@pytest.mark.parametrize("name", other_samples())
def test_ops_that_keep_nothing_just_run(name):
    op, args = other_samples()[name]
    output, expected = kept_as_codes(op, *args), op(*plain(args))
    assert same_bits(output, expected)
    assert output.grad_fn.name() == expected.grad_fn.name()


def test_without_codes_or_without_gradients_the_op_just_runs():
    x = random_coded(2, 4, 6, 6)
    assert kept_as_codes(aten.silu.default, Coded(x.values)).grad_fn.name() == "SiluBackward0"
    with torch.no_grad():
        assert same_bits(kept_as_codes(aten.silu.default, x), aten.silu(x.values))
    frozen = kept_as_codes(aten.silu.default, x._replace(values=x.values.detach()))
    assert not frozen.requires_grad


def test_names_and_lists_of_arguments():
    a, b = random_coded(2, 4, 6, 6), random_coded(2, 4, 6, 6, seed=1)
    output = kept_as_codes(aten.einsum.default, "bchw,bchw->bc", [a, b])
    expected = aten.einsum("bchw,bchw->bc", [a.values, b.values])
    assert all(map(same_bits, gradients(output, [a.values]), gradients(expected, [a.values])))
    named, tanh = (
        y(aten.gelu.default)
        for y in (lambda op: kept_as_codes(op, a, approximate="tanh"), lambda op: op(a.values, approximate="tanh"))
    )
    assert all(map(same_bits, gradients(named, [a.values]), gradients(tanh, [a.values])))


SIZES = {
    aten.silu.default: 288,
    aten.softplus.default: 288,
    aten.avg_pool2d.default: 0,
    aten.adaptive_avg_pool2d.default: 0,
    aten.avg_pool1d.default: 54,
    aten.mul.Tensor: 2 * 288,
    aten.matmul.default: 2 * 288,
    aten.layer_norm.default: 288 + 2 * 6 * 4,
}


@pytest.mark.parametrize("op", SIZES, ids=str)
def test_bytes_saved_are_those_of_the_codes(op):
    op, args = input_keeping_samples()[str(op)]
    grids = (GRID.scale, GRID.zero_point)
    assert bytes_saved(lambda: kept_as_codes(op, *args), besides=grids) == SIZES[op]


def test_the_values_are_not_kept_alive():
    source = torch.randn(8, 8, requires_grad=True)
    coded = random_coded(8, 8)
    values = coded.values.detach() + 0 * source
    gone = weakref.ref(values)
    output = kept_as_codes(aten.silu.default, Coded(values, coded.codes, coded.grid))
    del values
    gc.collect()
    assert gone() is None
    output.sum().backward()
    assert source.grad is not None


def test_backward_can_be_repeated():
    x = random_coded(2, 4, 6, 6)
    for op, args in ((aten.silu.default, (x,)), (aten.matmul.default, (x, x)), (aten.avg_pool2d.default, (x, [2, 2]))):
        output = kept_as_codes(op, *args)
        first = gradients(output, [x.values], retain_graph=True)
        assert all(map(same_bits, first, gradients(output, [x.values])))
        with pytest.raises(RuntimeError, match="second time"):
            gradients(output, [x.values])


@pytest.mark.parametrize("op", [aten.silu.default, aten.softplus.default])
def test_case_35_a_second_derivative_is_refused(op):
    x = random_coded(3, 4)
    (grad,) = torch.autograd.grad(kept_as_codes(op, x).sum(), x.values, create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of gradients"):
        grad.square().sum().backward()


@pytest.mark.parametrize("name", [str(op) for op in (aten.mul.Tensor, aten.matmul.default, aten.layer_norm.default)])
def test_torch_func_grad(name):
    op, args = input_keeping_samples()[name]
    first, *others = args

    def loss(values, run):
        return (run(first._replace(values=values)) * 0.3).sum()

    values = first.values.detach()
    found = torch.func.grad(lambda v: loss(v, lambda x: kept_as_codes(op, x, *others)))(values)
    wanted = torch.func.grad(lambda v: loss(v, lambda x: op(x.values, *plain(others))))(values)
    assert same_bits(found, wanted)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("op", [aten.silu.default, aten.softplus.default])
def test_inside_a_checkpoint(op, use_reentrant):
    x = random_coded(2, 4)

    def segment(values):
        return kept_as_codes(op, Coded(values * 1.0, x.codes, x.grid))

    output = checkpoint(segment, x.values, use_reentrant=use_reentrant)
    assert all(
        map(
            same_bits,
            gradients(output, [x.values]) if not use_reentrant else through(output, x.values),
            gradients(op(x.values), [x.values]),
        )
    )


def through(output, leaf):
    """Gradients by backward(): a reentrant checkpoint knows no other way."""
    generator = torch.Generator().manual_seed(4)
    output.backward(torch.randn(output.shape, generator=generator).copy_(output.detach() * 0.3 + 0.1))
    grad, leaf.grad = leaf.grad, None
    return [grad]


def test_save_on_cpu_sees_codes():
    x = random_coded(2, 4, 6, 6)
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(t.dtype), t)[1], lambda t: t):
        output = kept_as_codes(aten.silu.default, x)
    assert torch.uint8 in seen
    with torch.autograd.graph.save_on_cpu():
        output = kept_as_codes(aten.softplus.default, x)
        found = gradients(output, [x.values])
    assert all(map(same_bits, found, gradients(aten.softplus(x.values), [x.values])))


def test_changes_in_place_are_harmless_or_refused():
    x, weight = random_coded(4, 4), torch.randn(4, 4, requires_grad=True)
    wanted = gradients(aten.silu(x.values), [x.values])
    output = kept_as_codes(aten.silu.default, x)
    grad = torch.randn(4, 4, generator=torch.Generator().manual_seed(4)).copy_(output.detach() * 0.3 + 0.1)
    with torch.no_grad():
        x.values.zero_()  # backward reads the codes
    output.mul_(1.0)
    assert same_bits(torch.autograd.grad(output, x.values, grad)[0], wanted[0])
    output = kept_as_codes(aten.matmul.default, random_coded(4, 4), weight)
    with torch.no_grad():
        weight.zero_()  # a tensor without codes is kept as it is
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
    coded = random_coded(4, 4)
    output = kept_as_codes(aten.silu.default, coded)
    coded.codes.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_two_threads_at_once():
    results = {}

    def train(seed):
        x, y = random_coded(16, 16, seed=seed), random_coded(16, 16, seed=seed + 100)
        for _ in range(20):
            output = kept_as_codes(aten.matmul.default, x, y)
            results.setdefault(seed, []).append(gradients(output, [x.values, y.values]))

    threads = [threading.Thread(target=train, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, found in results.items():
        x, y = random_coded(16, 16, seed=seed), random_coded(16, 16, seed=seed + 100)
        wanted = gradients(x.values @ y.values, [x.values, y.values])
        assert len(found) == 20
        assert all(same_bits(*pair) for grads in found for pair in zip(grads, wanted, strict=True))
