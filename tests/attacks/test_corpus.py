"""The corpus, given to the real `qtool inspect`: nothing runs, nothing is written, the verdict is right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.attacks import executorch_files, onnx_models, pickles, safetensors_files, scripts, zips
from tests.attacks.run_inspect import MAX_BYTES
from tests.cli.process import ROOT, environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attacks.attack import Attack

ATTACKS = [
    attack
    for module in (zips, pickles, scripts, onnx_models, safetensors_files, executorch_files)
    for attack in module.ATTACKS
]
QUICK = [attack for attack in ATTACKS if not attack.slow]
SLOW = [attack for attack in ATTACKS if attack.slow]
MAX_SECONDS = 2


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what lies in a folder and below: size and time of each."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path.relative_to(folder)): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def outcomes_of(attacks: list[Attack], folder: Path) -> dict[str, dict[str, object]]:
    """Return what `qtool inspect` came to with each, in a process of its own, and what lay there before and after."""
    jobs, before = [], {}
    for attack in attacks:
        path = attack.write(folder / attack.slug)
        jobs.append({"lines": [["inspect", str(path)]], "folder": str(path.parent)})
        before[attack.slug] = listing(folder / attack.slug)
    (folder / "home").mkdir()
    (folder / "jobs").write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "tests.attacks.run_inspect", folder / "jobs", folder / "results"]
    elsewhere = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "home")}
    subprocess.run(command, cwd=ROOT, env=environment(**elsewhere), check=True, timeout=600)
    found = json.loads((folder / "results").read_text())
    assert listing(folder / "home") == {}
    return {
        attack.slug: {**outcome, "before": before[attack.slug], "after": listing(folder / attack.slug)}
        for attack, outcome in zip(attacks, found, strict=True)
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    return outcomes_of(QUICK, tmp_path_factory.mktemp("quick"))


@pytest.fixture(scope="module")
def slow_outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    return outcomes_of(SLOW, tmp_path_factory.mktemp("slow"))


def test_every_attack_has_a_name_of_its_own():
    assert len({attack.slug for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("attack", QUICK, ids=lambda attack: attack.slug)
def test_the_file_is_seen_through_and_nothing_happens(attack, outcomes):
    check(attack, outcomes[attack.slug])


@pytest.mark.slow
@pytest.mark.parametrize("attack", SLOW, ids=lambda attack: attack.slug)
def test_a_large_file_is_seen_through_and_nothing_happens(attack, slow_outcomes):
    check(attack, slow_outcomes[attack.slug])


def check(attack: Attack, outcome: dict[str, object]) -> None:
    assert outcome.get("death") is None
    assert (outcome["forbidden"], outcome["after"]) == ([], outcome["before"])
    (line,) = outcome["lines"]
    said = line["printed"].replace(attack.slug, "FILE")
    assert line["status"] == attack.status, said
    assert re.search(attack.says, said), said
    assert "Warning" not in said
    assert all(text.isprintable() for text in said.split("\n"))
    assert line["seconds"] < MAX_SECONDS
    assert outcome["peak_bytes"] < MAX_BYTES
