"""What the code of a TorchScript archive computes with while it is followed, besides plain Python values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qtool.readers.facts import Tensor


@dataclass(eq=False)
class Module:
    """An object of the archive: a module, or another instance of a class with code.

    Attributes:
        path: where it stands in the model, for example `features.0`.
        cls: full name of its class.
        attributes: by name, values of this file or plain ones.
    """

    path: str
    cls: str
    attributes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Packed:
    """A weight and bias as an engine packs them.

    Attributes:
        cls: for example `Conv2dPackedParamsBase`.
        weight: the weight; None if it could not be read.
        bias: the bias.
        groups: of a convolution.
    """

    cls: str
    weight: Tensor | None
    bias: Tensor | None = None
    groups: int | None = None


@dataclass(frozen=True)
class Path:
    """A dotted name that is no variable: `torch.nn.functional.relu`, `ops.quantized.conv2d`, `CONSTANTS.c0`."""

    text: str


@dataclass(frozen=True)
class Method:
    """A method of a module."""

    owner: Module
    name: str


class _Nothing:
    """What is not known."""


NOTHING: Final = _Nothing()
"""The value of whatever is not followed."""
