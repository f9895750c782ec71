from __future__ import annotations

import re
from pathlib import Path

import pytest

from qtool.config.load import parse_config
from qtool.config.schema import Config
from qtool.config.source import parse_yaml
from qtool.config.starter import starting_config
from qtool.config.torchvision_names import torchvision_models
from qtool.config.train import TrainConfig
from qtool.errors import MissingDependencyError, UsageError

MODELS = ["resnet18", "mypackage.nets:Net.small"]


def load(text):
    return parse_config(text.encode(), name="c.yaml", base=Path.cwd())


@pytest.mark.parametrize("model", [*MODELS, "net:größe"])
def test_it_is_a_valid_config_of_every_section(model):
    text = starting_config(model)
    config = load(text)
    assert config.model.factory == (model if ":" in model else f"torchvision.models:{model}")
    assert config.data.calibrate != config.data.evaluate
    assert set(parse_yaml(text, "c.yaml").tree) == set(Config.model_fields) - {"train"}


def test_a_torchvision_model_has_its_weights_and_others_a_checkpoint():
    assert load(starting_config("resnet18")).model.weights == "DEFAULT"
    assert load(starting_config("a:b")).model.checkpoint == "weights.pth"


@pytest.mark.parametrize("model", MODELS)
def test_the_defaults_in_its_comments_are_the_defaults(model):
    text = starting_config(model)
    spelled_out, num_keys = re.subn(r"^( *)#(?! )", r"\1", text, flags=re.MULTILINE)
    assert num_keys > 15
    assert load(spelled_out).digest() == load(text).digest()
    assert "kind: photos" not in re.sub(r"#.*", "", text)


def test_the_suggested_photos_are_right_too():
    lines = starting_config("resnet18").splitlines()
    at = next(n for n, line in enumerate(lines) if "#   kind: photos" in line)
    photos = "\n".join(line.replace("#", " ") for line in lines[at : at + 3])
    source = f"version: 1\ntarget: {{backend: fbgemm}}\ndata:\n  calibrate:\n{photos}\n"
    assert load(source).data.calibrate.preprocess.crop == 224


def test_the_suggested_training_is_right_too():
    lines = starting_config("resnet18").splitlines()
    *training, command = [line.removeprefix("# ") for line in lines[lines.index("# data:") :]]
    config = load("version: 1\ntarget: {backend: fbgemm}\nquantize: {mode: qat}\n" + "\n".join(training))
    assert config.train.schedule.kind == "cosine"
    assert config.data.train.augment.flip
    default = TrainConfig(epochs=10)
    assert config.train.freeze_batch_norm_after == default.freeze_batch_norm_after
    assert config.train.freeze_observers_after == default.freeze_observers_after
    assert config.train.memory == default.memory
    assert command == "Then: qtool train FILE -o trained.pt2 --checkpoints run"


def test_it_fits_a_screen_in_width():
    assert max(map(len, starting_config("resnet18").splitlines())) <= 120


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "resnet81",
            "torchvision has no model 'resnet81'; did you mean 'resnet18'? Or write 'package.module:attribute'.",
        ),
        ("zzzzz", "torchvision has no model 'zzzzz'. Or write 'package.module:attribute'."),
        ("", "torchvision has no model ''. Or write 'package.module:attribute'."),
        (
            "nets:",
            "model 'nets:' is no factory. Write 'package.module:attribute', or the name of a torchvision model.",
        ),
        (
            "my-nets:net\n",
            (
                "model 'my-nets:net\\n' is no factory. Write 'package.module:attribute', or the name of a torchvision"
                " model."
            ),
        ),
    ],
)
def test_what_is_no_model(model, message):
    with pytest.raises(UsageError) as caught:
        starting_config(model)
    assert str(caught.value) == message


def test_without_torchvision(monkeypatch):
    monkeypatch.setattr("qtool.config.torchvision_names.find_spec", lambda _: None)
    assert torchvision_models() == ()
    with pytest.raises(MissingDependencyError, match=r"torchvision is not installed, so 'resnet18' cannot be found"):
        starting_config("resnet18")
    assert load(starting_config("a:b")).model.factory == "a:b"
