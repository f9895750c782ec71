"""Every key of a config: its type, its default, what it means.

The models are frozen, strict and refuse unknown keys. They are filled through `qtool.config.load`, which turns each
fault into a located sentence. docs/config.md describes the same keys for people.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, Field, PrivateAttr, ValidationInfo
from pydantic import field_validator as check

from qtool.backends.target import backends_of
from qtool.config.augment import AugmentConfig
from qtool.config.document import Document
from qtool.config.paths import without_folders
from qtool.config.rules import (
    NOT_EMPTY,
    Dimension,
    Factory,
    Glob,
    Kwargs,
    Label,
    PathText,
    Seed,
    TargetBackends,
    Text,
    agree,
    require,
)
from qtool.config.section import LocatedSection, Section
from qtool.config.train import TrainConfig
from qtool.types import Isa, Op, Reduce

ActivationObserver: TypeAlias = Literal["auto", "minmax", "moving_average", "histogram", "percentile", "mse"]
WeightObserver: TypeAlias = Literal["auto", "minmax", "mse"]
NonFinite: TypeAlias = Literal["error", "ignore"]
GranularityChoice: TypeAlias = Literal["auto", "tensor", "channel"]
InputDtype: TypeAlias = Literal["float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"]


class InputConfig(Section):
    """One input of the model."""

    name: Text = Field(description="name of the input, for messages and exported files")
    shape: Annotated[tuple[Dimension, ...], NOT_EMPTY] = Field(
        description="sizes, batch first; a name instead of a number is a size that varies"
    )
    dtype: InputDtype = Field(default="float32", description="dtype of the values")


class ModelConfig(Section):
    """The float model: how it is built, where its weights come from, what it takes."""

    factory: Factory = Field(description="what builds the model, as package.module:attribute")
    kwargs: Kwargs = Field(default_factory=dict, description="keyword arguments of the factory")
    inputs: Annotated[tuple[InputConfig, ...], NOT_EMPTY] = Field(
        description="inputs in the order of forward's arguments"
    )
    checkpoint: PathText | None = Field(default=None, description="file with the state dict")
    checkpoint_key: Text | None = Field(
        default=None, description="key of the state dict in the checkpoint, where it holds more"
    )
    weights: Text | None = Field(default=None, description="passed to the factory as weights=")
    random_init: bool = Field(
        default=False, validate_default=True, description="true: weights are random, there is no checkpoint"
    )

    @check("inputs")
    @classmethod
    def _check_names(cls, inputs: tuple[InputConfig, ...]) -> tuple[InputConfig, ...]:
        names = [item.name for item in inputs]
        for name in names:
            require(names.count(name) == 1, "another name for each input", found=f"the name {name!r} twice")
        return inputs

    @check("checkpoint_key")
    @classmethod
    def _check_key(cls, key: str | None, info: ValidationInfo) -> str | None:
        require(key is None or info.data.get("checkpoint", "") is not None, "nothing without a checkpoint")
        return key

    @check("weights")
    @classmethod
    def _check_weights(cls, weights: str | None, info: ValidationInfo) -> str | None:
        require(
            weights is None or "weights" not in info.data.get("kwargs", {}), "weights here or in kwargs, not in both"
        )
        return weights

    @check("random_init")
    @classmethod
    def _check_origin(cls, random_init: bool, info: ValidationInfo) -> bool:
        # A key that is wrong in itself is not in info.data: it counts as given.
        given = [name for name in ("checkpoint", "weights") if info.data.get(name, "") is not None]
        given += ["random_init: true"] if random_init else []
        found = " and ".join(given) or "neither checkpoint nor weights"
        agree(len(given) == 1, f"found {found}; allowed: one of checkpoint, weights and random_init: true")
        return random_init


class TargetConfig(Section):
    """The machine the model is made for."""

    backend: TargetBackends = Field(description="what runs the converted model: a backend, several, or portable")
    isa: Isa = Field(default=Isa.ANY, description="the CPU it runs on; any promises nothing and counts as no-vnni")

    @property
    def backends(self) -> tuple[str, ...]:
        """The names of the backends, each of which the model must be right on."""
        return backends_of(self.backend) if isinstance(self.backend, str) else self.backend


class ActivationConfig(Section):
    """How activations are observed."""

    observer: ActivationObserver = Field(default="auto", description="how the range of an activation is found")
    non_finite: NonFinite = Field(
        default="error", description="NaN and infinity in what is observed: error, or ignore, which leaves them out"
    )


class WeightConfig(Section):
    """How weights are quantized."""

    granularity: GranularityChoice = Field(
        default="auto", description="scales per tensor or per output channel; auto is channel where the engine can"
    )
    observer: WeightObserver = Field(default="auto", description="how the range of a weight is found")


class Override(Section):
    """Other settings for the nodes it matches; of several that set the same, the last wins."""

    match: Text = Field(description="pattern of node names, or of a module path above them")
    op: Op | None = Field(default=None, description="only nodes of this op")
    dtype: Literal["float", "int8"] | None = Field(
        default=None, description="float keeps the node as it is; int8 takes it out of skip"
    )
    observer: ActivationObserver | None = Field(default=None, description="observer of the node's output")
    granularity: GranularityChoice | None = Field(default=None, description="granularity of the node's weight")
    reduce_range: Reduce | None = Field(
        default=None, validate_default=True, description="reduced range of the activations the node reads"
    )

    @check("reduce_range")
    @classmethod
    def _check_settings(cls, reduce_range: Reduce | None, info: ValidationInfo) -> Reduce | None:
        names = ("dtype", "observer", "granularity")
        says_something = reduce_range is not None or any(info.data.get(name, "") is not None for name in names)
        agree(says_something, f"found nothing to override; allowed: at least one of {', '.join(names)}, reduce_range")
        return reduce_range


class QuantizeConfig(LocatedSection):
    """What is quantized and how."""

    mode: Literal["ptq", "qat"] = Field(
        default="ptq", description="ptq: ranges come from calibration data; qat: the model is trained on its int8 grid"
    )
    reduce_range: Reduce = Field(
        default=Reduce.AUTO,
        description="activations in 7 bits: auto where kernels would saturate, per_node where weights make them",
    )
    skip: tuple[Text, ...] = Field(default=(), description="patterns of nodes or modules that stay float")
    activations: ActivationConfig = Field(default_factory=ActivationConfig, description="defaults for activations")
    weights: WeightConfig = Field(default_factory=WeightConfig, description="defaults for weights")
    overrides: tuple[Override, ...] = Field(
        default=(), validate_default=True, description="other settings for some nodes"
    )

    @check("overrides")
    @classmethod
    def _check_proof(cls, overrides: tuple[Override, ...], info: ValidationInfo) -> tuple[Override, ...]:
        asked = [info.data.get("reduce_range"), *(override.reduce_range for override in overrides)]
        agree(
            info.data.get("mode") != "qat" or Reduce.PER_NODE not in asked,
            "found reduce_range: per_node with mode: qat, whose weights change after they are proved safe; allowed: "
            "auto, always, never",
        )
        return overrides


class PreprocessConfig(Section):
    """What is done to a picture before the model sees it, in this order; values are 0..1 before mean and std."""

    resize: int | None = Field(default=None, ge=1, description="length of the shorter side after resizing, in pixels")
    interpolation: Literal["bilinear", "bicubic", "nearest"] = Field(
        default="bilinear", description="how pixels are resized"
    )
    crop: int | None = Field(default=None, ge=1, description="side of the square cut from the centre, in pixels")
    mean: Annotated[tuple[float, ...], NOT_EMPTY] = Field(
        default=(0.0,), description="subtracted: one number, or one per channel"
    )
    std: Annotated[tuple[Annotated[float, Field(gt=0)], ...], NOT_EMPTY] = Field(
        default=(1.0,), validate_default=True, description="divided by: as many numbers as mean"
    )

    @check("crop")
    @classmethod
    def _check_crop(cls, crop: int | None, info: ValidationInfo) -> int | None:
        resize = info.data.get("resize")
        require(crop is None or resize is None or crop <= resize, f"at most resize, which is {resize}")
        return crop

    @check("std")
    @classmethod
    def _check_channels(cls, std: tuple[float, ...], info: ValidationInfo) -> tuple[float, ...]:
        mean = info.data.get("mean", std)
        agree(
            len(mean) == len(std), f"found {len(mean)} numbers in mean and {len(std)} in std; allowed: as many in both"
        )
        return std


class SelectConfig(Section):
    """A random part of the samples, the same in every run."""

    count: int = Field(ge=1, description="number of samples drawn")
    seed: Seed = Field(default=0, description="seed of the draw")
    complement: bool = Field(default=False, description="true: all samples but the drawn ones")


class _Source(Section):
    """What all data sources have."""

    batch_size: int = Field(default=10, ge=1, description="samples in a batch; the last may be smaller")
    limit: int | None = Field(default=None, ge=1, description="most samples read, after select")
    select: SelectConfig | None = Field(default=None, description="a random part of the samples; all without it")


class PhotosSource(_Source):
    """Pictures in one folder, the class in the file name."""

    kind: Literal["photos"] = Field(description="pictures in one folder")
    folder: PathText = Field(description="folder of the pictures")
    glob: Glob = Field(default="*.jpg", description="pattern of the file names; they are read in sorted order")
    label: Label | None = Field(
        default=None, description="regular expression searched in the file name; its one group is the class index"
    )
    preprocess: PreprocessConfig = Field(default_factory=PreprocessConfig, description="from picture to tensor")
    augment: AugmentConfig | None = Field(default=None, description="random changes, in data.train only")


class ImageFolderSource(_Source):
    """Pictures in one folder per class, as torchvision's ImageFolder."""

    kind: Literal["imagefolder"] = Field(description="pictures in one folder per class")
    folder: PathText = Field(description="folder of the class folders")
    preprocess: PreprocessConfig = Field(default_factory=PreprocessConfig, description="from picture to tensor")
    augment: AugmentConfig | None = Field(default=None, description="random changes, in data.train only")


