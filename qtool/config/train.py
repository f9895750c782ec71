"""The keys of `train`: how a prepared model is trained.

docs/config.md describes them for people, docs/training.md what they do.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic import field_validator as check

from qtool.config.rules import Factory, Seed, agree, require
from qtool.config.section import Section
from qtool.types import Memory

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
Scales: TypeAlias = Literal["observed", "learned"]
Autocast: TypeAlias = Literal["off", "bfloat16"]


def _check_betas(betas: tuple[float, ...]) -> tuple[float, ...]:
    require(len(betas) == 2 and all(0 <= beta < 1 for beta in betas), "two numbers from 0 to below 1")
    return betas


Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0)]
# Not strict: what a validator with mode="before" hands on is no longer JSON to pydantic, and a list then no tuple.
Betas = Annotated[tuple[float, ...], Field(strict=False), AfterValidator(_check_betas)]


class SgdConfig(Section):
    """Stochastic gradient descent, as torch.optim.SGD. The defaults are torchvision's for its quantized models."""

    # Source: torchvision, references/classification/train_quantization.py
    kind: Literal["sgd"] = Field(default="sgd", description="stochastic gradient descent")
    lr: Rate = Field(default=1e-4, description="learning rate")
    momentum: Share = Field(default=0.9, description="share of the last step that is kept")
    weight_decay: Decay = Field(default=1e-4, description="times each parameter, added to its gradient")
    nesterov: bool = Field(default=False, description="true: Nesterov's momentum, which needs momentum above 0")

    @check("nesterov")
    @classmethod
    def _check_nesterov(cls, nesterov: bool, info: ValidationInfo) -> bool:
        require(not nesterov or info.data.get("momentum", 1) > 0, "false with momentum: 0")
        return nesterov


class AdamWConfig(Section):
    """Adam with decoupled weight decay, as torch.optim.AdamW with its defaults for all but the learning rate."""

    kind: Literal["adamw"] = Field(default="adamw", description="Adam with decoupled weight decay")
    lr: Rate = Field(default=1e-4, description="learning rate")
    weight_decay: Decay = Field(default=0.01, description="share of each parameter taken off, times lr")
    betas: Betas = Field(default=(0.9, 0.999), description="share kept of the mean gradient, and of its mean square")
    eps: Rate = Field(default=1e-8, description="added to the root of the mean square")


class _Schedule(Section):
    """What all schedules have."""

    warmup_epochs: int = Field(default=0, ge=0, description="epochs in which lr grows, step by step, to its value")


class ConstantSchedule(_Schedule):
    """The learning rate stays."""

    kind: Literal["constant"] = Field(default="constant", description="lr stays")


class StepSchedule(_Schedule):
    """The learning rate falls every few epochs. The defaults are torchvision's."""

    kind: Literal["step"] = Field(default="step", description="lr falls every few epochs")
    step_size: int = Field(default=30, ge=1, description="epochs between two falls, from the end of the warm-up")
    gamma: Annotated[float, Field(gt=0, le=1)] = Field(default=0.1, description="what lr is multiplied by")


class CosineSchedule(_Schedule):
    """The learning rate falls along half a cosine."""

    kind: Literal["cosine"] = Field(default="cosine", description="lr falls along half a cosine, step by step")
    final_lr: Decay = Field(default=0.0, description="what lr comes to after the last step")


Optimizer: TypeAlias = Annotated[SgdConfig | AdamWConfig, Field(discriminator="kind")]
Schedule: TypeAlias = Annotated[ConstantSchedule | StepSchedule | CosineSchedule, Field(discriminator="kind")]


class TrainConfig(Section):
    """How a prepared model is trained."""

    epochs: int = Field(ge=1, description="passes over data.train")
    optimizer: Optimizer = Field(default_factory=SgdConfig, description="how parameters follow their gradients")
    schedule: Schedule = Field(default_factory=ConstantSchedule, description="how the learning rate changes")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of each label that is spread over all classes"
    )
    loss: Factory | None = Field(
        default=None,
        description="what is called with outputs and labels and returns the loss; cross entropy without it",
    )
    clip_grad_norm: Rate | None = Field(default=None, description="longest gradient of all parameters together")
    # Defaults: torchvision, references/classification/train_quantization.py, --num-observer-update-epochs and
    # --num-batch-norm-update-epochs.
    freeze_observers_after: int = Field(default=4, ge=0, description="epochs after which ranges stay")
    freeze_batch_norm_after: int = Field(
        default=3, ge=0, description="epochs after which the statistics of batch norms stay"
    )
    scales: Scales = Field(
        default="observed", description="observed: ranges follow what is seen; learned: scales are parameters too"
    )
    seed: Seed = Field(default=0, description="seed of all that is random: order, augmentation, dropout")
    num_workers: int = Field(default=0, ge=0, description="processes that read samples; 0 reads them in this one")
    drop_last: bool = Field(default=False, description="true: leave out a last batch that is not full")
    evaluate_every: int = Field(default=1, ge=1, description="epochs between two evaluations; the last one counts too")
    log_every: int = Field(default=50, ge=1, description="steps between two lines of --metrics")
    keep: int = Field(default=2, ge=1, description="checkpoints kept, the last ones")
    select: Literal["last", "best"] = Field(
        default="last", description="the epoch whose model is written: the last, or the most accurate on data.evaluate"
    )
    memory: Memory = Field(
        default=Memory.COMPRESSED,
        description="what is kept for backward; the numbers are the same in all modes",
        strict=False,
    )
    device: Device = Field(default="auto", description="where it is trained; auto is cuda where there is one")
    autocast: Autocast = Field(default="off", description="lower precision of the forward pass")

    @check("optimizer", "schedule", mode="before")
    @classmethod
    def _fill_in_kind(cls, value: object, info: ValidationInfo) -> object:
        """Give a mapping without a kind that of the default: the other keys are read as that kind's."""
        if not isinstance(value, Mapping) or "kind" in value:
            return value
        return {"kind": "sgd" if info.field_name == "optimizer" else "constant", **value}

    @check("schedule")
    @classmethod
    def _check_warmup(cls, schedule: Schedule, info: ValidationInfo) -> Schedule:
        epochs = info.data.get("epochs", schedule.warmup_epochs + 1)
        agree(
            schedule.warmup_epochs < epochs,
            f"found schedule.warmup_epochs: {schedule.warmup_epochs} of {epochs} epochs; allowed: fewer than epochs",
        )
        return schedule

    @check("loss")
    @classmethod
    def _check_loss(cls, loss: str | None, info: ValidationInfo) -> str | None:
        agree(
            loss is None or not info.data.get("label_smoothing"),
            "found loss and label_smoothing; allowed: one of them, since label_smoothing is of cross entropy",
        )
        return loss
