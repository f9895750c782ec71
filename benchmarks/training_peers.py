"""The same training by others' quantize-aware flows, each in its default int8 set-up."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch.ao.quantization import get_default_qat_qconfig_mapping
from torch.ao.quantization.quantize_fx import prepare_qat_fx

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

FX, PT2E = "torch.ao FX", "torchao PT2E"


def fx(model: nn.Module, x: Tensor) -> nn.Module:
    """Return the model prepared by FX graph mode with fbgemm's default fake-quantizes."""
    return prepare_qat_fx(copy.deepcopy(model).train(), get_default_qat_qconfig_mapping("fbgemm"), (x,))


def pt2e(model: nn.Module, x: Tensor) -> nn.Module:
    """Return the model prepared by PT2E with the x86 quantizer's default for training; torchao may not be there."""
    from torchao.quantization.pt2e import move_exported_model_to_train  # noqa: PLC0415
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e  # noqa: PLC0415
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86  # noqa: PLC0415

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
    exported = torch.export.export(copy.deepcopy(model).train(), (x,), strict=True).module()
    return move_exported_model_to_train(prepare_qat_pt2e(exported, quantizer))


PEERS: dict[str, Callable[[nn.Module, Tensor], nn.Module]] = {FX: fx, PT2E: pt2e}


def why_not(name: str) -> str | None:
    """Return why a peer cannot be measured here, None if it can."""
    if name == PT2E and find_spec("torchao") is None:
        return "torchao is not installed: pip install --constraint constraints.txt torchao"
    return None
