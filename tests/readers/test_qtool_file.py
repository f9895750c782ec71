import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qtool.errors import FileFormatError
from qtool.readers.facts import FileKind, StampProblemKind
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.readers.risks import RiskKind
from qtool.stamp.digest import content_digest
from qtool.stamp.plan_json import plan_from_json
from qtool.stamp.schema import STAMP_ENTRY, to_json
from tests.readers.sample_files import file_bytes, sample_file, sample_plan, sample_stamp, zip_bytes


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return two files that torch itself wrote: plain, and with sample inputs."""
    folder = tmp_path_factory.mktemp("programs")
    paths = [folder / "plain.pt2", folder / "inputs.pt2"]
    script = Path(__file__).with_name("export_program.py")
    subprocess.run([sys.executable, script, *paths], check=True, capture_output=True)
    return paths


def test_a_file_that_torch_wrote_is_read(programs):
    file = read_qtool_file(programs[0])
    assert (file.kind, file.config_json, file.risks) == (FileKind.PT2, "{}", ())
    assert file.stamp_problem.kind is StampProblemKind.MISSING


def test_sample_inputs_of_torch_are_a_risk(programs):
    [risk] = read_qtool_file(programs[1]).risks
    assert risk.kind is RiskKind.SAMPLE_INPUTS


def test_a_file_of_ours_is_read_whole():
    plan = sample_plan()
    file = read_qtool_file(sample_file())
    assert file.is_content_verified
    assert file.stamp == sample_stamp(plan).with_content(file.content_digest)
    assert plan_from_json(file.plan_json) == plan
    assert (file.where, file.stamp_problem, file.risks) == ("data", None, ())
    assert check_loadable(file) is file.stamp


def test_a_path_and_its_bytes_read_alike(tmp_path):
    path = tmp_path / "x.pt2"
    path.write_bytes(sample_file())
    one, other = read_qtool_file(path), read_qtool_file(path.read_bytes())
    assert one.where == str(path)
    assert vars(one) | {"where": ""} == vars(other) | {"where": ""}


def test_packing_again_changes_nothing_that_counts():
    plan = sample_plan()
    assert read_qtool_file(file_bytes(sample_stamp(plan), plan, method=zipfile.ZIP_DEFLATED)).is_content_verified


def entries_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.removeprefix("archive/"): archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
    "name", ["data/weights/weight_0", "extra/qtool/plan.json", "extra/qtool/config.json", "models/model.json"]
)
def test_any_change_of_the_content_is_seen(name):
    entries = entries_of(sample_file())
    entries[name] += b" "
    file = read_qtool_file(zip_bytes(entries))
    assert file.stamp is not None
    assert not file.is_content_verified
    with pytest.raises(FileFormatError, match="not what the stamp was written for"):
        check_loadable(file)


def test_an_entry_added_is_seen():
    file = read_qtool_file(zip_bytes(entries_of(sample_file()) | {"data/constants/custom_obj_0": b""}))
    assert not file.is_content_verified


def test_a_stamp_for_entries_that_torch_would_not_take_counts_for_nothing():
    """torch takes the first entry's folder for the root, so `evil/` here, and never sees the entries we could check."""
    plan = sample_plan()
    whole = entries_of(file_bytes(sample_stamp(plan), plan, changes={"evil/models/model.json": b"{}"}))
    entries = {"evil/models/model.json": b"{}"} | whole
    stamp = sample_stamp(plan).with_content(content_digest(entries))
    file = read_qtool_file(zip_bytes(entries | {STAMP_ENTRY: to_json(stamp).encode()}, root=""))
    assert (file.stamp, file.is_content_verified) == (None, False)
    with pytest.raises(FileFormatError, match="no stamp"):
        check_loadable(file)


def with_stamp(text: bytes) -> bytes:
    return zip_bytes(entries_of(sample_file()) | {STAMP_ENTRY: text})


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (file_bytes(None, sample_plan()), StampProblemKind.MISSING, "no stamp"),
        (with_stamp(json.dumps({"format_version": 3}).encode()), StampProblemKind.NEWER, "newer than this qtool"),
        (with_stamp(b"\xff"), StampProblemKind.UNREADABLE, "not valid JSON"),
        (with_stamp(b"{}"), StampProblemKind.UNREADABLE, "format_version"),
    ],
)
def test_a_stamp_that_cannot_be_used_is_part_of_the_result_and_stops_loading(data, kind, message):
    file = read_qtool_file(data)
    assert (file.stamp, file.stamp_problem.kind) == (None, kind)
    with pytest.raises(FileFormatError, match=message):
        check_loadable(file)


def test_a_file_that_would_execute_something_is_not_loadable_even_with_a_stamp():
    plan = sample_plan()
    file = read_qtool_file(file_bytes(sample_stamp(plan), plan, changes={"data/aotinductor/model/a.so": b"\x7fELF"}))
    assert file.is_content_verified
    with pytest.raises(FileFormatError, match=r"would execute 1 things it says, first 'model/a\.so'"):
        check_loadable(file)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["models/model.json"], FileKind.PT2),
        (["data.pkl", "code/x.py"], FileKind.TORCHSCRIPT),
        (["data.pkl", "data/0"], FileKind.CHECKPOINT),
        (["word/document.xml"], FileKind.ZIP),
        ([], FileKind.ZIP),
    ],
)
def test_the_kind_is_told_from_the_names(names, kind):
    entries = {name: b"{}" for name in names}
    assert read_qtool_file(zip_bytes(entries)).kind is kind


@pytest.mark.parametrize("percent", range(0, 100, 5))
def test_a_file_cut_anywhere_is_refused(percent):
    data = sample_file()
    with pytest.raises(FileFormatError):
        read_qtool_file(data[: len(data) * percent // 100])
