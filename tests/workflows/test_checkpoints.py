from dataclasses import replace

import pytest

from qtool.errors import FileFormatError, UsageError
from qtool.training.checkpoint import from_file
from qtool.workflows.checkpoints import CheckpointFolder, checkpoints_in, damage_named, last_checkpoint
from tests.training.test_checkpoint import CHECKPOINT


def write(folder, *epochs):
    for epoch in epochs:
        folder.write(replace(CHECKPOINT, state=replace(CHECKPOINT.state, epoch=epoch)))


def names(path):
    return sorted(each.name for each in path.iterdir())


def test_the_last_few_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path / "run" / "one", keep=2)
    folder.open(0)
    assert folder.last() is None
    write(folder, 1, 2, 3)
    assert names(folder.path) == ["epoch-0002.zip", "epoch-0003.zip"]
    assert folder.last() == last_checkpoint(folder.path) == folder.path / "epoch-0003.zip"
    assert from_file(folder.last()).state.epoch == 3


def test_epochs_count_as_numbers(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    write(folder, 9998, 9999, 10000)
    assert list(checkpoints_in(tmp_path)) == [9998, 9999, 10000]
    assert last_checkpoint(tmp_path).name == "epoch-10000.zip"


def test_other_files_are_left_alone(tmp_path):
    for name in ("notes.txt", "epoch-1.zip", ".qtool-1.tmp"):
        (tmp_path / name).touch()
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.open(0)
    write(folder, 1, 2)
    assert names(tmp_path) == [".qtool-1.tmp", "epoch-0002.zip", "epoch-1.zip", "notes.txt"]


def test_a_folder_of_another_training_is_refused(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=2)
    write(folder, 1, 2)
    with pytest.raises(UsageError, match=r"holds epoch-0002\.zip already, .*--resume .*another folder"):
        folder.open(0)
    with pytest.raises(UsageError, match=r"holds epoch-0002\.zip already"):
        folder.open(1)
    folder.open(2)
    assert names(tmp_path) == ["epoch-0001.zip", "epoch-0002.zip"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--checkpoints: cannot make the folder .*file"):
        CheckpointFolder(tmp_path / "file", keep=1).open(0)


def test_a_checkpoint_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"--resume: .*has no checkpoint in it"):
        last_checkpoint(tmp_path)
    with pytest.raises(UsageError, match=r"--resume: .*gone.*does not exist; it takes the folder"):
        last_checkpoint(tmp_path / "gone")


def read(path):
    with damage_named(path):
        return from_file(path)


def test_a_damaged_checkpoint_names_an_earlier_one(tmp_path):
    write(CheckpointFolder(tmp_path, keep=3), 2, 3, 4)
    last = tmp_path / "epoch-0004.zip"
    last.write_bytes(last.read_bytes()[:-50])
    with pytest.raises(FileFormatError) as caught:
        read(last)
    said = str(caught.value)
    assert said.startswith(f"the checkpoint '{last}' is damaged: ")
    assert said.endswith(f"; delete it, and --resume {tmp_path} goes on from epoch-0003.zip")
    assert said.count(str(last)) == 1
    last.unlink()
    assert read(last_checkpoint(tmp_path)).state.epoch == 3


def test_a_damaged_checkpoint_that_is_the_only_one(tmp_path):
    (tmp_path / "epoch-0001.zip").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"is damaged: .*; no earlier one lies in its folder: train from the"):
        read(tmp_path / "epoch-0001.zip")


def test_what_is_no_checkpoint_is_not_called_a_damaged_one(tmp_path):
    (tmp_path / "model.pt2").write_bytes(b"a model")
    with pytest.raises(FileFormatError) as caught:
        read(tmp_path / "model.pt2")
    assert "damaged checkpoint" not in str(caught.value)
    assert not str(caught.value).startswith("the checkpoint")