class DigitsSource(_Source):
    """The 1797 digits of 8 x 8 pixels that scikit-learn carries."""

    kind: Literal["digits"] = Field(description="scikit-learn's digits")
    split: Literal["train", "test"] = Field(description="which part")


class FashionMnistSource(_Source):
    """Fashion-MNIST in its four idx files."""

    kind: Literal["fashion_mnist"] = Field(description="Fashion-MNIST")
    folder: PathText = Field(
        default="/usr/share/datasets/fashion-mnist",
        description="folder of the four .gz files; Debian's by default",
    )
    split: Literal["train", "test"] = Field(description="which part")
    preprocess: PreprocessConfig = Field(default_factory=PreprocessConfig, description="from picture to tensor")
    augment: AugmentConfig | None = Field(default=None, description="random changes, in data.train only")


class SyntheticSource(_Source):
    """Random values in the shapes of model.inputs; no labels."""

    kind: Literal["synthetic"] = Field(description="random values in the shapes of model.inputs")
    count: int = Field(ge=1, description="number of samples")
    seed: Seed = Field(default=0, description="seed of the values")
    distribution: Literal["normal", "uniform"] = Field(
        default="normal", description="normal: mean 0, deviation 1; uniform: 0..1"
    )


class PythonSource(_Source):
    """Samples from the user's own code."""

    kind: Literal["python"] = Field(description="samples from your own code")
    factory: Factory = Field(description="what returns the samples, as package.module:attribute")
    kwargs: Kwargs = Field(default_factory=dict, description="keyword arguments of the factory")


