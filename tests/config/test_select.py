from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.config.load import config_from_mapping, parse_config
from qtool.config.select import DEFAULT_ORIGIN, NodeSettings, matches, settings_for, unmatched_patterns
from qtool.types import Op, Reduce

NODES = [
    ("features.0.0", Op.CONV2D),
    ("features.1.conv", Op.CONV2D),
    ("features.1.add", Op.ADD),
    ("features.1.relu", None),
    ("features.1.relu#2", None),
    ("down.0.time_embed.proj", Op.LINEAR),
    ("classifier.1", Op.LINEAR),
]


def quantize(**settings):
    return config_from_mapping({"target": {"backend": "fbgemm"}, "quantize": settings}).quantize


def skipped(section):
    return [name for name, op in NODES if settings_for(section, name, op).skipped]


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("classifier", "classifier.1", True),
        ("classifier", "classifier", True),
        ("classifier", "classifiers.1", False),
        ("classifier.1", "classifier", False),
        ("classifier.1", "classifier.10", False),
        ("1", "classifier.1", False),
        ("*", "anything.at.all", True),
        ("features.*.conv", "features.0.1.conv", True),
        ("features.*.conv", "features.0.conv.1", True),
        ("features.?", "features.3.conv", True),
        ("features.[12]", "features.2", True),
        ("features.[!12]", "features.2", False),
        ("Features.2", "features.2", False),
        ("relu", "relu#2", True),
        ("relu#2", "relu#2", True),
        ("relu#2", "relu", False),
        ("relu#1", "relu", True),
        ("relu#1", "relu#2", False),
        ("block", "block.relu#2", True),
        ("block#2", "block.relu#2", False),
        ("*#2", "block.relu#2", True),
    ],
)
def test_matching(pattern, name, is_match):
    assert matches(pattern, name) is is_match


PARTS = st.lists(st.text("abc012", min_size=1, max_size=3), min_size=1, max_size=4)


@given(PARTS, st.integers(1, 3), st.data())
def test_every_node_matches_its_name_its_call_and_every_path_above(parts, call, data):
    name = ".".join(parts) + (f"#{call}" if call > 1 else "")
    above = ".".join(parts[: data.draw(st.integers(1, len(parts)))])
    assert matches(name, name)
    assert matches(above, name)
    assert matches(f"{'.'.join(parts)}#{call}", name)
    assert not matches(above + "x", name)


def test_defaults():
    section = quantize(reduce_range="never", activations={"observer": "mse"}, weights={"granularity": "tensor"})
    assert settings_for(section, "a", Op.ADD) == NodeSettings(
        dtype=None,
        observer="mse",
        granularity="tensor",
        reduce_range=Reduce.NEVER,
        skipped=False,
        origin=DEFAULT_ORIGIN,
    )


def test_of_several_overrides_the_last_match_wins_for_each_setting():
    section = quantize(
        overrides=[
            {"match": "*", "observer": "minmax", "granularity": "tensor", "dtype": "float"},
            {"match": "a.*", "observer": "mse", "reduce_range": "always"},
            {"match": "a.b", "dtype": "int8"},
            {"match": "c", "observer": "histogram"},
        ]
    )
    assert settings_for(section, "a.b", Op.CONV2D) == NodeSettings(
        dtype="int8", observer="mse", granularity="tensor", reduce_range=Reduce.ALWAYS, skipped=False,
        origin="quantize.overrides.2",
    )  # fmt: skip
    assert settings_for(section, "z", Op.CONV2D).observer == "minmax"
    assert settings_for(section, "z", Op.CONV2D).origin == "quantize.overrides.0"


def test_an_override_for_an_op_leaves_other_ops_alone():
    section = quantize(overrides=[{"match": "*", "op": "conv2d", "observer": "mse"}])
    assert settings_for(section, "a", Op.CONV2D).observer == "mse"
    assert settings_for(section, "a", Op.LINEAR).observer == "auto"
    assert settings_for(section, "a", None).observer == "auto"


def test_explicit_beats_default_in_both_directions():
    section = quantize(reduce_range="always", overrides=[{"match": "a", "reduce_range": "auto", "granularity": "auto"}])
    assert settings_for(section, "a", Op.CONV2D).reduce_range is Reduce.AUTO
    assert settings_for(section, "b", Op.CONV2D).reduce_range is Reduce.ALWAYS


