"""Models of torchvision with weights drawn at random, their batch norms made to have seen data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torchvision
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

models, segmentation = torchvision.models, torchvision.models.segmentation

MODELS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any], int]] = {
    "mobilenet_v2": (models.mobilenet_v2, {}, 64),
    "mobilenet_v3_small": (models.mobilenet_v3_small, {}, 64),
    "mobilenet_v3_large": (models.mobilenet_v3_large, {}, 64),
    "resnet18": (models.resnet18, {}, 64),
    "resnet50": (models.resnet50, {}, 64),
    "resnext50": (models.resnext50_32x4d, {}, 64),
    "shufflenet_v2": (models.shufflenet_v2_x1_0, {}, 64),
    "squeezenet": (models.squeezenet1_1, {}, 96),
    "densenet121": (models.densenet121, {}, 64),
    "googlenet": (models.googlenet, {"init_weights": False}, 64),
    "inception_v3": (models.inception_v3, {"init_weights": False, "aux_logits": False}, 96),
    "mnasnet": (models.mnasnet1_0, {}, 64),
    "efficientnet_b0": (models.efficientnet_b0, {}, 64),
    "regnet_x": (models.regnet_x_400mf, {}, 64),
    "regnet_y": (models.regnet_y_400mf, {}, 64),
    "vgg11_bn": (models.vgg11_bn, {}, 64),
    "alexnet": (models.alexnet, {}, 96),
    "convnext_tiny": (models.convnext_tiny, {}, 64),
    "vit_b_16": (models.vit_b_16, {"image_size": 64}, 64),
    "swin_t": (models.swin_t, {}, 64),
    "lraspp": (segmentation.lraspp_mobilenet_v3_large, {"weights_backbone": None}, 64),
    "fcn_resnet50": (segmentation.fcn_resnet50, {"weights_backbone": None}, 64),
}
"""By name: constructor, arguments, size of the picture."""


def build(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a model in eval mode, pictures to calibrate on, and other pictures."""
    constructor, kwargs, size = MODELS[name]
    torch.manual_seed(0)
    model = constructor(weights=None, **kwargs)
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            nn.init.normal_(layer.weight, std=0.02)  # a head of zeros would hide every fault before it
    norms = [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 0.5  # three batches are all it sees
    with torch.no_grad():
        for seed in range(3 if norms else 0):
            model.train()(pictures(6, size, seed))
    return model.eval(), pictures(8, size, 10), pictures(4, size, 11)


def pictures(count: int, size: int, seed: int) -> torch.Tensor:
    """Return smooth noise with fine noise on it: as correlated as photos are."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, 3, size // 8, size // 8, generator=generator)
    fine = torch.randn(count, 3, size, size, generator=generator)
    return nn.functional.interpolate(coarse, size=(size, size), mode="bilinear") + 0.2 * fine
