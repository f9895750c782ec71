from __future__ import annotations

from pathlib import Path

import pytest

from qtool.config.extends import MAX_EXTENDS, merged
from qtool.config.load import config_from_mapping, load_config, parse_config
from qtool.config.source import parse_yaml
from qtool.errors import ConfigError

BASE = """\
version: 1
model:
  factory: nets:small
  kwargs: {width: 2, depth: 3}
  checkpoint: w.pth
  inputs:
    - {name: x, shape: [batch, 3, 8, 8]}
target: {backend: fbgemm, isa: vnni}
quantize: {skip: [a, b]}
data:
  calibrate: {kind: photos, folder: photos, batch_size: 4}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes files, and returns the problems of the first, or its config."""
    monkeypatch.chdir(tmp_path)

    def load(**files):
        for name, text in files.items():
            path = Path(name.replace("__", "/") + ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return load_config(Path(next(iter(files)) + ".yaml"))

    return load


def problems(function, *args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        function(*args, **kwargs)
    return list(caught.value.problems)


def test_mappings_merge_and_all_else_replaces(write):
    top = "version: 1\nextends: base.yaml\nmodel: {kwargs: {width: 4}}\ntarget: {isa: any}\nquantize: {skip: [c]}\n"
    config = write(top=top, base=BASE)
    assert config.model.kwargs == {"width": 4, "depth": 3}
    assert (config.target.backend, config.target.isa.value) == ("fbgemm", "any")
    assert config.quantize.skip == ("c",)
    assert config.model.inputs[0].shape == ("batch", 3, 8, 8)


def test_every_value_knows_the_file_it_comes_from(write):
    top = "version: 1\nextends: sub/base.yaml\ntarget: {isa: any}\nquantize: {skip: [c]}\n"
    config = write(top=top, sub__base=BASE)
    places = {
        "target.isa": "top.yaml:3:15",
        "target.backend": "sub/base.yaml:8:19",
        "target": "top.yaml:3:9",  # both have it; the one on top says it last
        "quantize.skip.0": "top.yaml:4:19",
        "quantize.skip.1": "top.yaml:4:12",  # gone with the list it was in: the key of the new list
        "model.inputs.0.shape.1": "sub/base.yaml:7:32",
        "version": "top.yaml:1:10",
        "": "top.yaml:1:1",
    }
    assert {key: config.locate(key) for key in places} == places
    assert config.document.bases == (Path.cwd() / "sub/base.yaml",)


def test_faults_are_located_in_the_file_that_holds_them_after_merging(write):
    top = "version: 1\nextends: sub/base.yaml\nmodel: {inputs: [{name: x, shape: [0]}]}\nquantise: {}\n"
    base = BASE.replace("fbgemm", "qnpack").replace("{width: 2", "{2: 2").replace("photos, batch", "1e999, batch")
    assert problems(write, top=top, sub__base=base) == [
        (
            "top.yaml:3:36: model.inputs.0.shape.0: found 0; allowed: a size of at least 1, or a name such as batch"
            " for a size that varies"
        ),
        (
            "top.yaml:4:1: quantise: found an unknown key; allowed: version, model, target, quantize, data, train,"
            " extends; did you mean 'quantize'?"
        ),
        "sub/base.yaml:4:12: model.kwargs: found the key 2; allowed: text, so write it in quotes",
        (
            "sub/base.yaml:8:19: target.backend: found 'qnpack'; allowed: fbgemm, x86, onednn, qnnpack, onnxruntime,"
            " xnnpack, portable, or a list of backends; did you mean 'qnnpack'?"
        ),
        "sub/base.yaml:11:37: data.calibrate.folder: found inf; allowed: finite numbers",
    ]


def test_a_fault_that_is_replaced_is_none(write):
    top = "version: 1\nextends: base.yaml\ntarget: {backend: fbgemm}\n"
    assert write(top=top, base=BASE.replace("fbgemm", "qnpack")).target.backend == "fbgemm"


def test_what_neither_file_says_is_missing_from_the_file_that_was_named(write):
    top = "version: 1\nextends: base.yaml\n"
    assert problems(write, top=top, base="version: 1\n") == [
        "top.yaml:1:1: target: missing; needed: the machine the model is made for"
    ]


def test_relative_paths_start_from_the_file_that_says_them(write, tmp_path):
    files = {
        "top": "version: 1\nextends: sub/middle.yaml\ndata: {evaluate: {kind: photos, folder: mine}}\n",
        "sub__middle": "version: 1\nextends: ../other/base.yaml\n",
        "other__base": BASE,
    }
    config = write(**files)
    assert (config.base / config.model.checkpoint).resolve() == tmp_path / "other/w.pth"
    assert (config.base / config.data.calibrate.folder).resolve() == tmp_path / "other/photos"
    assert config.data.evaluate.folder == "mine"


@pytest.mark.parametrize("path", ["/data/w.pth", "package:numpy/w.pth"])
def test_other_paths_stay_as_they_are(write, path):
    config = write(top="version: 1\nextends: sub/base.yaml\n", sub__base=BASE.replace("w.pth", path))
    assert config.model.checkpoint == path


def test_an_absolute_name(write, tmp_path):
    config = write(top=f"version: 1\nextends: {tmp_path}/sub/base.yaml\n", sub__base=BASE)
    assert config.locate("target.backend") == f"{tmp_path}/sub/base.yaml:8:19"
    assert config.model.checkpoint == f"{tmp_path}/sub/w.pth"


def test_another_kind_of_data_replaces_the_whole_mapping(write):
    top = "version: 1\nextends: base.yaml\ndata: {calibrate: {kind: synthetic, count: 3}}\n"
    calibrate = write(top=top, base=BASE).data.calibrate
    assert (calibrate.kind, calibrate.count, calibrate.batch_size) == ("synthetic", 3, 10)


def test_the_same_kind_merges(write):
    top = "version: 1\nextends: base.yaml\ndata: {calibrate: {kind: photos, glob: '*.png'}}\n"
    calibrate = write(top=top, base=BASE).data.calibrate
    assert (calibrate.folder, calibrate.glob) == ("photos", "*.png")


def test_nothing_takes_a_value_back(write):
    top = "version: 1\nextends: base.yaml\nmodel: {checkpoint: null, random_init: true}\ndata: {calibrate: null}\n"
    config = write(top=top, base=BASE)
    assert (config.model.checkpoint, config.data.calibrate) == (None, None)


def test_the_digest_is_that_of_the_same_config_in_one_file(write):
    merged_one = write(top="version: 1\nextends: base.yaml\ntarget: {isa: any}\n", base=BASE)
    assert merged_one.digest() == write(whole=BASE.replace("vnni", "any")).digest()


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("", "sub/base.yaml:1:1: version: missing; needed: 1, the version of this format, in every file"),
        ("version: 2\n", "sub/base.yaml:1:10: version: found 2; allowed: 1"),
        ("version: true\n", "sub/base.yaml:1:10: version: found true; allowed: 1"),
        ("version: '1'\n", "sub/base.yaml:1:10: version: found '1'; allowed: 1"),
    ],
)
def test_version_must_be_right_in_a_file_that_is_extended(write, first, problem):
    base = first + "target: {backend: fbgemm}\n"
    assert problems(write, top="version: 1\nextends: sub/base.yaml\n", sub__base=base) == [problem]


