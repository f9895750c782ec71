"""A small classifier with the methods that training needs of a prepared model, and data for it."""

import torch
from torch import nn

from qtool.config.schema import InputConfig
from qtool.config.train import SgdConfig, TrainConfig
from qtool.data.batch import Sample
from qtool.data.sources import DataSource, Selected
from qtool.training.batches import TrainingBatches
from qtool.training.loop import Training
from qtool.training.loss import make_loss
from qtool.training.optimizer import make_optimizer
from qtool.training.schedule import LearningRate

INPUTS = (InputConfig(name="x", shape=("batch", 4)),)
NUM_CLASSES = 3


class Classifier(nn.Sequential):
    """Says of every step what was frozen in it."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, NUM_CLASSES))
        self.frozen = {"observers": False, "batch_norms": False}
        self.seen = []

    def freeze_observers(self, frozen=True):
        self.frozen["observers"] = frozen

    def freeze_batch_norms(self, frozen=True):
        self.frozen["batch_norms"] = frozen

    def forward(self, x):
        if self.training:
            self.seen.append((len(x), self.frozen["observers"], self.frozen["batch_norms"]))
        return super().forward(x)


class Points:
    """Labelled points that can be told apart; `number` of a sample is its first value."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.values = torch.randn(count, 4, generator=generator)
        self.values[:, 0] = torch.arange(count)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        values = self.values[index]
        return Sample(name=f"point {index}", inputs=(values,), label=int(values[1:].argmax()))


class NoisyPoints(Points):
    """Points that are moved at random, as augmentation does."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        noise = torch.cat((torch.zeros(1), torch.randn(3)))
        return Sample(name=sample.name, inputs=(sample.inputs[0] + noise,), label=sample.label)


def source_of(samples, batch_size=4, inputs=INPUTS):
    return DataSource(Selected(samples, tuple(range(len(samples)))), batch_size, inputs)


def training_of(model, settings=None, samples=None, batch_size=4, records=None):
    settings = settings or TrainConfig(epochs=2, optimizer=SgdConfig(lr=0.01))
    batches = TrainingBatches(source=source_of(samples or Points(10), batch_size), settings=settings)
    return Training(
        model=model,
        optimizer=make_optimizer(model, settings.optimizer),
        batches=batches,
        loss=make_loss(settings),
        rate=LearningRate(
            schedule=settings.schedule,
            lr=settings.optimizer.lr,
            epochs=settings.epochs,
            steps_per_epoch=batches.num_batches,
        ),
        settings=settings,
        device=torch.device("cpu"),
        on_record=(lambda record: None) if records is None else records.append,
    )
