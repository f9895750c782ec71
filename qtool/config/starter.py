"""A config to start from: every section, each key with its meaning, defaults as comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from qtool.config.rules import FACTORY_FORM, is_factory
from qtool.config.schema import (
    Config,
    DataConfig,
    InputConfig,
    ModelConfig,
    PhotosSource,
    QuantizeConfig,
    SyntheticSource,
    TargetConfig,
)
from qtool.config.torchvision_names import torchvision_models
from qtool.config.yaml_text import scalar
from qtool.errors import MissingDependencyError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.config.section import Section

_INPUT = {"name": "image", "shape": ["batch", 3, 224, 224]}
_SYNTHETIC = {"kind": "synthetic", "count": 16}
_PHOTOS = """\
Ranges from random values say little about your model: take pictures, in place of the keys above:
  kind: photos
  folder: ../photos
  preprocess: {resize: 256, crop: 224, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}"""
_TRAINING = """\
For quantization-aware training say mode: qat above, put data.train beside the other data, and say how to train:
data:
  train:  # labelled samples that can be shuffled: folder/CLASS/*.jpg
    kind: imagefolder
    folder: ../train
    batch_size: 64  # at least 2, for batch norms
    preprocess: {resize: 256, crop: 224, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}
    augment: {random_resized_crop: {size: 224}, flip: true}
train:
  epochs: 10  # passes over data.train
  optimizer: {kind: sgd, lr: 0.0001}  # a hundredth to a thousandth of the rate that trained the float model
  schedule: {kind: cosine}  # lets the rate fall to nothing
  freeze_batch_norm_after: 3  # epochs after which statistics of batch norms stay
  freeze_observers_after: 4  # epochs after which ranges stay
  memory: compressed  # what is kept for backward; the numbers are the same with recompute, which keeps least
Then: qtool train FILE -o trained.pt2 --checkpoints run"""


def starting_config(model: str) -> str:
    r"""Return a config for `model` as YAML text with comments.

    A line that begins with `#` and no space is a key with its default: without the `#` it means the same.

    Args:
        model: `package.module:attribute`, which is not imported, or the name of a torchvision model.

    Raises:
        UsageError: it is neither.
        MissingDependencyError: it is a name, and torchvision is not installed.

    Example:
        >>> starting_config("resnet18").splitlines()[4:6]
        ['model:', '  factory: torchvision.models:resnet18  # what builds the model, as package.module:attribute']
    """
    given = _model(model)
    lines = [
        f"# A qtool config for {model}. A line that begins with # and no space holds a default.",
        "# qtool config check FILE says whether it is right, qtool config show FILE what it comes to.",
        *_line("version", Config, 1),
        "",
        "model:",
        *_section(ModelConfig, given, "  ", skip=("inputs",)),
        f"  inputs:  # {ModelConfig.model_fields['inputs'].description}; change them to yours",
        *_items(InputConfig, _INPUT),
        "",
        "target:",
        *_section(TargetConfig, {"backend": "fbgemm"}, "  "),
        "",
        "quantize:",
        *_section(QuantizeConfig, {"mode": "ptq"}, "  "),
        "  # An override, for example: {match: features.0, dtype: float}",
        "",
        "data:",
        *_sources(),
        "",
        *(f"# {line}" for line in _TRAINING.splitlines()),
    ]
    return "".join(f"{line}\n" for line in lines)


def _model(model: str) -> dict[str, Any]:
    """Return what is known of the model: its factory, and where its weights may be."""
    if is_factory(model):
        return {"factory": model, "checkpoint": "weights.pth"}
    if ":" in model:
        msg = f"model {model!r} is no factory. Write {FACTORY_FORM}, or the name of a torchvision model."
        raise UsageError(msg)
    names = torchvision_models()
    if not names:
        msg = f"torchvision is not installed, so {model!r} cannot be found. Install it, or write {FACTORY_FORM}."
        raise MissingDependencyError(msg)
    if model not in names:
        msg = f"torchvision has no model {model!r}{nearest(model, names) or '.'} Or write {FACTORY_FORM}."
        raise UsageError(msg)
    return {"factory": f"torchvision.models:{model}", "weights": "DEFAULT"}


def _section(
    section: type[Section], given: Mapping[str, Any], indent: str, skip: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield a line for each key: those given as they are, the others as comments with their defaults."""
    keys = [*given, *(name for name in section.model_fields if name not in given)]
    for name in keys:
        if name in skip:
            continue
        if name in given:
            yield from _line(name, section, given[name], indent)
            continue
        default = section.model_fields[name].get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            yield f"{indent}#{name}:  # {section.model_fields[name].description}"
            yield from _section(type(default), {}, f"{indent}  ")  # type: ignore[arg-type]  # sections hold sections
        else:
            yield from _line(name, section, default, f"{indent}#")


def _line(name: str, section: type[Section], value: Any, start: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    plain = list(value) if isinstance(value, tuple) else value
    yield f"{start}{name}: {scalar(getattr(plain, 'value', plain))}  # {section.model_fields[name].description}"


def _items(section: type[Section], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a list of one mapping."""
    first, *rest = _section(section, given, "      ")
    yield f"    - {first[6:]}"
    yield from rest


def _sources() -> Iterator[str]:
    for name, seed in (("calibrate", 0), ("evaluate", 1)):
        yield f"  {name}:  # {DataConfig.model_fields[name].description}"
        given = _SYNTHETIC if seed == 0 else {**_SYNTHETIC, "seed": seed}
        yield from _section(SyntheticSource, given, "    ")
        yield from (f"    # {line}" for line in _PHOTOS.splitlines())
    yield "  # The keys of photos, besides the common ones:"
    shown = ("folder", "glob", "label")
    yield from (f"  #   {name}: {PhotosSource.model_fields[name].description}" for name in shown)
