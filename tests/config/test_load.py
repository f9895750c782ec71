from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qtool.backends.registry import backend_names
from qtool.config.file import MAX_BYTES
from qtool.config.load import changed, config_from_mapping, load_config, parse_config
from qtool.config.schema import QuantizeConfig
from qtool.errors import ConfigError, UsageError
from qtool.types import Isa, Reduce

TEXT = """\
version: 1
target: {backend: fbgemm}
quantize:
  skip: [classifier]
  overrides:
    - match: features.*
      reduce_range: never
data:
  calibrate: {kind: synthetic, count: 4}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "folder" / "c.yaml"
    path.parent.mkdir()
    path.write_text(TEXT, "utf-8")
    return path


def problems(function, *args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        function(*args, **kwargs)
    return list(caught.value.problems)


def test_relative_paths_start_from_the_folder_of_the_file_wherever_one_works(file, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("folder/c.yaml"))
    monkeypatch.chdir("/")
    assert config.base == file.parent


def test_a_missing_file_names_the_nearest(file):
    path = file.with_name("d.yaml")
    assert problems(load_config, path) == [f"{path}: found no such file; did you mean 'c.yaml'?"]


def test_a_missing_file_far_from_any_other(file):
    path = file.with_name("quite_another_name.yml")
    assert problems(load_config, path) == [f"{path}: found no such file"]


def test_a_missing_folder(tmp_path):
    path = tmp_path / "nowhere" / "c.yaml"
    assert problems(load_config, path) == [f"{path}: found no such file; nor is there a folder '{tmp_path}/nowhere'"]


def test_a_folder(tmp_path):
    assert problems(load_config, tmp_path) == [f"{tmp_path}: found a folder; allowed: a file"]


def test_a_file_as_a_folder(file):
    assert problems(load_config, file / "c.yaml") == [f"{file}/c.yaml: cannot be read: Not a directory"]


def test_an_unreadable_file(file, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read anything, so a mode would not do
    assert problems(load_config, file) == [f"{file}: cannot be read: Permission denied"]


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_file_name(name):
    assert "cannot be read" in problems(load_config, Path(name))[0]


@pytest.mark.parametrize("num_bytes", [MAX_BYTES, MAX_BYTES + 1])
def test_size_is_bounded(file, num_bytes):
    with file.open("a", encoding="utf-8") as stream:
        stream.write("#" * (num_bytes - len(TEXT)))
    if num_bytes <= MAX_BYTES:
        assert load_config(file).version == 1
    else:
        assert problems(load_config, file) == [
            f"{file}: found more than 262144 bytes; allowed: a config, which is YAML text"
        ]


def test_an_endless_file_is_not_read_to_its_end():
    assert "more than" in problems(load_config, Path("/dev/zero"))[0]


def test_a_model_file_in_place_of_a_config(tmp_path):
    path = tmp_path / "int8.pt2"
    path.write_bytes(b"PK\x03\x04\x00\xfe")
    assert problems(load_config, path)[0].startswith(f"{path}:1:")


def test_locate(file):
    config = load_config(file)
    places = {
        "quantize.overrides.0.match": "6:14",
        "quantize.skip.0": "4:10",
        "target": "2:9",
        "target.isa": "2:1",  # not there: the key it would stand under
        "quantize.overrides.0.observer": "6:7",  # an item of a list has no key
        "quantize.overrides.7.match": "5:3",
        "model.inputs.0": "1:1",
        "": "1:1",
    }
    assert {key: config.locate(key) for key in places} == {key: f"{file}:{place}" for key, place in places.items()}
    assert config.quantize.locate("quantize.skip") == f"{file}:4:9"


def test_faults_of_the_text_and_of_the_schema_come_together_in_the_order_of_the_text(tmp_path):
    content = b"versoin: 1\ntarget: {backend: a, backend: b}\n1: 2\nmodel: {checkpoint: 1e999}\n"
    found = problems(parse_config, content, name="c.yaml", base=tmp_path)
    places = [problem.split(" ")[0] for problem in found]
    assert places == [f"c.yaml:{at}:" for at in ["1:1", "1:1", "2:19", "2:22", "3:1", "4:1", "4:1", "4:1", "4:21"]]


@pytest.mark.parametrize("kind", [UsageError, ValueError])
def test_a_config_error_is_a_usage_error_and_a_value_error(kind):
    with pytest.raises(kind, match="qnnpack"):
        config_from_mapping({"target": {"backend": "qnpack"}})


def test_a_mapping_has_the_same_keys_and_lists_tuples_paths_enums_and_numpy_numbers_do():
    config = config_from_mapping(
        {
            "target": {"backend": "fbgemm", "isa": Isa.VNNI},
            "quantize": {
                "skip": ("a", "b"),
                "reduce_range": Reduce.NEVER,
                "overrides": [{"match": "c", "dtype": "float"}],
            },
            "data": {
                "calibrate": {
                    "kind": "photos",
                    "folder": Path("photos"),
                    "batch_size": np.int64(4),
                    "preprocess": {"mean": (np.float32(0.5),), "std": [1]},
                }
            },
        }
    )
    assert config.target.isa is Isa.VNNI
    assert config.quantize.skip == ("a", "b")
    assert config.quantize.reduce_range is Reduce.NEVER
    assert (config.data.calibrate.folder, config.data.calibrate.batch_size) == ("photos", 4)
    assert config.data.calibrate.preprocess.mean == (0.5,)
    assert config.base == Path.cwd()
    assert config.locate("target.isa") == "config"


def test_faults_of_a_mapping_have_key_paths_only():
    mapping = {
        "target": {"backend": "qnpack", 3: 4},
        "quantize": {"skip": [object(), b"a"], "mdoe": "ptq"},
        "model": {"factory": "a:b", "random_init": True, "inputs": [{"name": "x", "shape": [1], "dtype": np.float32}]},
        "data": {"calibrate": {"kind": "synthetic", "count": 1 << 70, "seed": float("nan")}},
    }
    keys = ", ".join(QuantizeConfig.model_fields)
    plain = "allowed: text, numbers, true/false, None, mappings, lists and tuples"
    assert problems(config_from_mapping, mapping, where="prepare(config=...)") == [
        f"prepare(config=...): {problem}"
        for problem in (
            "target: found the key 3; allowed: text",
            f"quantize.skip.0: found a value of type object; {plain}",
            f"quantize.skip.1: found a value of type bytes; {plain}",
            f"model.inputs.0.dtype: found a value of type type; {plain}",
            "data.calibrate.count: found an integer of more than 64 bits; allowed: integers within 64 bits",
            "data.calibrate.seed: found nan; allowed: finite numbers",
            (
                f"target.backend: found 'qnpack'; allowed: {', '.join(backend_names())}, portable, or a list of "
                "backends; did you mean 'qnnpack'?"
            ),
            f"quantize.mdoe: found an unknown key; allowed: {keys}; did you mean 'mode'?",
        )
    ]


def test_a_mapping_that_contains_itself():
    mapping = {"target": {"backend": "fbgemm"}}
    mapping["quantize"] = mapping
    assert any("nested more than" in problem for problem in problems(config_from_mapping, mapping))


def test_a_mapping_may_leave_the_version_out_but_not_name_another():
    target = {"target": {"backend": "fbgemm"}}
    assert config_from_mapping(target).version == 1
    assert problems(config_from_mapping, {"version": 2, **target}) == ["config: version: found 2; allowed: 1"]


def test_changed_is_validated_and_keeps_the_rest(file):
    config = load_config(file)
    new = changed(
        config, {"target.backend": "qnnpack", "data.calibrate.select.count": 2, "quantize.skip.0": "a"}, "--set"
    )
    assert (new.target.backend, new.data.calibrate.select.count, new.quantize.skip) == ("qnnpack", 2, ("a",))
    assert (new.base, new.locate("target")) == (config.base, config.locate("target"))
    assert new.quantize.overrides == config.quantize.overrides
    assert config.target.backend == "fbgemm"
    assert problems(changed, config, {"target.backend": "qnpack"}, "--backend")[0].startswith(
        "--backend: target.backend: found"
    )


@pytest.mark.parametrize("key", ["version.x", "quantize.skip.1", "quantize.skip.x", "quantize.overrides.0.match.x"])
def test_changed_refuses_a_key_that_cannot_be(file, key):
    assert problems(changed, load_config(file), {key: 1}, "--set")[0].startswith(f"--set: {key}: found no ")


def test_loading_a_config_imports_neither_torch_nor_numpy_nor_what_it_names():
    configs = Path(__file__).parents[2] / "configs"
    code = (
        "import sys; from pathlib import Path; from qtool.config.load import load_config\n"
        "from qtool.config.select import settings_for\n"
        f"load_config(Path({str(configs / 'efficientnet-lite0-fbgemm.yaml')!r}))\n"
        "heavy = {'torch', 'torchvision', 'numpy', 'PIL', 'foolbox', 'efficientnet_lite_pytorch'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(configs.parent)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