def test_skip_is_float_whatever_else_is_set_and_says_which_entry_did_it():
    section = quantize(skip=["x", "a"], overrides=[{"match": "a.b", "observer": "mse"}])
    settings = settings_for(section, "a.b", Op.CONV2D)
    assert (settings.dtype, settings.skipped, settings.observer) == ("float", True, "mse")
    assert settings.origin == "quantize.skip.1"


def test_an_override_with_a_dtype_takes_a_node_out_of_skip():
    section = quantize(skip=["a"], overrides=[{"match": "a.b", "dtype": "int8"}])
    assert settings_for(section, "a.b", Op.CONV2D).dtype == "int8"
    assert not settings_for(section, "a.b", Op.CONV2D).skipped
    assert settings_for(section, "a.c", Op.CONV2D).skipped


def test_case_52_a_skipped_name_or_pattern_is_kept_although_a_default_exists():
    default = {"observer": "histogram"}
    assert skipped(quantize(activations=default, skip=["features.1.conv"])) == ["features.1.conv"]
    assert skipped(quantize(activations=default, skip=["*time_embed*"])) == ["down.0.time_embed.proj"]
    assert skipped(quantize(activations=default, skip=["features.1.relu#2"])) == ["features.1.relu#2"]
    everything = quantize(
        skip=["classifier"], overrides=[{"match": "*", "observer": "minmax", "granularity": "channel"}]
    )
    assert skipped(everything) == ["classifier.1"]


def test_case_52_an_unknown_name_is_an_error_that_lists_close_matches():
    section = quantize(skip=["clasifier", "features"], overrides=[{"match": "features.1.covn", "dtype": "float"}])
    none = "which matches none of the 7 nodes; did you mean"
    near = "'features.1.conv' or 'features.1' or 'features.1.add'"
    assert unmatched_patterns(section, NODES) == [
        f"config: quantize.skip.0: found 'clasifier', {none} 'classifier' or 'classifier.1'?",
        f"config: quantize.overrides.0.match: found 'features.1.covn', {none} {near}?",
    ]


def test_case_52_a_regular_expression_is_told_from_a_pattern():
    [problem] = unmatched_patterns(quantize(skip=[".*time_embed.*"]), NODES)
    assert "which matches none of the 7 nodes; patterns are as for file names, not regular expressions" in problem


def test_case_52_an_unknown_name_is_located_in_its_file():
    text = "version: 1\ntarget: {backend: fbgemm}\nquantize:\n  skip:\n    - features\n    - 'x.y'\n"
    section = parse_config(text.encode(), name="c.yaml", base=Path()).quantize
    [problem] = unmatched_patterns(section, NODES)
    assert problem.startswith("c.yaml:6:7: quantize.skip.1: found 'x.y', which matches none")


def test_an_override_whose_op_no_matched_node_has_is_an_error():
    section = quantize(
        overrides=[
            {"match": "features.1", "op": "linear", "dtype": "float"},
            {"match": "features.1", "op": "add", "dtype": "float"},
        ]
    )
    found = "found 'features.1', which matches 4 nodes, none of them linear"
    allowed = "allowed: add, conv2d, ops that cannot run in int8"
    assert unmatched_patterns(section, NODES) == [f"config: quantize.overrides.0.match: {found}; {allowed}"]


def test_a_model_without_nodes_matches_nothing():
    assert len(unmatched_patterns(quantize(skip=["*"]), [])) == 1
    assert unmatched_patterns(quantize(), []) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("granularity", "tensor"), ("granularity", "channel"), ("reduce_range", "never"), ("reduce_range", "always")],
)
def test_a_setting_of_weights_for_nodes_without_is_an_error(key, value):
    idle = {"match": "features.1.*", "op": "add", key: value}
    [problem] = unmatched_patterns(quantize(overrides=[idle]), NODES)
    assert problem == (
        f"config: quantize.overrides.0.{key}: found '{value}', but none of the 1 nodes it is for is a "
        "conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, linear; it would do nothing"
    )
    mixed = {"match": "features.1", key: value}
    assert unmatched_patterns(quantize(overrides=[mixed]), NODES) == []
    assert unmatched_patterns(quantize(overrides=[{**idle, key: None, "observer": "mse"}]), NODES) == []
