"""The folders good/ and bad/ are the tests: drop a file in, with what is expected of it beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qtool.config.load import config_from_mapping, load_config
from qtool.errors import EXIT_USAGE, ConfigError

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").glob("*.yaml"))
BAD = sorted((HERE / "bad").glob("*.yaml"))
CONFIGS = sorted((HERE.parents[1] / "configs").glob("*.yaml"))


def names(paths):
    return [path.stem for path in paths]


@pytest.mark.parametrize("path", GOOD, ids=names(GOOD))
def test_good(path):
    config = load_config(path)
    for line in path.with_suffix(".expected").read_text("utf-8").splitlines():
        key, _, value = line.partition(": ")
        found = config.model_dump(mode="json")
        for part in key.split("."):
            found = found[int(part) if isinstance(found, list) else part]
        assert json.dumps(found, sort_keys=True) == json.dumps(json.loads(value), sort_keys=True), key


@pytest.mark.parametrize("path", BAD, ids=names(BAD))
def test_bad(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with pytest.raises(ConfigError) as caught:
        load_config(Path(path.name))
    assert str(caught.value) == path.with_suffix(".expected").read_text("utf-8").removesuffix("\n")
    assert caught.value.exit_code == EXIT_USAGE


def test_every_example_is_a_pair():
    for folder in ("good", "bad"):
        stems = {suffix: {p.stem for p in (HERE / folder).glob(f"*{suffix}")} for suffix in (".yaml", ".expected")}
        assert stems[".yaml"] == stems[".expected"]
        assert len(stems[".yaml"]) > 5


@pytest.mark.parametrize("path", CONFIGS, ids=names(CONFIGS))
def test_shipped_config(path):
    config = load_config(path)
    model, _, rest = path.stem.rpartition(f"-{config.target.backend}")
    assert model, "a config is named <model>-<backend>"
    assert rest in ("", "-tensor", "-qat")
    assert (rest == "-qat") == (config.train is not None)
    assert config.model
    assert config.data.calibrate
    assert config.data.evaluate
    again = config_from_mapping(json.loads(config.to_json()))
    assert again.digest() == config.digest()


@pytest.mark.parametrize("backend", ["fbgemm", "x86", "onednn", "qnnpack"])
@pytest.mark.parametrize("model", ["efficientnet-lite0", "mobilenet-v2", "resnet18"])
def test_every_shown_model_has_a_config_per_engine(model, backend):
    assert f"{model}-{backend}" in names(CONFIGS)


def test_shipped_configs_calibrate_and_evaluate_on_different_samples():
    for path in CONFIGS:
        data = load_config(path).data
        assert data.calibrate != data.evaluate, path.name
        if data.calibrate.kind == "photos":
            assert data.evaluate.select.complement
            assert data.evaluate.select == type(data.evaluate.select)(
                **dict(data.calibrate.select) | {"complement": True}
            )
