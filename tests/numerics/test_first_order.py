from __future__ import annotations

import pytest
import torch

from qtool.numerics.first_order import first_order_only


class Square(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @first_order_only
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return (2 * x * grad,)


def test_first_derivatives_are_as_they_were():
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(Square.apply(x).sum(), x)
    assert grad.tolist() == [2.0, 6.0]
    (grad,) = torch.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    assert grad.tolist() == [2.0, 6.0]
    assert torch.func.grad(lambda y: Square.apply(y).sum())(x.detach()).tolist() == [2.0, 6.0]


@pytest.mark.parametrize("loss", [torch.sum, lambda y: y.square().sum()], ids=["linear", "square"])
def test_second_derivatives_are_refused_also_where_the_incoming_gradient_is_a_constant(loss):
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(loss(Square.apply(x)), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"gradient of gradients.*leave out create_graph"):
        (grad.sum() + x.sum()).backward()
