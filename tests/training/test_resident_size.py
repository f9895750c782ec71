"""Peaks: what was freed before the end counts, by the kernel's record and by the sampling thread alike."""

import time

import pytest
import torch

from qtool.errors import MissingDependencyError
from qtool.training import malloc, resident_size
from qtool.training.malloc import Malloc, has_glibc, malloc_in_words, set_malloc
from qtool.training.resident_size import growth_of, peak_over_base, peak_source

MIB = 2**20


@pytest.fixture
def without_record(monkeypatch, tmp_path):
    monkeypatch.setattr(resident_size, "_RESET", tmp_path / "missing" / "clear_refs")


def peak_of_64_mib():
    set_malloc(Malloc.RETURN)
    with peak_over_base() as peak:
        tensor = torch.ones(16, MIB)
        time.sleep(0.1)
        del tensor
    return peak.num_bytes / MIB


def test_peak_of_what_is_freed_again():
    assert peak_of_64_mib() == pytest.approx(64, rel=0.1)


def test_peak_by_samples(without_record):
    assert peak_source() == "sampled every millisecond"
    assert peak_of_64_mib() == pytest.approx(64, rel=0.1)


def test_a_peak_before_the_block_does_not_count():
    set_malloc(Malloc.RETURN)
    torch.ones(64, MIB)
    with peak_over_base() as peak:
        torch.ones(4, MIB)
    assert peak.num_bytes / MIB == pytest.approx(16, rel=0.3)


def test_growth_is_of_what_stays():
    set_malloc(Malloc.RETURN)

    def work():
        torch.ones(64, MIB)
        return torch.ones(16, MIB)

    assert growth_of(work) / MIB == pytest.approx(64, rel=0.1)


def test_the_setting_is_said_with_what_the_caller_set(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    words = malloc_in_words(Malloc.RETURN)
    assert "M_MMAP_THRESHOLD and M_TRIM_THRESHOLD 1 MiB" in words
    assert "MALLOC_ARENA_MAX=1" in words


@pytest.mark.parametrize("setting", [Malloc.KEEP, Malloc.RETURN])
def test_glibc_takes_every_setting(setting):
    assert has_glibc()
    set_malloc(setting)


def test_another_c_library_has_no_settings(monkeypatch):
    monkeypatch.setattr(malloc, "has_glibc", lambda: False)
    with pytest.raises(MissingDependencyError, match="only be set on glibc"):
        set_malloc(Malloc.RETURN)
