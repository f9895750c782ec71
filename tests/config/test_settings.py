from __future__ import annotations

from pathlib import Path

import pytest

from qtool.config.load import load_config, parse_config
from qtool.errors import ConfigError
from qtool.types import Isa

TEXT = b"""\
version: 1
model:
  factory: nets:small
  random_init: true
  inputs: [{name: x, shape: [batch, 3, 8, 8]}]
target: {backend: fbgemm, isa: vnii}
data:
  calibrate: {kind: photos, folder: photos}
"""
RIGHT = TEXT.replace(b"vnii", b"vnni")


def load(*settings, content=RIGHT):
    return parse_config(content, name="c.yaml", base=Path.cwd(), settings=settings)


def problems(*settings, content=RIGHT):
    with pytest.raises(ConfigError) as caught:
        load(*settings, content=content)
    return list(caught.value.problems)


def test_values_are_yaml_by_the_rules_of_a_file():
    config = load(
        "model.inputs.0.shape=[batch, 3, 64, 64]",
        "model.kwargs={a: 1e-4, b: off, c: 0123, d: '1', e: ~}",
        "quantize.skip=[no]",
        "target.isa = any",
    )
    assert config.model.inputs[0].shape == ("batch", 3, 64, 64)
    assert config.model.kwargs == {"a": 0.0001, "b": "off", "c": "0123", "d": "1", "e": None}
    assert config.quantize.skip == ("no",)
    assert config.target.isa is Isa.ANY


def test_a_value_may_hold_equals_signs_and_may_be_nothing():
    config = load("model.kwargs.a=b=c", "data.calibrate=")
    assert config.model.kwargs == {"a": "b=c"}
    assert config.data.calibrate is None


def test_settings_are_located_by_their_number_and_leave_the_rest_where_it_was():
    config = load("model.kwargs.a=1", "model.inputs.0.shape=[1, 2]", "quantize.weights.observer=mse")
    places = {
        "model.kwargs": "--set #1",
        "model.kwargs.a": "--set #1",
        "model.inputs.0.shape.1": "--set #2",
        "model.inputs.0.name": "c.yaml:5:19",
        "quantize": "--set #3",
        "target.backend": "c.yaml:6:19",
    }
    assert {key: config.locate(key) for key in places} == places


def test_a_setting_replaces_a_whole_mapping():
    assert load("data.calibrate={kind: synthetic, count: 3}").data.calibrate.count == 3


def test_the_last_one_wins():
    config = load("target.isa=any", "target.isa=no-vnni")
    assert (config.target.isa, config.locate("target.isa")) == (Isa.NO_VNNI, "--set #2")


def test_a_setting_may_mend_what_is_wrong_in_the_file():
    assert problems(content=TEXT) == [
        "c.yaml:6:32: target.isa: found 'vnii'; allowed: any, vnni, no-vnni; did you mean 'vnni'?"
    ]
    assert load("target.isa=vnni", content=TEXT).target.isa is Isa.VNNI
    faulty = TEXT.replace(b"vnii", b"1e999")
    assert load("target.isa=vnni", content=faulty).target.isa is Isa.VNNI


def test_faults_come_together_with_those_of_the_file():
    found = problems(
        "targt.x=1",
        "model.inputs.3.name=x",
        "data.calibrate.seed=1",
        "target.backend=qnpack",
        "quantize.skip.0=a",
        "target.backend.x=3",
        "model.random_init=1e999",
        "quantize.weights={granularity: row}",
        content=TEXT,
    )
    assert found == [
        "c.yaml:6:32: target.isa: found 'vnii'; allowed: any, vnni, no-vnni; did you mean 'vnni'?",
        (
            "--set #1: targt: found an unknown key; allowed: version, model, target, quantize, data, train, extends;"
            " did you mean 'target'?"
        ),
        "--set #2: model.inputs.3: found no such item; allowed: 0, or the whole list model.inputs",
        (
            "--set #3: data.calibrate.seed: found an unknown key; allowed: batch_size, limit, select, kind, folder,"
            " glob, label, preprocess, augment; did you mean 'select'?"
        ),
        (
            "--set #4: target.backend: found 'qnpack'; allowed: fbgemm, x86, onednn, qnnpack, onnxruntime, xnnpack, "
            "portable, or a list of backends; did you mean 'qnnpack'?"
        ),
        (
            "--set #5: quantize.skip.0: found no list quantize.skip yet; allowed: the whole list, such as"
            " quantize.skip=[...]"
        ),
        "--set #6: target.backend.x: found 'qnpack' at target.backend; allowed: a mapping or a list",
        "--set #7: model.random_init: found inf; allowed: finite numbers",
        "--set #8: quantize.weights.granularity: found 'row'; allowed: auto, tensor, channel",
    ]


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ".a=1", ""])
def test_a_setting_without_a_key(text):
    assert problems(text) == [f"--set #1: found {text!r}; allowed: key=value, such as target.isa=vnni"]


