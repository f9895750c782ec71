import io
import struct
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtool.errors import FileFormatError, UsageError
from qtool.readers import archive as archive_module
from qtool.readers import zip_directory
from qtool.readers.archive import read_archive
from tests.readers.sample_files import sample_file, zip_bytes

names = st.from_regex(r"[a-z]{1,4}(/[a-z]{1,4}){0,2}", fullmatch=True)
contents = st.dictionaries(names, st.binary(max_size=40) | st.just(b"ab" * 300), min_size=1, max_size=6)

SAMPLE = sample_file()


def read_all(data: bytes) -> dict[str, bytes]:
    with read_archive(data) as archive:
        return {name: archive.read(name) for name in archive.names}


@given(contents, st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_what_zipfile_writes_is_read_back(entries, method):
    entries = {name: data for name, data in entries.items() if not any(n.startswith(f"{name}/") for n in entries)}
    assert read_all(zip_bytes(entries, root="root/", method=method)) == entries


@given(contents, st.data())
def test_a_mutated_zip_is_read_as_zipfile_reads_it_or_refused(entries, data):
    whole = bytearray(zip_bytes(entries, method=data.draw(st.sampled_from([0, 8]))))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_all(bytes(whole))
    except FileFormatError:
        return
    with zipfile.ZipFile(io.BytesIO(whole)) as other:
        files = {i.filename.removeprefix("archive/"): other.read(i) for i in other.infolist() if not i.is_dir()}
    assert len(found) == len(files)
    assert sorted(found.values()) == sorted(files.values())


@given(st.data())
def test_bytes_put_in_or_taken_out_never_end_in_a_traceback(data):
    at = data.draw(st.integers(0, len(SAMPLE)))
    cut = data.draw(st.integers(0, 50))
    new = data.draw(st.binary(max_size=50))
    changed = SAMPLE[:at] + new + SAMPLE[at + cut :]
    try:
        found = read_all(changed)
    except FileFormatError:
        return
    assert found == read_all(SAMPLE)


@pytest.mark.parametrize("percent", range(0, 100, 5))
def test_a_file_cut_anywhere_is_refused(percent):
    with pytest.raises(FileFormatError):
        read_archive(SAMPLE[: len(SAMPLE) * percent // 100])


@pytest.mark.parametrize("data", [b"P", b"PK", b"not a zip at all, but long enough to hold an end record", b"\0" * 99])
def test_what_is_no_zip_is_refused(data):
    with pytest.raises(FileFormatError, match="not a zip archive"):
        read_archive(data)


def test_an_empty_file_says_so():
    with pytest.raises(FileFormatError, match="an empty file"):
        read_archive(b"")


def test_an_empty_zip_has_no_names():
    with read_archive(zip_bytes({})) as archive:
        assert (archive.names, archive.root) == ((), "")


@pytest.mark.parametrize(
    ("entries", "root"),
    [
        ({"a/x": b"", "a/b/y": b""}, "a/"),
        ({"a/x": b"", "b/y": b""}, ""),
        ({"a/x": b"", "y": b""}, ""),
        ({"x": b""}, ""),
    ],
)
def test_the_root_is_the_one_folder_of_all_entries(entries, root):
    with read_archive(zip_bytes(entries, root="")) as archive:
        assert archive.root == root
        assert [root + name for name in archive.names] == list(entries)


def test_folders_are_no_entries():
    with read_archive(zip_bytes({"a/": b"", "a/x": b"1"}, root="")) as archive:
        assert archive.names == ("x",)


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../x", "/x", "a//x", "./x", "a\\x", "C:/x", "x\x01", "a/..", "é\u202etxt", "x" * 1025],
)
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(FileFormatError, match="entry name"):
        read_archive(zip_bytes({name: b""}, root=""))


def test_a_name_with_a_zero_byte_is_refused():
    data = zip_bytes({"stamp.json_": b""}).replace(b"stamp.json_", b"stamp.json\0")
    with pytest.raises(FileFormatError, match="entry name"):
        read_archive(data)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name_are_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/x", b"1")
        archive.writestr("a/x", b"2")
    with pytest.raises(FileFormatError, match="two entries are named 'a/x'"):
        read_archive(out.getvalue())


def test_two_names_that_differ_in_case_alone_are_refused():
    with pytest.raises(FileFormatError, match="but for case"):
        read_archive(zip_bytes({"models/model.json": b"{}", "models/MODEL.json": b"{}"}))


def test_an_entry_with_a_second_name_is_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        entry = zipfile.ZipInfo("a/x")
        entry.extra = struct.pack("<HHBI", 0x7075, 8, 1, zlib.crc32(b"a/x")) + b"a/y"
        archive.writestr(entry, b"1")
    with pytest.raises(FileFormatError, match="second name"):
        read_archive(out.getvalue())


def test_entries_that_share_bytes_are_refused():
    data = bytearray(zip_bytes({"x": b"1", "y": b"2"}))
    first, second = data.index(b"PK\x01\x02"), data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    with pytest.raises(FileFormatError, match="overlaps"):
        read_archive(bytes(data))


def test_an_entry_behind_the_directory_is_refused():
    data = bytearray(zip_bytes({"x": b"1"}))
    at = data.index(b"PK\x01\x02")
    data[at + 42 : at + 46] = struct.pack("<I", at)
    with pytest.raises(FileFormatError, match=r"bytes in front|lies outside"):
        read_archive(bytes(data))


@pytest.mark.parametrize("offset", [6, 8, 14, 22, 30])  # flags, method, crc, size and name of the local header
def test_two_headers_that_contradict_each_other_are_refused(offset):
    data = bytearray(zip_bytes({"x": b"12345"}))
    data[offset] ^= 2
    with pytest.raises(FileFormatError, match="contradict"):
        read_archive(bytes(data))


def test_bytes_in_front_and_behind_are_refused():
    with pytest.raises(FileFormatError, match="not a zip archive"):
        read_archive(b"#!/bin/sh\n" + SAMPLE)
    with pytest.raises(FileFormatError, match="bytes after it"):
        read_archive(SAMPLE + b"\0")


def test_a_second_zip_in_front_is_refused():
    with pytest.raises(FileFormatError, match="not where its end record says"):
        read_archive(zip_bytes({"x": b"1"}) + SAMPLE)


def test_a_bomb_is_refused_before_it_is_unpacked():
    with pytest.raises(FileFormatError, match="unpacks"):
        read_archive(zip_bytes({"x": b"\0" * (2**20 + 1)}, method=zipfile.ZIP_DEFLATED))


def test_small_entries_may_be_all_zeros():
    entries = {"x": b"\0" * 2**20}
    assert read_all(zip_bytes(entries, method=zipfile.ZIP_DEFLATED)) == entries


def test_what_all_entries_unpack_to_is_limited(monkeypatch):
    monkeypatch.setattr(zip_directory, "MAX_INFLATED_BYTES", 150)
    with pytest.raises(FileFormatError, match=r"its compressed entries unpack .* to 200; at most 8 times"):
        read_archive(zip_bytes({"x": b"ab" * 50, "y": b"cd" * 50}, method=zipfile.ZIP_DEFLATED))
    random = bytes(i * i % 251 for i in range(200))
    assert read_all(zip_bytes({"x": random, "y": random}, method=zipfile.ZIP_DEFLATED)) == {"x": random, "y": random}


def test_the_number_of_entries_is_limited_before_they_are_read(monkeypatch):
    monkeypatch.setattr(zip_directory, "MAX_ENTRIES", 2)
    with pytest.raises(FileFormatError, match="claims 3 entries"):
        read_archive(zip_bytes({"x": b"", "y": b"", "z": b""}))


def test_a_directory_that_claims_more_entries_than_fit_is_refused():
    data = bytearray(zip_bytes({"x": b""}))
    data[-14:-10] = struct.pack("<HH", 50_000, 50_000)
    with pytest.raises(FileFormatError, match="claims 50000 entries"):
        read_archive(bytes(data))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(method):
    with pytest.raises(FileFormatError, match="compressed by method"):
        read_archive(zip_bytes({"x": b"1"}, method=method))


def test_a_newer_zip_format_is_refused():
    data = bytearray(zip_bytes({"x": b"1"}))
    data[data.index(b"PK\x01\x02") + 6] = 64
    with pytest.raises(FileFormatError, match="features that are not read"):
        read_archive(bytes(data))


def test_an_encrypted_entry_is_refused():
    data = bytearray(zip_bytes({"x": b"1"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(FileFormatError, match="encrypted"):
        read_archive(bytes(data))


def test_a_flipped_bit_in_the_content_is_found_at_its_end():
    data = bytearray(zip_bytes({"x": b"12345"}))
    data[data.index(b"12345")] ^= 1
    with read_archive(bytes(data)) as archive, pytest.raises(FileFormatError, match="damaged"):
        archive.read("x")


@pytest.mark.parametrize("claimed", [10, 5000])
def test_a_compressed_entry_of_another_size_than_announced_is_damaged(claimed):
    content = b"ab" * 300
    data = zip_bytes({"x": content}, method=zipfile.ZIP_DEFLATED)
    data = data.replace(struct.pack("<I", len(content)), struct.pack("<I", claimed))
    with read_archive(data) as archive, pytest.raises(FileFormatError, match="damaged"):
        archive.read("x")


def test_large_entries_come_in_pieces(monkeypatch):
    monkeypatch.setattr(archive_module, "BLOCK_BYTES", 7)
    content = bytes(range(256)) * 4
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with read_archive(zip_bytes({"x": content}, method=method)) as archive:
            chunks = list(archive.chunks("x"))
        assert max(map(len, chunks)) <= 7
        assert b"".join(chunks) == content


def test_an_entry_above_the_limit_is_not_read():
    with (
        read_archive(zip_bytes({"x": b"12345"})) as archive,
        pytest.raises(FileFormatError, match="at most 4 are read"),
    ):
        archive.read("x", limit=4)


def test_a_name_that_is_not_there_is_an_error():
    with read_archive(SAMPLE) as archive, pytest.raises(FileFormatError, match="no entry 'nothing'"):
        archive.read("nothing")


def test_zip64_is_read():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("a/x", "w", force_zip64=True) as entry:
        entry.write(b"12345")
    assert read_all(out.getvalue()) == {"x": b"12345"}


class Stream(io.RawIOBase):
    """A pipe: zipfile cannot seek back to fill in sizes, so they follow the content."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def test_sizes_that_follow_the_content_are_read():
    out = Stream()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a/x", b"12345")
    assert read_all(out.data) == {"x": b"12345"}


def end64(data: bytes) -> bytes:
    """Give a zip the zip64 end records that torch's writer always adds."""
    end = data[-22:]
    count, size, offset = struct.unpack("<H", end[10:12])[0], *struct.unpack("<II", end[12:20])
    record = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(data) - 22, 1)
    return data[:-22] + record + locator + end


def test_two_end_records_must_agree():
    data = end64(zip_bytes({"x": b"1"}))
    assert read_all(data) == {"x": b"1"}
    wrong = bytearray(data)
    wrong[-98 + 40] ^= 1  # the size of the directory in the zip64 record
    with pytest.raises(FileFormatError, match="contradict"):
        read_archive(bytes(wrong))


def test_a_missing_file_a_folder_and_a_device_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_archive(tmp_path / "none.pt2")
    with pytest.raises(UsageError, match="not a regular file"):
        read_archive(tmp_path)


def test_the_file_is_closed_when_it_is_refused(tmp_path):
    path = tmp_path / "x.pt2"
    path.write_bytes(b"not a zip")
    with pytest.raises(FileFormatError, match=r"x\.pt2: not a zip archive"):
        read_archive(path)  # an open file would warn, and warnings are errors


def test_messages_call_the_file_as_they_are_told():
    with pytest.raises(FileFormatError, match=r"^standard input: not a zip"):
        read_archive(b"PK", where="standard input")


def test_the_hash_is_that_of_the_content():
    with read_archive(zip_bytes({"x": b"12345"})) as archive:
        assert archive.sha256("x") == "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"
    assert zlib.crc32(b"12345") == 0xCBF53A1C