Source: TypeAlias = Annotated[
    PhotosSource | ImageFolderSource | DigitsSource | FashionMnistSource | SyntheticSource | PythonSource,
    Field(discriminator="kind"),
]


class DataConfig(Section):
    """Where samples come from."""

    calibrate: Source | None = Field(default=None, description="samples that the ranges are taken from")
    train: Source | None = Field(default=None, description="samples that the model is trained on, with labels")
    evaluate: Source | None = Field(default=None, description="samples that accuracy is measured on")

    @check("calibrate", "evaluate")
    @classmethod
    def _check_augment(cls, source: Source | None) -> Source | None:
        is_augmented = getattr(source, "augment", None) is not None
        require(not is_augmented, "augment in data.train only", found="augment")
        return source


def _is_trained(info: ValidationInfo) -> bool:
    """Tell whether the mode is qat; one that is wrong in itself counts as that."""
    return getattr(info.data.get("quantize"), "mode", "qat") == "qat"


class Config(LocatedSection):
    """A whole config, settled: what is not said has its default."""

    version: Literal[1] = Field(description="1, the version of this format")
    model: ModelConfig | None = Field(default=None, description="the float model; left out where Python code brings it")
    target: TargetConfig = Field(description="the machine the model is made for")
    quantize: QuantizeConfig = Field(default_factory=QuantizeConfig, description="what is quantized and how")
    data: DataConfig = Field(default_factory=DataConfig, description="samples to calibrate, train and evaluate on")
    train: TrainConfig | None = Field(
        default=None, description="how the model is trained; only with quantize.mode: qat"
    )

    _base: Path = PrivateAttr(default_factory=Path)

    @check("data")
    @classmethod
    def _check_training_data(cls, data: DataConfig, info: ValidationInfo) -> DataConfig:
        require(data.train is None or _is_trained(info), "train with quantize.mode: qat only", found="train")
        return data

    @check("train")
    @classmethod
    def _check_train(cls, train: TrainConfig | None, info: ValidationInfo) -> TrainConfig | None:
        require(train is None or _is_trained(info), "nothing with quantize.mode: ptq; qat is trained", found="train")
        evaluate = getattr(info.data.get("data"), "evaluate", None)
        is_measured = "data" not in info.data or evaluate is not None
        require(
            train is None or train.select == "last" or is_measured,
            "select: last, or data.evaluate with labels",
            found="select: best without data.evaluate",
        )
        return train

    @property
    def base(self) -> Path:
        """The folder that relative paths start from."""
        return self._base

    def with_origin(self, document: Document, base: Path) -> Self:
        """Return the config that also knows what it was read from and where relative paths start."""
        quantize = self.quantize.model_copy()
        quantize._document = document
        config = BaseModel.model_copy(self, update={"quantize": quantize})
        config._document = document
        config._base = base
        return config

    def to_json(self) -> str:
        """Return the settled config as canonical JSON; of absolute paths it keeps the last part only.

        Two configs have the same text if and only if they mean the same, wherever they lie and however they are
        laid out. `config_from_mapping(json.loads(text))` has the same text again.
        """
        tree = without_folders(self.model_dump(mode="json"))
        return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    def digest(self) -> str:
        """Return the SHA-256 of `to_json()` in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()
