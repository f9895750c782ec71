"""A batch norm in train mode, which can be frozen."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from qtool.capture.training_mode import CUMULATIVE
from qtool.errors import SmallBatchError
from qtool.numerics.recompute import is_recomputing


class BatchNormPoint(nn.Module):
    """A batch norm of the training graph: normalises with the batch's statistics, or with the running ones if frozen.

    Shapes: x (N, C, ...); all other tensors (C,).

    Attributes:
        name: of the batch norm's node, for errors.
        momentum: as captured: share of the batch in the running statistics; `CUMULATIVE` for the average of all.
        eps: as captured.
        learns: as captured: False where the model keeps it in eval mode while it trains.
        frozen: the running statistics are used and stay as they are.
    """

    def __init__(self, name: str, momentum: float, eps: float, *, learns: bool = True) -> None:
        super().__init__()
        self.name = name
        self.momentum = momentum
        self.eps = eps
        self.learns = learns
        self.frozen = False

    @property
    def uses_running_statistics(self) -> bool:
        """Whether it computes as in eval mode."""
        return self.frozen or not self.learns

    def forward(
        self,
        x: Tensor,
        gamma: Tensor | None,
        beta: Tensor | None,
        mean: Tensor,
        var: Tensor,
        num_batches: Tensor | None,
    ) -> Tensor:
        """Return the normalised `x`, as torch's own batch norm does.

        Raises:
            SmallBatchError: the batch has a single value per channel.
        """
        if self.uses_running_statistics:
            return batch_norm(x, mean, var, gamma, beta, training=False, eps=self.eps)
        self._check_has_statistics(x)
        if is_recomputing():
            # As many tensors as the first time must be kept for backward, but none of ours be written to.
            return batch_norm(x, mean.clone(), var.clone(), gamma, beta, training=True, eps=self.eps)
        momentum = self._count(num_batches)
        return batch_norm(x, mean, var, gamma, beta, training=True, momentum=momentum, eps=self.eps)

    def statistics_used(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the mean and variance it normalises with where they are the running ones; None for the batch's."""
        return (mean, var) if self.uses_running_statistics else None

    def follow(
        self, x: Tensor, batch_mean: Tensor, batch_var: Tensor, mean: Tensor, var: Tensor, num_batches: Tensor | None
    ) -> None:
        """Update the running statistics after one batch, where that is due.

        Args:
            x: what was normalised, or anything of its shape.
            batch_mean: its mean.
            batch_var: its variance, biased.
            mean: running mean; updated.
            var: running variance, unbiased; updated.
            num_batches: the counter; updated.

        Raises:
            SmallBatchError: the batch has a single value per channel; nothing was updated.
        """
        if self.uses_running_statistics:
            return
        self._check_has_statistics(x)
        if is_recomputing():
            return
        count = x.numel() // x.shape[1]
        share = self._count(num_batches)
        self._update(mean, batch_mean, share)
        self._update(var, batch_var * (count / (count - 1)), share)

    def _check_has_statistics(self, x: Tensor) -> None:
        """Refuse what torch's own batch norm refuses: the normalised value would be 0, whatever `x` is."""
        if x.numel() == x.shape[1]:
            found = f"batch norm {self.name!r} sees one value per channel, in shape {tuple(x.shape)}"
            raise SmallBatchError(found, "train on batches of at least 2 samples, or call freeze_batch_norms()")

    def _count(self, num_batches: Tensor | None) -> float:
        """Count the batch, and return its share in the running statistics."""
        if num_batches is not None:
            num_batches.add_(1)
        return self._share(num_batches)

    def _share(self, num_batches: Tensor | None) -> float:
        if self.momentum == CUMULATIVE and num_batches is not None:
            return 1.0 / int(num_batches)
        return self.momentum

    @staticmethod
    @torch.no_grad()
    def _update(running: Tensor, batch: Tensor, share: float) -> None:
        running.mul_(1 - share).add_(batch.detach().to(running.dtype), alpha=share)

    def extra_repr(self) -> str:
        """Return the captured numbers."""
        return f"momentum={self.momentum}, eps={self.eps}{', frozen' if self.frozen else ''}"
