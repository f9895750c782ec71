"""Random samples in the shapes of the model's inputs: to try a model without data, not to measure it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from qtool.data.batch import Sample
from qtool.data.shapes import torch_dtype
from qtool.errors import DataError

if TYPE_CHECKING:
    from qtool.config.schema import InputConfig, SyntheticSource

NAMED_SIZE = 32
"""Size of a dimension that the config names instead of giving its size (chosen: small, and five halvings deep)."""

INTEGER_LIMITS = {"uint8": 256, "int32": 2, "int64": 2, "bool": 2}
"""Integers are drawn from 0 to below this: bytes are whole, indices fit every table that has two rows."""


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Samples that each come from a random generator of their own, so that any of them can be made alone.

    Attributes:
        count: number of samples.
        seed: together with a sample's index it says all about it.
        distribution: `normal` (mean 0, deviation 1) or `uniform` (0..1), of float inputs.
        inputs: the model's inputs, at least one.
    """

    count: int
    seed: int
    distribution: str
    inputs: tuple[InputConfig, ...]

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.count

    def __getitem__(self, index: int) -> Sample:
        """Return one sample, without label."""
        # Neighbouring seeds give related streams in simple generators; numpy's seed sequence takes care of that.
        seed = np.random.SeedSequence([self.seed, index]).generate_state(1, np.uint64).item()
        generator = torch.Generator().manual_seed(seed)
        tensors = tuple(self._draw(wanted, generator) for wanted in self.inputs)
        return Sample(name=f"synthetic[{index}]", inputs=tensors)

    def _draw(self, wanted: InputConfig, generator: torch.Generator) -> torch.Tensor:
        shape = [NAMED_SIZE if isinstance(size, str) else size for size in wanted.shape[1:]]
        dtype = torch_dtype(wanted)
        if wanted.dtype in INTEGER_LIMITS:
            return torch.randint(INTEGER_LIMITS[wanted.dtype], shape, generator=generator).to(dtype)
        draw = torch.rand if self.distribution == "uniform" else torch.randn
        return draw(shape, generator=generator).to(dtype)


def open_synthetic(source: SyntheticSource, inputs: tuple[InputConfig, ...]) -> Synthetic:
    """Return `source.count` random samples.

    Raises:
        DataError: the config has no model inputs to take shapes from.
    """
    if not inputs:
        msg = "data of kind synthetic takes its shapes from model.inputs, and the config has no model: add it"
        raise DataError(msg)
    return Synthetic(count=source.count, seed=source.seed, distribution=source.distribution, inputs=inputs)
