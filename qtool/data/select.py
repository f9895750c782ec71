"""Which samples of a source are taken: a seeded draw or all the others, then at most `limit` of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from qtool.errors import DataError

if TYPE_CHECKING:
    from qtool.config.schema import SelectConfig


def selected_indices(num_samples: int, select: SelectConfig | None, limit: int | None) -> tuple[int, ...]:
    """Return the indices of the samples to take, ascending, so that the source's own order is kept.

    The draw is the head of a permutation by numpy's `RandomState`, whose stream is frozen for good, so a seed
    means the same samples on every machine and in every version. With the same seed, a draw and its complement
    share no sample and together are the whole source.

    Args:
        num_samples: how many the source has, at least 1.
        select: how many to draw and with which seed; None takes all.
        limit: take no more than this many of what was drawn, the first ones; None takes all.

    Raises:
        DataError: more samples are to be drawn than there are, or the complement would be empty.

    Source: NEP 19 "Random number generator policy", which promises RandomState's stream.

    Example:
        With `SelectConfig(count=2, seed=0)` of five samples the permutation is 2 0 1 3 4: indices 0 and 2 are
        drawn, and 1, 3, 4 are the complement.
    """
    if select is None:
        return tuple(range(num_samples))[:limit]
    if select.count > num_samples or (select.complement and select.count == num_samples):
        left = "none would be left for its complement" if select.count == num_samples else "it cannot draw that many"
        msg = f"select.count: {select.count} of {num_samples} samples: {left}. Draw fewer, or add samples"
        raise DataError(msg)
    permutation = np.random.RandomState(select.seed).permutation(num_samples)
    drawn = permutation[select.count :] if select.complement else permutation[: select.count]
    return tuple(sorted(drawn.tolist()))[:limit]
