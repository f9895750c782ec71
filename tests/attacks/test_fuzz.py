"""Whatever is changed in a valid file of any format: inspecting it ends in a report, or in a FileFormatError."""

from __future__ import annotations

import json
import signal
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qtool.errors import FileFormatError
from qtool.inspection.inspect import inspect_file
from qtool.report.json_report import to_json
from qtool.report.text import render_text
from tests.attacks.mutations import mutations
from tests.attacks.samples import SAMPLES, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

MUTATIONS = 5000 if settings.get_current_profile_name() == "fuzz" else 200
"""Of each format."""
MAX_SECONDS = 2


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise from within if it takes longer: a reader in a loop would never come back."""

    def late(*_: object) -> None:
        raise TimeoutError

    usual = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, usual)


def look_at(data: bytes) -> None:
    """Inspect it, as JSON in one of four cases and as text in one of sixteen: these take longer than reading."""
    case = zlib.crc32(data) % 16
    with at_most(MAX_SECONDS):
        try:
            report = inspect_file(data, backend="fbgemm", isa="no-vnni")
        except FileFormatError:
            return
        if case < 4:
            assert json.loads(to_json(report))["outcome"] == report.outcome
        if case == 0:
            assert all(line.isprintable() for line in render_text(report, verbose=True).split("\n"))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_valid_file_is_read(name):
    inspect_file(sample(name))


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=MUTATIONS, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_changed_file_is_read_or_refused(name, data):
    look_at(data.draw(mutations(sample(name))))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_cut_at_every_hundredth_is_read_or_refused(name):
    whole = sample(name)
    for percent in range(100):
        look_at(whole[: len(whole) * percent // 100])
