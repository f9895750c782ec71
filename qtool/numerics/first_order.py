"""Backward functions that can be run once, and say so when they are differentiated themselves."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSAL = (
    "a gradient of gradients is not defined through fake-quantized layers, in any memory mode: leave out "
    "create_graph=True, or train this part in float"
)


def first_order_only(backward: Callable[..., tuple[Tensor | None, ...]]) -> Callable[..., Any]:
    """Return `backward` with an error behind its results: differentiating them raises RuntimeError.

    torch's `once_differentiable` puts the error there only if an incoming gradient can be differentiated. A gradient
    that depends on what was saved, as that of a product does, would lose that part in silence.

    Args:
        backward: the backward of an autograd function.
    """

    @wraps(backward)
    def refusing(ctx: Any, *grads: Tensor | None) -> Any:  # noqa: ANN401 - as autograd calls it
        if not torch.is_grad_enabled() or torch._C._functorch.peek_interpreter_stack() is not None:
            return once_differentiable(backward)(ctx, *grads)
        with torch.no_grad():
            results = backward(ctx, *grads)
        refused = [None if grad is None else grad.detach().requires_grad_() for grad in results]
        return torch._C._functions.DelayedError(REFUSAL, len(refused))(*refused)  # type: ignore[arg-type]

    return refusing