def test_version_must_be_in_the_file_that_extends(write):
    found = problems(write, top="extends: base.yaml\n", base=BASE)
    assert found == ["top.yaml:1:1: version: missing; needed: 1, the version of this format"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("[a.yaml]", "found a list; allowed: the path of another config file"),
        ("", "found nothing; allowed: the path of another config file"),
        ("''", "found ''; allowed: the path of another config file"),
        ("bse.yaml", "'bse.yaml': found no such file; did you mean 'base.yaml'?"),
        ("nowhere/b.yaml", "'nowhere/b.yaml': found no such file; nor is there a folder '{folder}/nowhere'"),
        (".", "'.': found a folder; allowed: a file"),
    ],
)
def test_a_name_that_leads_nowhere_is_located(write, value, problem, tmp_path):
    found = problems(write, top=f"version: 1\nextends: {value}\n", base=BASE)
    place = "top.yaml:2:10" if value else "top.yaml:2:9"
    assert found == [f"{place}: extends: {problem.format(folder=tmp_path)}"]


def test_a_base_that_is_no_mapping(write):
    assert problems(write, top="version: 1\nextends: base.yaml\n", base="- 1\n") == [
        "base.yaml:1:1: found a list; allowed: a mapping, the config that another one extends"
    ]


def test_a_base_that_is_no_yaml_is_located_in_itself(write):
    assert problems(write, top="version: 1\nextends: base.yaml\n", base="a: [\n")[0].startswith(
        "base.yaml:2:1: cannot read this YAML"
    )


