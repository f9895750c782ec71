"""A layer as one step, against the folded textbook definition in float64, and between the ways of keeping state."""

from math import inf

import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d, hardtanh, linear, relu
from torch.utils.checkpoint import checkpoint

from qtool.numerics.coded import Coded
from qtool.numerics.grid import NO_BOUNDS, Bounds, Grid
from qtool.numerics.kernels.fake_quantize import decode
from qtool.numerics.layer import Kept, Layer, LayerTensors, run_layer
from qtool.numerics.product import Convolution, Linear

EPS = 1e-3
PARAMETERS = ["x", "weight", "bias", "gamma", "beta"]


def convolution(groups=1, *, transposed=False, stride=1):
    return Convolution(
        stride=(stride, stride),
        padding=(1, 1),
        dilation=(1, 1),
        output_padding=(0, 0),
        groups=groups,
        transposed=transposed,
    )


PRODUCTS = {
    "convolution": (convolution(), (5, 4, 3, 3)),
    "strided": (convolution(stride=2), (6, 4, 3, 3)),
    "depthwise": (convolution(4), (4, 1, 3, 3)),
    "groups": (convolution(2), (6, 2, 3, 3)),
    "transposed": (convolution(transposed=True), (4, 5, 3, 3)),
    "transposed groups": (convolution(2, transposed=True), (4, 3, 3, 3)),
    "linear": (Linear(), (5, 4)),
}
ACTIVATIONS = {"none": NO_BOUNDS, "relu": Bounds(0.0, inf), "relu6": Bounds(0.0, 0.6)}
NORMS = ["batch", "frozen", "none"]
KEPT = [Kept(codes=codes, result=result) for codes in (False, True) for result in (False, True)]


def grid_of(low, high, qmin=0, qmax=255):
    scale = torch.tensor((high - low) / (qmax - qmin), dtype=torch.float32)
    return Grid(scale, torch.round(qmin - low / scale).to(torch.int32), qmin, qmax)


def weight_grid_of(weight, axis):
    amax = weight.detach().movedim(axis, 0).flatten(1).abs().amax(1)
    scale = (amax / 127).float().clamp(min=1e-12)
    return Grid(scale, torch.zeros_like(scale, dtype=torch.int32), -127, 127, axis)


class Case:
    """A layer with its tensors: gammas of 0, 1e-12 and below 0 among them, and a result that is clamped at both ends."""

    def __init__(self, kind, norm, activation, dtype=torch.float64, seed=0, channels_last=False):
        generator = torch.Generator().manual_seed(seed)

        def randn(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        self.product, shape = PRODUCTS[kind]
        self.is_linear = kind == "linear"
        transposed = not self.is_linear and self.product.transposed
        num_channels = shape[1] * self.product.groups if transposed else shape[0]
        self.norm, self.bounds = norm, ACTIVATIONS[activation]
        self.x_grid = grid_of(-1.0, 1.5)
        size = (8, 4) if self.is_linear else (2, 4, 7, 6)
        codes = torch.randint(0, 256, size, generator=generator).to(torch.uint8)
        if channels_last and not self.is_linear:
            codes = codes.contiguous(memory_format=torch.channels_last)
        self.codes = codes
        self.x = decode(codes, self.x_grid, dtype).requires_grad_()
        self.weight = randn(*shape).requires_grad_()
        per_channel = not (transposed and self.product.groups > 1)
        self.weight_grid = weight_grid_of(self.weight, 1 if transposed else 0) if per_channel else None
        self.bias = randn(num_channels).requires_grad_()
        self.gamma = self.beta = self.running = None
        if norm != "none":
            gamma = randn(num_channels)
            gamma[:3] = torch.tensor([0.0, 1e-12, -0.7], dtype=dtype)
            self.gamma, self.beta = gamma.requires_grad_(), randn(num_channels).requires_grad_()
        if norm == "frozen":
            self.running = (randn(num_channels), randn(num_channels).abs() + 0.5)
        self.grid = grid_of(0.0 if activation != "none" else -0.8, 0.5)
        self.target = None

    def layer(self, kept):
        return Layer(product=self.product, bounds=self.bounds, eps=None if self.norm == "none" else EPS, kept=kept)

    def tensors(self):
        return LayerTensors(self.weight, self.weight_grid, self.bias, self.gamma, self.beta, self.running)

    def run(self, kept):
        return run_layer(self.layer(kept), Coded(self.x, self.codes, self.x_grid), self.tensors(), self.grid)

    def leaves(self):
        return {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}

    def gradients(self, values):
        if self.target is None:
            generator = torch.Generator().manual_seed(5)
            self.target = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values.dtype)
        leaves = self.leaves()
        found = torch.autograd.grad(values, list(leaves.values()), self.target, allow_unused=True)
        return dict(zip(leaves, found, strict=True))


def straight_through(x, grid):
    """Fake-quantize by autograd: rounded to the grid, the gradient that of clamping."""
    scale, zero_point = grid.scale.double(), grid.zero_point.double()
    if grid.axis is not None:
        shape = [1] * x.dim()
        shape[grid.axis] = -1
        scale, zero_point = scale.view(shape), zero_point.view(shape)
    steps = (x.detach() * scale.float().reciprocal().double()).round() + zero_point
    codes = steps.clamp(grid.qmin, grid.qmax)
    values = ((codes - zero_point).float() * scale.float()).double()
    passing = torch.where(codes == steps, x, x.detach())
    return values + (passing - passing.detach())


def textbook(case):
    """The folded definition: weight and bias carry the batch norm, whose statistics are those of the unfolded layer."""
    weight = case.weight if case.weight_grid is None else straight_through(case.weight, case.weight_grid)

    def product(weight, bias):
        if case.is_linear:
            return linear(case.x, weight, bias)
        function = conv_transpose2d if case.product.transposed else conv2d
        return function(case.x, weight, bias, case.product.stride, case.product.padding, groups=case.product.groups)

    bias = case.bias
    if case.norm != "none":
        if case.norm == "frozen":
            mean, variance = case.running
        else:
            z = product(weight, bias)
            dims = [d for d in range(z.dim()) if d != 1]
            mean, variance = z.mean(dims), z.var(dims, unbiased=False)
        factor = case.gamma / torch.sqrt(variance + EPS)
        bias = (bias - mean) * factor + case.beta
        if not case.is_linear and case.product.transposed:
            groups = case.product.groups
            spread = factor.view(groups, -1).repeat_interleave(weight.shape[0] // groups, dim=0)
            weight = weight * spread[:, :, None, None]
        else:
            weight = weight * factor.view(-1, *[1] * (weight.dim() - 1))
    y = product(weight, bias)
    if case.bounds != NO_BOUNDS:
        y = relu(y) if case.bounds.high == inf else hardtanh(y, *case.bounds)
    return straight_through(y, case.grid)


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
    case = Case(kind, norm, "relu", dtype=dtype, channels_last=channels_last)
    results = [case.run(kept) for kept in KEPT]
    gradients = [case.gradients(result.coded.values) for result in results]
    for result, found in zip(results[1:], gradients[1:], strict=True):
        assert torch.equal(result.coded.values, results[0].coded.values)
        assert torch.equal(result.coded.codes, results[0].coded.codes)
        for name, gradient in found.items():
            assert torch.equal(gradient, gradients[0][name]), name


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
    (grad,) = torch.autograd.grad(values.square().sum(), case.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
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
    assert result.coded.codes is None
    assert result.coded.values.isnan().any()
    assert result.low.isnan()
