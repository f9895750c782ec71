"""What quantization with given parameters costs, estimated from a histogram.

Shapes: B bins with B + 1 edges; M candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from qtool.numerics.qparams import QParams
    from qtool.types import Spec


def expected_squared_error(edges: Tensor, counts: Tensor, qparams: QParams, spec: Spec) -> Tensor:
    """Return the sum of squared errors of all counted values under each of M candidates.

    Values are taken as spread evenly within their bin. With r the error of x, an antiderivative of r^2 is

        G(x) = code * scale^3 / 12 + r^3 / 3

    (each whole step adds scale^3 / 12; where x is clamped the code stays and r grows without bound), so a bin of
    width w costs `count * (G(right) - G(left)) / w`: exact, however the steps lie between the bins.

    Args:
        edges: float64 `(B + 1,)`, evenly spaced.
        counts: int64 `(B,)`.
        qparams: scale and zero point, `(M,)` each.
        spec: the range of the codes.

    Returns:
        float64 `(M,)`.

    Example:
        >>> edges, counts = torch.linspace(0, 10, 1001).double(), torch.ones(1000, dtype=torch.int64)
        >>> qparams = affine_qparams(torch.tensor([10.0]), torch.tensor([10.0]), 0, 255)
        >>> expected_squared_error(edges, counts, qparams, uint8)  # 1000 * (10 / 255)^2 / 12
        tensor([0.1282], dtype=torch.float64)
    """
    scale = qparams.scale.double().unsqueeze(1)
    zero_point = qparams.zero_point.double().unsqueeze(1)
    code = (edges / scale).round_().clamp_(spec.qmin - zero_point, spec.qmax - zero_point)
    residual = edges - code * scale
    integral = code.mul_(scale.pow(3) / 12.0).add_(residual.pow(3), alpha=1.0 / 3.0)
    return integral.diff(dim=1) @ counts.double() / (edges[1] - edges[0])