def test_a_cycle(write):
    files = {
        "a": "version: 1\nextends: sub/b.yaml\n",
        "sub__b": "version: 1\nextends: c.yaml\n",
        "sub__c": "version: 1\nextends: ./b.yaml\n",
    }
    assert problems(write, **files) == [
        (
            "sub/c.yaml:2:10: extends: found a cycle: sub/b.yaml extends sub/c.yaml extends sub/b.yaml;"
            " allowed: a chain that ends"
        )
    ]


def test_a_file_that_extends_itself_by_a_link(write, tmp_path):
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    assert problems(write, a="version: 1\nextends: link.yaml\n") == [
        "a.yaml:2:10: extends: found a cycle: a.yaml extends link.yaml; allowed: a chain that ends"
    ]


def test_links_that_lead_in_a_circle(write, tmp_path):
    (tmp_path / "link.yaml").symlink_to("link.yaml")
    assert problems(write, a="version: 1\nextends: link.yaml\n")[0].startswith(
        "a.yaml:2:10: extends: 'link.yaml': cannot be read: "
    )


@pytest.mark.parametrize("length", [MAX_EXTENDS, MAX_EXTENDS + 1])
def test_the_chain_is_bounded(write, length):
    files = {f"f{n}": f"version: 1\nextends: f{n + 1}.yaml\n" for n in range(length)} | {f"f{length}": BASE}
    if length <= MAX_EXTENDS:
        config = write(**files)
        assert config.locate("target.isa") == f"f{length}.yaml:8:32"
        assert [path.name for path in config.document.bases] == [f"f{n}.yaml" for n in range(1, length + 1)]
    else:
        assert problems(write, **files) == ["f8.yaml:2:10: extends: found a chain of more than 8 extends; allowed: 8"]


def test_a_config_from_a_stream_extends_from_its_base_folder(write, tmp_path):
    write(base=BASE)
    config = parse_config(b"version: 1\nextends: base.yaml\n", name="stdin", base=tmp_path)
    assert (config.locate("version"), config.locate("target.isa")) == ("stdin:1:10", "base.yaml:8:32")


def test_a_mapping_cannot_extend():
    keys = "version, model, target, quantize, data, train"
    assert problems(config_from_mapping, {"target": {"backend": "x86"}, "extends": "base.yaml"}) == [
        f"config: extends: found an unknown key; allowed: {keys}"
    ]


def test_merged_keeps_no_mark_of_what_is_gone():
    result = merged(parse_yaml("a: [1, 2]\nb: {c: 1}\n", "base"), parse_yaml("a: [3]\nb: {d: 2}\n", "top"))
    assert result.tree == {"a": [3], "b": {"c": 1, "d": 2}}
    assert set(result.marks) == {(), ("a",), ("a", 0), ("b",), ("b", "c"), ("b", "d")}


def test_the_example_in_the_reference(write, tmp_path):
    root = Path(__file__).parents[2]
    page = (root / "docs/config.md").read_text("utf-8")
    text = page.partition("# lite0-vnni.yaml\n")[2].partition("```")[0]
    (tmp_path / "configs").symlink_to(root / "configs")
    config = write(my=text.replace("../configs", "configs"))
    assert (config.target.isa.value, config.quantize.skip, config.model.inputs[0].name) == ("vnni", ("_fc",), "image")
