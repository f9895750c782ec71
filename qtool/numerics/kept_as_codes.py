"""Any op that keeps its input for backward, keeping the input's 8-bit codes instead of its values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten

from qtool.numerics.coded import Coded, is_coded, values_of
from qtool.numerics.first_order import first_order_only
from qtool.numerics.grid import Grid
from qtool.numerics.input_keeping import FORMULAS, Formula, keeps_input
from qtool.numerics.strides import Strides

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        saved_tensors: tuple[Tensor, ...]
        needs_input_grad: tuple[bool, ...]
        call: _Call
        strides: list[Strides]
        reads: list[bool]


def kept_as_codes(op: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - an ATen op, its arguments and results
    """Return `op(*args, **kwargs)` on the values of its arguments; autograd keeps codes where there are codes.

    The gradients are those of the op, bit for bit, also under autocast. Backward decodes the codes and asks ATen's
    own backward op, or runs the op again.

    Args:
        op: an ATen op. Those that keep no input (`keeps_input`) just run.
        args: tensors, `Coded` and others, also in lists.
        kwargs: likewise.

    Returns:
        Tensor or tensors, as the op returns them.

    Raises:
        RuntimeError: on a second derivative.

    Example:
        >>> grid = Grid(torch.tensor(0.5), torch.tensor(4, dtype=torch.int32), 0, 15)
        >>> values, codes = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([6, 8], dtype=torch.uint8)
        >>> y = kept_as_codes(torch.ops.aten.mul.Tensor, Coded(values, codes, grid), Coded(values, codes, grid))
        >>> y.sum().backward()
        >>> y.detach(), values.grad
        (tensor([1., 4.]), tensor([2., 4.]))
    """
    leaves, spec = tree_flatten((args, kwargs), is_leaf=is_coded)
    coded = [leaf for leaf in leaves if is_coded(leaf)]
    has_codes = any(leaf.codes is not None for leaf in coded)
    # A compiler decides for itself what a graph keeps.
    is_plain = not torch.is_grad_enabled() or torch.compiler.is_compiling()
    if is_plain or not has_codes or not keeps_input(op, args):
        args, kwargs = tree_map(values_of, (args, kwargs), is_leaf=is_coded)
        return op(*args, **kwargs)
    call, tensors = _describe(op, leaves, spec)
    return _KeptAsCodes.apply(call, *tensors)


class _Autocast(NamedTuple):
    """How autocast stood where the op was called; backward runs elsewhere."""

    device: str
    dtype: torch.dtype
    is_enabled: bool

    @classmethod
    def now(cls, device: str) -> _Autocast | None:
        if not torch.amp.is_autocast_available(device):
            return None
        return cls(device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))

    def entered(self) -> torch.autocast:
        # No cache: it would hand the cast weights of this run, which have no gradient, to the ops of the caller.
        return torch.autocast(self.device, self.dtype, self.is_enabled, cache_enabled=False)


class _Kept(NamedTuple):
    """Where the values of one tensor argument are kept, as positions among the inputs of the function.

    Attributes:
        positions: of the values themselves, or of their codes, scale and zero point.
        integers: the rest of the grid; None for values kept as they are.
    """

    positions: tuple[int, ...]
    integers: tuple[int, int, int | None] | None = None


@dataclass(frozen=True)
class _Slot:
    """Stands where a tensor was among the arguments."""

    position: int


@dataclass(frozen=True)
class _Call:
    """An op and its arguments without the tensors.

    Attributes:
        op: the op.
        leaves: the arguments, flat; `_Slot`s where the tensors were.
        spec: how to build the arguments of the leaves.
        kept: how the values of each tensor are kept.
        autocast: how autocast stood; None where the device knows none.
    """

    op: Any
    leaves: tuple[Any, ...]
    spec: TreeSpec
    kept: tuple[_Kept, ...]
    autocast: _Autocast | None

    @cached_property
    def formula(self) -> Formula | None:
        """How its gradient is had directly; autocast may have cast its arguments, which only ATen knows."""
        return None if self.autocast and self.autocast.is_enabled else FORMULAS.get(self.op)

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and named arguments, with `tensors` in their places."""
        filled = [tensors[leaf.position] if isinstance(leaf, _Slot) else leaf for leaf in self.leaves]
        return tree_unflatten(filled, self.spec)

    def run(self, tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401 - what the op returns
        """Return what the op makes of these values."""
        args, kwargs = self.arguments(tensors)
        if self.autocast is None:
            return self.op(*args, **kwargs)
        with self.autocast.entered():
            return self.op(*args, **kwargs)


def _describe(op: Any, leaves: list[Any], spec: TreeSpec) -> tuple[_Call, list[Tensor]]:  # noqa: ANN401 - an ATen op
    """Take the tensors out of the arguments: first all values, then codes and grids, each once."""
    holders = [leaf for leaf in leaves if isinstance(leaf, (Coded, Tensor))]
    slots = iter(range(len(holders)))
    template = tuple(_Slot(next(slots)) if isinstance(leaf, (Coded, Tensor)) else leaf for leaf in leaves)
    tensors: list[Tensor] = [values_of(holder) for holder in holders]
    position: dict[int, int] = {}

    def place(tensor: Tensor) -> int:
        if id(tensor) not in position:
            position[id(tensor)] = len(tensors)
            tensors.append(tensor)
        return position[id(tensor)]

    def kept(index: int, holder: Coded | Tensor) -> _Kept:
        if isinstance(holder, Tensor) or holder.codes is None or holder.grid is None:
            return _Kept((index,))
        scale, zero_point, qmin, qmax, axis = holder.grid
        return _Kept((place(holder.codes), place(scale), place(zero_point)), (qmin, qmax, axis))

    records = tuple(kept(index, holder) for index, holder in enumerate(holders))
    autocast = _Autocast.now(tensors[0].device.type)
    return _Call(op, template, spec, records, autocast), tensors


class _KeptAsCodes(torch.autograd.Function):
    """An op of which backward keeps codes."""

    @staticmethod
    def forward(call: _Call, *tensors: Tensor) -> Any:  # noqa: ANN401 - what the op returns
        return call.run(tensors[: len(call.kept)])

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ANN401
        call, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.call = call
        needs_grad = ctx.needs_input_grad[1 : 1 + len(call.kept)]
        ctx.reads = call.formula.reads(needs_grad) if call.formula else [True] * len(call.kept)
        ctx.strides = [Strides.of(tensor) for tensor in tensors[: len(call.kept)]]
        ctx.save_for_backward(*(tensors[index] for index in _saved(call, ctx.reads)))

    @staticmethod
    @first_order_only
    def backward(ctx: _Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call = ctx.call
        num_tensors = len(ctx.needs_input_grad) - 1
        if all(grad is None for grad in grads):
            return (None,) * (1 + num_tensors)
        saved = dict(zip(_saved(call, ctx.reads), ctx.saved_tensors, strict=True))
        needs_grad = ctx.needs_input_grad[1 : 1 + len(call.kept)]
        values = _restored(call.kept, ctx.strides, ctx.reads, saved)
        if call.formula:
            args, kwargs = call.arguments(values)
            found = call.formula.gradient(grads[0], *args, **kwargs)
        else:
            found = _run_again(call.run, values, needs_grad, grads)
        wanted = (grad if need else None for grad, need in zip(found, needs_grad, strict=True))
        return (None, *wanted, *(None,) * (num_tensors - len(call.kept)))


def _saved(call: _Call, reads: list[bool]) -> list[int]:
    """Return the positions of the tensors that are saved, each once."""
    read_ones = (kept for kept, read in zip(call.kept, reads, strict=True) if read)
    return list(dict.fromkeys(position for kept in read_ones for position in kept.positions))


def _restored(
    kept: Sequence[_Kept], strides: Sequence[Strides], reads: Sequence[bool], saved: dict[int, Tensor]
) -> list[Tensor | Strides]:
    """Return the values of the tensors that are read, decoded once each, and how the others lay in memory."""
    decoded: dict[tuple[_Kept, Strides], Tensor] = {}

    def values(record: _Kept, lay: Strides) -> Tensor:
        tensor, *numbers = (saved[position] for position in record.positions)
        if record.integers is None:
            return tensor
        if (record, lay) not in decoded:
            scale, zero_point = numbers
            decoded[record, lay] = lay.decoded(tensor, Grid(scale, zero_point, *record.integers))
        return decoded[record, lay]

    parts = zip(kept, strides, reads, strict=True)
    return [values(record, lay) if read else lay for record, lay, read in parts]


def _run_again(
    run: Callable[[Sequence[Tensor]], Any],
    values: Sequence[Any],
    needs_grad: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor | None, ...]:
    """Return the gradients that autograd gives for `run(values)`; None for values that need none."""
    wanted = [index for index, need in enumerate(needs_grad) if need]

    def outputs_of(*leaves: Tensor) -> tuple[Tensor, ...]:
        filled = list(values)
        for index, leaf in zip(wanted, leaves, strict=True):
            filled[index] = leaf
        outputs = run(filled)
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return tuple(output for output, grad in zip(outputs, grads, strict=True) if grad is not None)

    incoming = tuple(grad for grad in grads if grad is not None)
    found = iter(_vector_jacobian_product(outputs_of, [values[index] for index in wanted], incoming))
    return tuple(next(found) if need else None for need in needs_grad)


def _vector_jacobian_product(
    function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], grads: tuple[Tensor, ...]
) -> Sequence[Tensor | None]:
    if torch._C._functorch.peek_interpreter_stack() is not None:
        # Inside a transform of torch.func no tensor may be made a leaf.
        gradients_of = torch.func.vjp(function, *inputs)[1]
        return gradients_of(grads)
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        outputs = function(*leaves)
    return torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
