import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from qtool.errors import FileFormatError, UsageError
from qtool.training.checkpoint import FORMAT_VERSION, Checkpoint, State, digest_of, from_file, to_bytes

CHECKPOINT = Checkpoint(
    state=State(
        format_version=FORMAT_VERSION,
        epoch=3,
        num_samples=100,
        parameters=("0.weight", "0.bias"),
        torch_version="2.14.1",
        accuracy=0.5,
        best_epoch=2,
        best_accuracy=0.75,
    ),
    config_json="{}",
    model=b"a model",
    best=b"a better model",
    optimizer={"0.step": np.array(3, np.float32), "0.exp_avg": np.arange(6, dtype=np.float32).reshape(2, 3)},
    random={"torch": np.arange(9, dtype=np.uint8), "python_gauss": np.zeros(0)},
)


def equal(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


def changed_entry(data, name, content):
    """The archive with one entry's content changed; None leaves it out."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.namelist():
            kept = content if entry == f"checkpoint/{name}" else old.read(entry)
            if kept is not None:
                new.writestr(entry, kept)
    return target.getvalue()


def npy(array, **settings):
    buffer = io.BytesIO()
    np.save(buffer, array, **settings)
    return buffer.getvalue()


def huge():
    """An array that says it is 4 TB large."""
    return npy(np.zeros(3, np.float32)).replace(b"'shape': (3,), ", b"'shape': (10000000000,), ")[:128]


@pytest.mark.parametrize(("best", "best_epoch"), [(None, 3), (b"a better model", 2)])
def test_it_comes_back_whole(tmp_path, best, best_epoch):
    checkpoint = replace(CHECKPOINT, best=best, state=replace(CHECKPOINT.state, best_epoch=best_epoch))
    (tmp_path / "c.zip").write_bytes(to_bytes(checkpoint))
    again = from_file(tmp_path / "c.zip")
    assert (again.state, again.config_json) == (checkpoint.state, "{}")
    assert (again.model, again.best) == (b"a model", best)
    assert equal(again.optimizer, checkpoint.optimizer)
    assert equal(again.random, checkpoint.random)
    assert to_bytes(again) == to_bytes(checkpoint)


def test_nothing_in_it_is_pickled():
    with zipfile.ZipFile(io.BytesIO(to_bytes(CHECKPOINT))) as archive:
        endings = {name.rpartition(".")[2] for name in archive.namelist()}
        assert endings == {"json", "npy", "pt2", "txt"}
        for name in archive.namelist():
            if name.endswith(".npy"):
                np.load(io.BytesIO(archive.read(name)), allow_pickle=False)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("state.json", b"{}", "format_version is None"),
        ("state.json", b'{"format_version": 2}', "newer than this qtool reads"),
        ("state.json", None, "is no checkpoint of qtool's; --resume takes a folder of --checkpoints"),
        ("model.pt2", b"another model", "its parts do not belong together"),
        ("model.pt2", None, "no entry 'model.pt2'"),
        ("config.json", b'{"version": 1}', "its parts do not belong together"),
        ("best.pt2", b"another model", "its parts do not belong together"),
        ("best.pt2", None, r"state\.json: best_epoch is 2 of 3"),
        ("optimizer/0.step.npy", npy(np.array(4, np.float32)), "its parts do not belong together"),
        ("optimizer/0.exp_avg.npy", None, "its parts do not belong together"),
        ("random/torch.npy", npy(np.zeros(9, np.uint8)), "its parts do not belong together"),
        ("digest.txt", None, "no entry 'digest.txt'"),
        ("digest.txt", b"", "its parts do not belong together"),
        ("optimizer/0.step.npy", b"text", r"optimizer/0\.step\.npy: is no array"),
        ("optimizer/0.step.npy", npy(np.array([{}]), allow_pickle=True), "is no array"),
        ("optimizer/0.step.npy", huge(), r"shape \(10000000000,\) of float32 does not fit 128 bytes"),
        ("random/torch.npy", npy(np.zeros(3))[:-1], "does not fit"),
    ],
)
def test_a_changed_file_is_refused(tmp_path, name, content, message):
    (tmp_path / "c.zip").write_bytes(changed_entry(to_bytes(CHECKPOINT), name, content))
    with pytest.raises(FileFormatError, match=message):
        from_file(tmp_path / "c.zip")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": -1}, "epoch is -1; allowed: at least 1"),
        ({"epoch": 0}, "epoch is 0; allowed: at least 1"),
        ({"num_samples": 0}, "num_samples is 0; allowed: at least 1"),
        ({"accuracy": 1.5}, r"accuracy is 1\.5; allowed: 0 to 1"),
        ({"best_epoch": 4}, "best_epoch is 4; allowed: 1 to epoch"),
        ({"best_epoch": 0}, "best_epoch is 0; allowed: 1 to epoch"),
        ({"best_epoch": None}, r"best_accuracy is 0\.75; allowed: 0 to 1, beside best_epoch"),
        ({"best_accuracy": None}, "best_accuracy is None; allowed: 0 to 1, beside best_epoch"),
        ({"best_epoch": 3}, r"best_epoch is 3 of 3; allowed: another than epoch, exactly where there is 'best\.pt2'"),
    ],
)
def test_numbers_that_no_training_writes_are_refused_even_with_their_digest(tmp_path, changes, message):
    (tmp_path / "c.zip").write_bytes(to_bytes(replace(CHECKPOINT, state=replace(CHECKPOINT.state, **changes))))
    with pytest.raises(FileFormatError, match=rf"c\.zip: state\.json: .*{message}"):
        from_file(tmp_path / "c.zip")


def test_the_digest_is_of_names_and_contents():
    assert digest_of({"a": b"1", "b": b"2"}) == digest_of({"b": b"2", "a": b"1"})
    others = [{"a": b"2", "b": b"1"}, {"a": b"1"}, {"a": b"1", "c": b"2"}, {"a": b"1", "b": b"3"}]
    assert digest_of({"a": b"1", "b": b"2"}) not in [digest_of(other) for other in others]


@pytest.mark.parametrize("key", ["epoch", "parameters", "torch_version"])
def test_a_state_without_a_key_is_refused(tmp_path, key):
    state = {name: value for name, value in CHECKPOINT.state.__dict__.items() if name != key}
    (tmp_path / "c.zip").write_bytes(changed_entry(to_bytes(CHECKPOINT), "state.json", json.dumps(state).encode()))
    with pytest.raises(FileFormatError, match=rf"state\.json: {key}: missing"):
        from_file(tmp_path / "c.zip")


@pytest.mark.parametrize("content", [b"", b"PK", b"text, and more of it than an empty zip has"])
def test_what_is_no_zip_is_refused(tmp_path, content):
    (tmp_path / "c.zip").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"c\.zip"):
        from_file(tmp_path / "c.zip")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_file_that_is_cut_off_is_refused(tmp_path, keep):
    data = to_bytes(CHECKPOINT)
    (tmp_path / "c.zip").write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(FileFormatError, match=r"c\.zip"):
        from_file(tmp_path / "c.zip")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        from_file(tmp_path / "c.zip")