@pytest.mark.parametrize("index", ["1", "-1", "01", "x", "9" * 5000, "\u0661"])
def test_an_item_that_is_not_there(index):
    (problem,) = problems(f"model.inputs.{index}.name=y")
    assert problem.startswith("--set #1: model.inputs.")
    assert problem.endswith(": found no such item; allowed: 0, or the whole list model.inputs")


def test_items_of_longer_and_of_empty_lists():
    assert load("quantize.skip=[a, b]", "quantize.skip.1=c").quantize.skip == ("a", "c")
    assert problems("quantize.skip=[a, b]", "quantize.skip.2=c") == [
        "--set #2: quantize.skip.2: found no such item; allowed: 0 to 1, or the whole list quantize.skip"
    ]
    assert problems("quantize.skip=[]", "quantize.skip.0=c") == [
        (
            "--set #2: quantize.skip.0: found no such item; allowed: no number, since the list is empty,"
            " or the whole list quantize.skip"
        )
    ]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("target.isa=[1", "--set #1:1:3: cannot read this YAML: "),
        ("target.isa=!!str 1", "--set #1:1:1: cannot read this YAML: found the tag !!str"),
        ("target.isa={a: 1, a: 2}", "--set #1: target.isa.a: found the key a second time"),
        ("extends=other.yaml", "--set #1: extends: found a setting; allowed: only in a file"),
        ("a" + ".a" * 40 + "=1", "--set #1: found a key of 41 parts; allowed: at most 32"),
    ],
)
def test_values_and_keys_that_cannot_be(text, start):
    assert problems(text)[0].startswith(start)


def test_what_a_setting_leaves_out_is_missing_there():
    assert problems("data.evaluate.kind=photos") == [
        "--set #1: data.evaluate.folder: missing; needed: folder of the pictures"
    ]


def test_settings_come_after_what_is_extended(tmp_path):
    (tmp_path / "base.yaml").write_bytes(RIGHT)
    (tmp_path / "top.yaml").write_text("version: 1\nextends: base.yaml\n")
    config = load_config(tmp_path / "top.yaml", ["target.isa=any", "model.inputs.0.name=y"])
    assert (config.target.isa, config.model.inputs[0].name) == (Isa.ANY, "y")
    assert config.locate("model.inputs.0.shape") == f"{tmp_path}/base.yaml:5:29"


def test_a_key_of_a_section_with_a_default_kind_is_enough():
    base = load("quantize.mode=qat", "data.train={kind: synthetic, count: 8}", "train.epochs=9").train
    settled = load(
        "quantize.mode=qat",
        "data.train={kind: synthetic, count: 8}",
        "train.epochs=9",
        "train.optimizer.lr=0.1",
        "train.schedule.warmup_epochs=2",
    ).train
    assert (settled.optimizer.kind, settled.optimizer.lr) == ("sgd", 0.1)
    assert settled.optimizer.momentum == base.optimizer.momentum
    assert (settled.schedule.kind, settled.schedule.warmup_epochs) == ("constant", 2)
    assert problems("train={epochs: 9, optimizer: {betas: [0.9, 0.99]}}")[0] == (
        "--set #1: train.optimizer.betas: found an unknown key; allowed: kind, lr, momentum, weight_decay, nesterov"
    )
