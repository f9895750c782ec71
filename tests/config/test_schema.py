from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from qtool.backends.registry import backend_names
from qtool.config import augment, schema, train
from qtool.config.load import config_from_mapping, load_config, parse_config
from qtool.config.problems import _place
from qtool.config.schema import ActivationObserver, InputDtype
from qtool.config.section import LocatedSection, Section
from qtool.errors import ConfigError
from qtool.types import Isa, Op, Reduce

DOCS = Path(__file__).parents[2] / "docs" / "config.md"
CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
SECTIONS = [
    value
    for module in (augment, schema, train)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Section) and value.__module__ == module.__name__
]


def parse(text, base=Path("/somewhere")):
    return parse_config(text.encode(), name="c.yaml", base=base)


def test_every_key_has_a_description():
    described = [field.description for section in SECTIONS for field in section.model_fields.values()]
    assert len(described) > 50
    assert all(described)


TABLES = {
    "The file": schema.Config,
    "`model`": schema.ModelConfig,
    "`model.inputs`": schema.InputConfig,
    "`target`": schema.TargetConfig,
    "`quantize`": schema.QuantizeConfig,
    "`quantize.activations`": schema.ActivationConfig,
    "`quantize.weights`": schema.WeightConfig,
    "`quantize.overrides`": schema.Override,
    "`data`": schema.DataConfig,
    "`select`": schema.SelectConfig,
    "`kind: photos`": schema.PhotosSource,
    "`kind: imagefolder`": schema.ImageFolderSource,
    "`kind: digits`": schema.DigitsSource,
    "`kind: fashion_mnist`": schema.FashionMnistSource,
    "`kind: synthetic`": schema.SyntheticSource,
    "`kind: python`": schema.PythonSource,
    "`preprocess`": schema.PreprocessConfig,
    "`augment`": augment.AugmentConfig,
    "`augment.random_crop`": augment.RandomCropConfig,
    "`augment.random_resized_crop`": augment.RandomResizedCropConfig,
    "`train`": train.TrainConfig,
    "`train.optimizer`, `kind: sgd`": train.SgdConfig,
    "`train.optimizer`, `kind: adamw`": train.AdamWConfig,
    "`train.schedule`, `kind: constant`": train.ConstantSchedule,
    "`train.schedule`, `kind: step`": train.StepSchedule,
    "`train.schedule`, `kind: cosine`": train.CosineSchedule,
}
COMMON = ("batch_size", "limit", "select")


def documented(heading):
    """Return the keys and defaults of the tables below a heading of the reference."""
    section = re.split(r"^##+ ", DOCS.read_text("utf-8").partition(f" {heading}\n")[2], maxsplit=1, flags=re.M)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\|", section, re.M))


def default_in_words(field):
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Section):
        return "all defaults"
    text = value if isinstance(value, str) else json.dumps(value)
    return "none" if value is None else f"`{text}`"


@pytest.mark.parametrize("heading", TABLES)
def test_the_reference_has_every_key_and_default(heading):
    fields = {name: default_in_words(field) for name, field in TABLES[heading].model_fields.items()}
    if heading.startswith("`kind: "):
        assert fields.pop("kind") == ""
        assert {name: fields.pop(name) for name in COMMON}.keys() == set(COMMON)
    if heading == "`data`":
        fields |= {name: default_in_words(schema.DigitsSource.model_fields[name]) for name in COMMON}
    assert documented(heading) == fields


def test_every_section_has_a_table():
    assert set(TABLES.values()) == set(SECTIONS) - {LocatedSection, schema._Source, train._Schedule}


def test_the_reference_names_every_choice():
    reference = DOCS.read_text("utf-8")
    choices = [*backend_names(), *Isa, *Op, *Reduce, *get_args(ActivationObserver), *get_args(InputDtype)]
    choices += [*get_args(train.Device), *get_args(train.Autocast)]
    assert [choice for choice in choices if f"`{choice}`" not in reference] == []


