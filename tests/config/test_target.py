"""`target.backend`: one backend, several, or `portable`; what means the same is the same."""

import pytest

from qtool.backends.target import PORTABLE_BACKENDS
from qtool.config.load import config_from_mapping
from qtool.errors import ConfigError


def target_of(backend):
    return config_from_mapping({"target": {"backend": backend}})


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("x86", ("x86",)),
        (["x86"], ("x86",)),
        (["onednn", "fbgemm"], ("onednn", "fbgemm")),
        ("portable", PORTABLE_BACKENDS),
        (list(PORTABLE_BACKENDS), PORTABLE_BACKENDS),
    ],
)
def test_names(backend, names):
    assert target_of(backend).target.backends == names


def test_equal_targets_have_equal_digests():
    assert target_of("x86").digest() == target_of(["x86"]).digest()
    assert target_of("portable").digest() == target_of(list(PORTABLE_BACKENDS)).digest()
    assert target_of("portable").digest() != target_of(["x86", "fbgemm"]).digest()


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ([], r"found an empty list; allowed: fbgemm, .*, portable, or a list of backends"),
        (["x86", "qnpack"], r"found 'qnpack' in the list; did you mean 'qnnpack'\?; allowed: fbgemm"),
        (["x86", 3], r"found 3 in the list; allowed"),
        (["x86", "x86"], r"found 'x86' twice; allowed: each backend once"),
        (["x86", "portable"], r"allowed: portable alone"),
        (["x86", "xnnpack"], r"no model fits 'x86' and 'xnnpack' alike"),
        ({"x86": 1}, r"target\.backend: found a mapping; allowed"),
    ],
)
def test_what_is_no_target(backend, message):
    with pytest.raises(ConfigError, match=message):
        target_of(backend)
