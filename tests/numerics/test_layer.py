"""A layer as one step, against the folded textbook definition in float64, and between the ways of keeping state."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from qtool.numerics.coded import Coded
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.layer import Kept, run_layer
from tests.numerics.layer_case import (
    ACTIVATIONS,
    EPS,
    KEPT,
    NORMS,
    PRODUCTS,
    Case,
    activated,
    assert_kept_changes_no_bit,
    product,
    spread,
    statistics,
    straight_through,
)


def textbook(case):
    """The folded definition: weight and bias carry the batch norm, whose statistics are those of the unfolded layer."""
    weight = case.weight if case.weight_grid is None else straight_through(case.weight, case.weight_grid)
    bias = case.bias
    if case.norm != "none":
        mean, variance = case.running or statistics(product(case, weight, bias))
        factor = case.gamma / torch.sqrt(variance + EPS)
        weight, bias = weight * spread(case, factor), (bias - mean) * factor + case.beta
    return straight_through(activated(case, product(case, weight, bias)), case.grid)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_it_is_the_folded_definition_in_float64(kind, norm, activation):
    """Outputs and gradients within 1e-9, for all that is kept; gamma 0, 1e-12 and negative are among the channels."""
    case = Case(kind, norm, activation)
    expected = textbook(case)
    gradients = case.gradients(expected)
    for kept in KEPT:
        found = case.run(kept)
        torch.testing.assert_close(found.coded.values, expected, atol=1e-9, rtol=1e-9)
        for name, gradient in case.gradients(found.coded.values).items():
            torch.testing.assert_close(
                gradient, gradients[name], atol=1e-9, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_what_is_kept_changes_no_bit(kind, norm, dtype, channels_last):
    assert_kept_changes_no_bit(Case(kind, norm, "relu", dtype=dtype, channels_last=channels_last))


@pytest.mark.parametrize("norm", NORMS)
def test_codes_say_the_values(norm):
    coded = Case("convolution", norm, "relu", dtype=torch.float32).run(KEPT[-1]).coded
    assert torch.equal(decode(coded.codes, coded.grid), coded.values)
    assert coded.codes.unique().numel() > 20
    assert {0, 255} <= set(coded.codes.unique().tolist())


def kept_bytes(run):
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    return result, list(kept.values())


def test_the_values_of_a_coded_input_are_not_kept():
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    for kept in KEPT:
        _, tensors = kept_bytes(lambda kept=kept: case.run(kept))
        large = {(t.dtype, tuple(t.shape)) for t in tensors if t.dim() == 4 and t.shape[0] == 2}
        x = (torch.uint8 if kept.codes else torch.float32, (2, 4, 7, 6))
        assert large == {x, (torch.float32, (2, 5, 7, 6))} if kept.result else {x}


def test_a_recomputed_layer_without_batch_norm_keeps_no_mask():
    case = Case("convolution", "none", "relu", dtype=torch.float32)
    _, tensors = kept_bytes(lambda: case.run(Kept(codes=True, result=False)))
    assert [t.dtype for t in tensors if t.numel() > 100 and t.dtype is not torch.float32] == [torch.uint8]


def test_backward_twice_gives_the_same():
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    for kept in KEPT:
        values = case.run(kept).coded.values
        first, second = (
            torch.autograd.grad(values.square().sum(), [case.x, case.weight], retain_graph=True) for _ in range(2)
        )
        assert all(map(torch.equal, first, second))


def test_a_second_derivative_is_refused():
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    values = case.run(KEPT[-1]).coded.values
    (grad,) = torch.autograd.grad(values.sum(), case.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of gradients is not defined"):
        grad.sum().backward()


def test_a_weight_changed_before_backward_is_refused():
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    values = case.run(KEPT[-1]).coded.values
    with torch.no_grad():
        case.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


@pytest.mark.parametrize("kept", KEPT)
def test_a_result_changed_in_place_changes_no_gradient_before_it(kept):
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    expected = case.gradients(case.run(kept).coded.values)
    values = case.run(kept).coded.values
    changed = values.mul_(1.0)
    assert all(map(torch.equal, case.gradients(changed).values(), expected.values()))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_layer_keeps_nothing_and_gives_the_same(use_reentrant):
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    expected = case.gradients(case.run(KEPT[-1]).coded.values)
    calls = []

    def segment(x):
        calls.append(None)
        return run_layer(
            case.layer(KEPT[-1]), Coded(x, case.codes, case.x_grid), case.tensors(), case.grid
        ).coded.values

    values, tensors = kept_bytes(lambda: checkpoint(segment, case.x, use_reentrant=use_reentrant))
    assert [t.shape for t in tensors if t is not case.x and t.numel() > 1 and t.dim() == 4] == []
    values.backward(case.target)
    assert len(calls) == 2
    for name, leaf in case.leaves().items():
        assert torch.equal(leaf.grad, expected[name]), name


def test_saved_tensors_can_be_moved_elsewhere():
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    expected = case.gradients(case.run(KEPT[-1]).coded.values)
    with torch.autograd.graph.save_on_cpu():
        values = case.run(KEPT[-1]).coded.values
    assert all(map(torch.equal, case.gradients(values).values(), expected.values()))


@pytest.mark.parametrize("norm", NORMS)
def test_torch_func_grad_works(norm):
    case = Case("convolution", norm, "relu", dtype=torch.float32)
    case.run(KEPT[-1])
    expected = case.gradients(case.run(KEPT[-1]).coded.values)

    def loss(weight):
        tensors = case.tensors()._replace(weight=weight)
        coded = run_layer(case.layer(KEPT[-1]), Coded(case.x, case.codes, case.x_grid), tensors, case.grid).coded
        return (coded.values * case.target).sum()

    assert torch.equal(torch.func.grad(loss)(case.weight), expected["weight"])


def test_autocast_computes_in_its_dtype_and_keeps_codes():
    case = Case("convolution", "batch", "relu", dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        results = [kept_bytes(lambda kept=kept: case.run(kept)) for kept in KEPT]
    gradients = [case.gradients(result.coded.values) for result, _ in results]
    for kept, (result, tensors), found in zip(KEPT, results, gradients, strict=True):
        assert result.coded.values.dtype is torch.bfloat16
        assert all(map(torch.equal, found.values(), gradients[0].values()))
        assert all(grad.dtype is torch.float32 for grad in found.values())
        assert any(t.dtype is torch.uint8 and t.shape == case.x.shape for t in tensors) is kept.codes


def test_nan_stays_nan_and_is_not_coded():
    case = Case("convolution", "none", "relu", dtype=torch.float32)
    with torch.no_grad():
        case.x[0, 0, 0, 0] = torch.nan
    result = run_layer(case.layer(KEPT[-1]), Coded(case.x), case.tensors(), case.grid)
    assert (result.coded.codes, result.coded.grid) == (None, None)
    assert result.coded.values.isnan().any()
    assert result.low.isnan()


def test_an_input_whose_rows_are_apart_gives_what_a_dense_one_gives():
    """What is decoded in backward is dense."""
    case = Case("linear", "batch", "relu", dtype=torch.float32)
    expected = case.gradients(case.run(KEPT[-1]).coded.values)
    wide = torch.zeros(8, 9)
    wide[:, 2:6] = case.x.detach()
    case.x = wide[:, 2:6].requires_grad_()
    case.codes = torch.zeros(8, 9, dtype=torch.uint8).index_copy_(1, torch.arange(2, 6), case.codes)[:, 2:6]
    for kept in KEPT:
        found = case.gradients(case.run(kept).coded.values)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
