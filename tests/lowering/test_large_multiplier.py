"""Case 3, the runtime's half: input scale * weight scale / output scale above 1, which old qnnpacks refused."""

import pytest
import torch

from qtool.lowering.casts import ToCodes, ToQuint8
from qtool.lowering.grid import Grid
from qtool.lowering.mac import Mac
from qtool.lowering.packed import PackedMac
from qtool.lowering.plain import plain_mac
from qtool.passes.match import ConvGeometry

SCALES = {"x": 0.052, "weight": 2.39, "y": 0.112}


def grid(scale, zero_point):
    return Grid(scale=scale, zero_point=zero_point, qmin=0, qmax=255, dtype=torch.uint8)


@pytest.mark.parametrize("engine", ["fbgemm", "onednn", "qnnpack"])
def test_case_03_a_multiplier_above_1_gives_the_exact_codes(engine):
    assert SCALES["x"] * SCALES["weight"] / SCALES["y"] > 1.1
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-3, 4, (2, 4, 2, 2), dtype=torch.int8, generator=generator)
    x = torch.randint(0, 20, (3, 4, 6, 6), dtype=torch.uint8, generator=generator)
    mac = Mac(
        input=grid(SCALES["x"], 7),
        output=grid(SCALES["y"], 120),
        codes=codes,
        scales=torch.tensor(SCALES["weight"]),
        bias=None,
        geometry=ConvGeometry(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1),
        bounds=(0, 255),
        has_relu=False,
    )
    sums = torch.nn.functional.conv2d(x.double() - 7, codes.double())
    exact = (sums * SCALES["x"] * SCALES["weight"] / SCALES["y"]).round().add(120).clamp(0, 255)
    if engine == "onednn":
        found = plain_mac(mac, engine)(x)
    else:
        found = ToCodes()(PackedMac(mac, engine)(ToQuint8(mac.input)(x)))
    assert exact.unique().numel() > 50
    assert int((found.double() - exact).abs().max()) <= 1
