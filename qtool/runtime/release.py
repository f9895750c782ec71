"""Release of original weights: qnnpack keeps them beside the packed ones and never reads them again.

qnnpack packs a weight when its layer first runs, for the scale of that input. Here every layer runs once while the
model is loaded, on a small input, before anybody else can call it; then the storage of the original is freed. A layer
that ran reads the shape of its original only, so the storage is freed and the tensor keeps its shape.

What would read the original afterwards crashes the process (unpack, a copy), or writes a file that does not load
(torch.jit.save). So nothing that torch looks through leads to the packed object any more, and each such way raises.

Source: aten/src/ATen/native/quantized/cpu/qlinear.cpp and qconv.cpp of torch (`apply_impl` packs where `input_scale`
differs from the last one; `orig_weight` is what `unpack` returns).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from qtool.errors import ModelError
from qtool.lowering.packed import PackedMac
from qtool.lowering.quint8 import to_quint8

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

quantized = torch.ops.quantized

KEEPS_ORIGINALS = "qnnpack"
"""The engine with two copies of a weight. fbgemm's packed weight holds no other, oneDNN's is a tensor of its own."""

CANNOT_UNPACK = (quantized.conv3d.new, quantized.conv3d_relu.new)
"""Ops whose packed object does not give its original back ("QNNPACK only supports conv2d_unpack right now")."""


class ReleasedMac(nn.Module):
    """A packed layer whose original weight is freed; nothing on it leads to the packed one."""

    def __init__(self, kernel: PackedMac) -> None:
        super().__init__()
        self.engine = kernel.engine
        self.input, self.output, self.clamp = kernel.input, kernel.output, kernel.clamp
        self._run = _hidden(kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the packed layer returns.

        Raises:
            ModelError: the input's scale is another one, which would be packed for from the original; or it is
                traced.
        """
        if torch._C._get_tracing_state() is not None:
            error = _refusal()
            raise error
        if x.q_scale() != self.input.scale:
            error = _refusal()
            raise error
        return self._run(x)

    @property
    def packed(self) -> NoReturn:
        """Refuse: what it holds of the original is freed."""
        error = _refusal()
        raise error

    def state_dict(self, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - whatever torch passes
        """Refuse: there is nothing to save."""
        error = _refusal()
        raise error

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse; torch.jit.script asks this of every module first."""
        error = _refusal()
        raise error

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refuse: the copy would read the original."""
        error = _refusal()
        raise error

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse: the pickle would read the original."""
        error = _refusal()
        raise error


def _hidden(kernel: PackedMac) -> Callable[[Tensor], Tensor]:
    """Return what runs a packed layer, as a closure: torch.jit, pickle and copy look into none."""
    forward = kernel.forward

    def run(x: Tensor) -> Tensor:
        return forward(x)

    return run


def _refusal() -> ModelError:
    return ModelError(
        "the original weights of this model were released after packing, so it cannot be copied, pickled, saved, "
        "scripted, traced, unpacked, or run at another scale of a layer's input. Load it with "
        "qtool.load(..., release_weights=False) to keep them"
    )


@torch.no_grad()
def release_weights(module: GraphModule) -> int:
    """Free the original weights of a lowered program's packed layers; returns how many bytes that gave back.

    Each such layer runs once for it. Nothing else may run the module meanwhile.
    """
    num_bytes = 0
    for parent in list(module.modules()):
        for name, kernel in list(parent.named_children()):
            if isinstance(kernel, PackedMac) and _holds_two(kernel):
                num_bytes += _free_original(kernel)
                setattr(parent, name, ReleasedMac(kernel))
    return num_bytes


def _holds_two(kernel: PackedMac) -> bool:
    return kernel.engine == KEEPS_ORIGINALS and kernel.run not in CANNOT_UNPACK


def _free_original(kernel: PackedMac) -> int:
    zeros = torch.zeros(kernel.smallest_input, dtype=torch.uint8)
    kernel(to_quint8(zeros, kernel.input.scale, kernel.input.zero_point))
    original, _ = kernel.packed.unpack()
    storage = original.untyped_storage()
    num_bytes = int(storage.nbytes())
    storage.resize_(0)
    return num_bytes
