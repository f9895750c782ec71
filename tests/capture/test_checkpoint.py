import pickle

import pytest
import torch
from torch import nn

from qtool.capture.checkpoint import load_checkpoint
from qtool.errors import FileFormatError, ModelError, UsageError


def saved(tmp_path, content):
    path = tmp_path / "w.pth"
    torch.save(content, path)
    return path


def test_weights_arrive_bit_for_bit(tmp_path):
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    load_checkpoint(target, saved(tmp_path, source.state_dict()))
    assert torch.equal(source.weight, target.weight)


def test_a_key_and_the_prefix_of_wrappers(tmp_path):
    source, target = nn.Linear(3, 2), nn.Linear(3, 2)
    state = {f"module.{name}": tensor for name, tensor in source.state_dict().items()}
    load_checkpoint(target, saved(tmp_path, {"model": state, "epoch": 3}), key="model")
    assert torch.equal(source.bias, target.bias)


def test_a_missing_key_is_named_with_those_there_are(tmp_path):
    path = saved(tmp_path, {"model_state": nn.Linear(3, 2).state_dict()})
    with pytest.raises(UsageError, match=r"no key 'model'; did you mean 'model_state'\?"):
        load_checkpoint(nn.Linear(3, 2), path, key="model")
    with pytest.raises(FileFormatError, match="checkpoint_key to one of model_state"):
        load_checkpoint(nn.Linear(3, 2), path)


def test_another_shape_is_named(tmp_path):
    path = saved(tmp_path, nn.Linear(3, 2).state_dict())
    with pytest.raises(ModelError, match=r"weight: shape \(2, 3\) in the checkpoint, \(2, 4\) in the model"):
        load_checkpoint(nn.Linear(4, 2), path)


def test_a_foreign_prefix_is_named(tmp_path):
    state = {f"backbone.{name}": tensor for name, tensor in nn.Linear(3, 2).state_dict().items()}
    with pytest.raises(ModelError, match=r"begin with 'backbone\.' and the model's do not"):
        load_checkpoint(nn.Linear(3, 2), saved(tmp_path, state))


def test_missing_and_unexpected_keys_are_named(tmp_path):
    state = {"weight": torch.zeros(2, 3), "bais": torch.zeros(2)}
    with pytest.raises(ModelError, match=r"bias: missing in the checkpoint\n  bais: not in the model; did you mean"):
        load_checkpoint(nn.Linear(3, 2), saved(tmp_path, state))


@pytest.mark.parametrize("content", [b"", b"root:x:0:0:root\n", b"version: 1\nmodel: {}\n", b"\x80", b"\x80\x04junk"])
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "w.pth"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"must be a state dict|holds more than tensors"):
        load_checkpoint(nn.Linear(3, 2), path)


def test_a_truncated_file_is_refused(tmp_path):
    path = saved(tmp_path, nn.Linear(3, 2).state_dict())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FileFormatError, match="damaged"):
        load_checkpoint(nn.Linear(3, 2), path)


class Marker:
    def __reduce__(self):
        return (print, ("executed",))


def test_code_is_not_executed(tmp_path, capsys):
    path = saved(tmp_path, {"weight": Marker()})
    with pytest.raises(FileFormatError, match="loading it would execute code"):
        load_checkpoint(nn.Linear(3, 2), path)
    path.write_bytes(pickle.dumps(Marker()))
    with pytest.raises(FileFormatError):
        load_checkpoint(nn.Linear(3, 2), path)
    assert capsys.readouterr().out == ""


@pytest.mark.filterwarnings("ignore:`torch.jit")  # on its way out
def test_torchscript_is_told_apart(tmp_path):
    torch.jit.script(nn.Linear(3, 2)).save(tmp_path / "w.pth")
    with pytest.raises(FileFormatError, match="is a TorchScript model"):
        load_checkpoint(nn.Linear(3, 2), tmp_path / "w.pth")