def test_the_examples_in_the_reference_are_what_they_say(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = [part.partition("```")[0] for part in DOCS.read_text("utf-8").split("```")[1::2]]
    good, bad, errors = (block.partition("\n")[2] for block in blocks[:3])
    assert parse(good).quantize.overrides[1].dtype == "float"
    Path("wrong.yaml").write_text(bad, "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(Path("wrong.yaml"))
    assert str(caught.value) == errors.strip()


def test_a_config_cannot_be_changed():
    config = parse("{version: 1, target: {backend: fbgemm}}")
    with pytest.raises(ValidationError, match="frozen"):
        config.target.backend = "qnnpack"
    with pytest.raises(TypeError, match=r"qtool\.config\.load\.changed"):
        config.target.model_copy(update={"backend": "nonsense"})
    assert config.model_copy(deep=True).target == config.target


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_section_is_frozen_and_strict_and_refuses_unknown_keys(section):
    assert {"frozen": True, "strict": True, "extra": "forbid"}.items() <= section.model_config.items()


def test_digest_is_that_of_the_meaning():
    one = parse(
        "version: 1\ntarget: {backend: fbgemm, isa: any}\nquantize: {skip: [a], weights: {granularity: auto}}\n"
    )
    other = parse(
        "quantize:\n  skip:\n  - 'a' # skipped\ntarget:\n    backend: fbgemm\nversion: 1\n", Path("/elsewhere")
    )
    mapping = config_from_mapping({"target": {"backend": "fbgemm"}, "quantize": {"skip": ("a",)}})
    assert one.digest() == other.digest() == mapping.digest()
    assert len(one.digest()) == 64


def test_digest_changes_with_every_setting():
    settings = ["", "quantize: {skip: [a]}", "quantize: {skip: [a, b]}", "quantize: {skip: [b, a]}"]
    settings += ["quantize: {reduce_range: never}", "quantize: {activations: {observer: mse}}"]
    settings += ["data: {calibrate: {kind: synthetic, count: 4}}", "data: {evaluate: {kind: synthetic, count: 4}}"]
    settings += ["data: {calibrate: {kind: synthetic, count: 4, seed: 1}}"]
    digests = {parse(f"version: 1\ntarget: {{backend: fbgemm}}\n{text}").digest() for text in settings}
    assert len(digests) == len(settings)


@pytest.mark.parametrize("text", ["1.0", "10e-1", "+1"])
def test_one_number_has_one_digest(text):
    start = "version: 1\ntarget: {backend: fbgemm}\ndata: {calibrate: {kind: photos, folder: p, preprocess: {std: ["
    assert parse(f"{start}{text}]}}}}}}").digest() == parse(f"{start}1]}}}}}}").digest()


def test_the_json_form_tells_nothing_of_the_machine():
    config = parse(
        """
version: 1
target: {backend: fbgemm}
model:
  factory: "a:b"
  inputs: [{name: x, shape: [batch, 3]}]
  checkpoint: /home/ada/secret/w.pth
  kwargs: {config: /home/ada/secret/c.json, nested: [{windows: 'C:\\Users\\ada\\d.bin'}], separator: /}
data:
  calibrate: {kind: photos, folder: /home/ada/photos, label: "/([0-9]+)/"}
  evaluate: {kind: python, factory: "m:f", kwargs: {root: /home/ada}}
"""
    )
    text = config.to_json()
    assert "/home" not in text
    assert "Users" not in text
    tree = json.loads(text)
    assert tree["model"]["checkpoint"] == "w.pth"
    assert tree["model"]["kwargs"] == {"config": "c.json", "nested": [{"windows": "d.bin"}], "separator": "/"}
    assert tree["data"]["calibrate"]["label"] == "/([0-9]+)/"
    assert config.model.checkpoint == "/home/ada/secret/w.pth"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_json_form_comes_back_the_same(path):
    text = load_config(path).to_json()
    assert config_from_mapping(json.loads(text)).to_json() == text
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False) == text


def test_a_place_in_a_kind_of_source_has_no_segment_for_the_kind():
    place = _place(("data", "calibrate", "photos", "preprocess", "mean", 1))
    assert place.path == ("data", "calibrate", "preprocess", "mean", 1)
    assert place.owner is schema.PreprocessConfig
    place = _place(("data", "calibrate", "photos", "photos"))
    assert (place.path, place.owner) == (("data", "calibrate", "photos"), schema.PhotosSource)
