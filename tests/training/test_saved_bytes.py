"""saved_by: finds what is kept in every way there is to keep it, once, and nothing else."""

from itertools import chain

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from qtool.training.malloc import Malloc, set_malloc
from qtool.training.resident_size import growth_of
from qtool.training.saved_bytes import saved_by

MIB = 2**20
NOTHING = nn.Module()
LOSS = 4
"""The loss itself is alive too: one float32."""


class Keeper(torch.autograd.Function):
    """Passes its input on, and keeps what a function makes of the context."""

    @staticmethod
    def forward(ctx, x, keep):
        keep(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def big():
    return torch.ones(MIB // 4)


def leaf():
    return torch.ones(2, requires_grad=True)


def kept_by(keep):
    x = leaf()
    return saved_by(lambda: Keeper.apply(x, keep).sum(), NOTHING).num_bytes


def in_attribute(ctx):
    ctx.mask = big()


def in_containers(ctx):
    ctx.state = {"a": [(big(), None)]}


def in_closure(ctx):
    tensor = big()
    ctx.decode = lambda: tensor


def in_saved_tensors(ctx):
    ctx.save_for_backward(big())


def in_view(ctx):
    ctx.part = big()[:3]


TABLE = []


def in_table(ctx):
    TABLE.append(big())


@pytest.mark.parametrize(
    "keep", [in_attribute, in_containers, in_closure, in_saved_tensors, in_view, in_table], ids=lambda f: f.__name__
)
def test_a_tensor_is_found_wherever_it_hides(keep):
    assert kept_by(keep) == MIB + LOSS
    TABLE.clear()


def test_what_dies_in_the_forward_pass_is_not_counted():
    assert kept_by(lambda _: big()) == LOSS


def test_two_savers_share_one_storage():
    def keep(ctx):
        tensor = big()
        ctx.save_for_backward(tensor)
        ctx.again, ctx.part = tensor, tensor.view(2, -1).t()

    assert kept_by(keep) == MIB + LOSS


def test_parameters_buffers_and_what_was_there_before_are_left_out():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(big())
            self.register_buffer("last", torch.zeros(1))

        def forward(self, x):
            self.last = big()  # a buffer made anew is a buffer
            return (self.weight * x).sum()

    model, x = Counting(), big().requires_grad_()
    assert saved_by(lambda: model(x), model).num_bytes == LOSS


def test_a_checkpointed_segment_saves_its_input_alone():
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()) for _ in range(4)))
    x = torch.randn(128, 64)

    def whole():
        return layers(x.clone()).sum()

    def segment():
        return checkpoint(layers, x.clone(), use_reentrant=False, preserve_rng_state=False).sum()

    one = 128 * 64 * 4
    assert saved_by(whole, layers).num_bytes == 5 * one + LOSS  # the input, and each sigmoid's result
    assert saved_by(segment, layers).num_bytes == one + LOSS


def test_nothing_stays_alive():
    x = big().requires_grad_()
    first = saved_by(lambda: (x.sin().exp()).sum(), NOTHING)
    assert saved_by(lambda: (x.sin().exp()).sum(), NOTHING) == first


def test_equals_what_autograd_itself_says_it_saved():
    """Independent: a walk over the graph that reads the saved variables of torch's own functions."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 5)
    )
    x, labels = torch.randn(4, 3, 16, 16), torch.arange(4)
    loss = functional.cross_entropy(net(x), labels)
    own = {t.untyped_storage()._cdata for t in chain(net.parameters(), net.buffers(), [x, labels])}
    storages = {s._cdata: s.nbytes() for s in walked(loss) if s._cdata not in own}
    assert saved_by(lambda: functional.cross_entropy(net(x), labels), net).num_bytes == sum(storages.values()) + LOSS


def walked(loss):
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(tensor := getattr(node, name), torch.Tensor):
                yield tensor.untyped_storage()


def test_resident_size_grows_by_as_much():
    set_malloc(Malloc.RETURN)
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Sigmoid())
    x = torch.randn(32, 3, 64, 64)

    def forward():
        return net(x).sum()

    forward().backward()
    saved, grown = saved_by(forward, net).num_bytes, growth_of(forward)
    assert saved > 32 * MIB
    assert grown == pytest.approx(saved, rel=0.1)
