"""Whether a forward pass is done for the second time, by activation checkpointing."""

from __future__ import annotations

import torch


def is_recomputing() -> bool:
    """Return whether this runs inside a backward pass: a checkpointed segment is computed again there.

    What a forward pass does once a step (observing, running statistics) must not be done then, and what it computed
    must come out the same.

    Source: torch/utils/checkpoint.py asks the same question the same way, to know which backward pass it serves.
    """
    return torch._C._current_graph_task_id() != -1
