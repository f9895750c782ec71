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

    def corrected(
        self,
        y: Tensor,
        plain: Tensor,
        bias: Tensor | None,
        gamma: Tensor | None,
        beta: Tensor | None,
        mean: Tensor,
        var: Tensor,
        num_batches: Tensor | None,
        folded_var: Tensor,
    ) -> Tensor:
        """Return the normalised output of a layer whose weight has the running variance folded in already.

            y * sqrt(folded_var + eps) / sqrt(batch_var + eps) + beta - gamma * batch_mean / sqrt(batch_var + eps)

        Nothing is divided by gamma, so gamma may be 0.

        Args:
            y: the layer's output with the folded weight, without bias.
            plain: the layer's output with weight and bias as they are; its statistics are the batch's.
            bias: the layer's own bias.
            gamma: the batch norm's weight, or None for one.
            beta: the batch norm's bias, or None for zero.
            mean: running mean; updated.
            var: running variance; updated.
            num_batches: the batch norm's counter; updated.
            folded_var: the running variance that was folded in: as it was before this step.

        Raises:
            SmallBatchError: the batch has a single value per channel.

        Source: Krishnamoorthi 2018, arXiv:1806.08342, section 3.2.2 ("correction").
        """
        before = (folded_var + self.eps).sqrt()
        if self.uses_running_statistics:
            centre, spread = mean, before
        else:
            self._check_has_statistics(plain)
            batch_var, centre = torch.var_mean(plain.float(), dim=_all_but_channels(plain), correction=0)
            spread = (batch_var + self.eps).sqrt()
            if not is_recomputing():
                count = plain.numel() // plain.shape[1]
                self._update(mean, centre, self._count(num_batches))
                self._update(var, batch_var * (count / (count - 1)), self._share(num_batches))
        centre = centre if bias is None else centre - bias
        shift = -centre / spread if gamma is None else -gamma * centre / spread
        shift = shift if beta is None else beta + shift
        return (y * _along_channels(before / spread, y) + _along_channels(shift, y)).to(y.dtype)

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


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _along_channels(values: Tensor, x: Tensor) -> Tensor:
    return values.view(1, -1, *[1] * (x.dim() - 2))
