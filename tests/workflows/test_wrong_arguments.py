"""The Python functions called in ways they cannot serve: each says what it takes, none guesses."""

import io

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import qtool
from qtool.errors import ConfigError, UsageError

CONFIG = {"target": {"backend": "fbgemm"}}
X = torch.linspace(-1, 1, 24).reshape(6, 4)


def model():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


@pytest.fixture
def prepared():
    found = qtool.prepare(model(), (X,), CONFIG)
    qtool.calibrate(found, [X])
    return found


def saved(found):
    file = io.BytesIO()
    qtool.save(found, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("wrong", "kind"), [(nn.Linear, "type"), (len, "builtin_function_or_method"), (None, "NoneType")]
)
def test_prepare_takes_a_module(wrong, kind):
    with pytest.raises(UsageError, match=f"takes a torch.nn.Module; this is a {kind}"):
        qtool.prepare(wrong, (X,), CONFIG)


@pytest.mark.parametrize(("wrong", "kind"), [(None, "NoneType"), ([("target", "fbgemm")], "list"), (5, "int")])
def test_a_config_is_a_mapping_or_a_path(wrong, kind):
    with pytest.raises(ConfigError, match=f"found a value of type {kind}; allowed: a mapping, or the path"):
        qtool.prepare(model(), (X,), wrong)


def test_only_a_prepared_model_is_calibrated_and_converted(prepared):
    for wrong in (model(), qtool.convert(prepared), qtool.load(saved(qtool.convert(prepared)))):
        kind = type(wrong).__name__
        with pytest.raises(UsageError, match=f"calibrate takes what qtool.prepare returned; this is a {kind}"):
            qtool.calibrate(wrong, [X])
        words = f"convert takes what qtool.prepare returned.*this is a {kind}"
        with pytest.raises(UsageError, match="converted already" if kind == "ConvertedModel" else words):
            qtool.convert(wrong)


@pytest.mark.parametrize(("wrong", "kind"), [(None, "NoneType"), (5, "int"), ("abc", "str"), ({"x": X}, "dict")])
def test_batches_are_an_iterable(prepared, wrong, kind):
    with pytest.raises(UsageError, match=f"batches is a {kind}; give a list, a generator or a DataLoader"):
        qtool.calibrate(prepared, wrong)


@pytest.mark.parametrize("batch", [(X, torch.arange(6)), [X, torch.arange(6)]])
def test_labels_are_never_taken_for_inputs(batch):
    fresh = qtool.prepare(model(), (X,), CONFIG)
    with pytest.raises(UsageError, match=r"batch 1: .*Of a pair of inputs and labels give the inputs alone"):
        qtool.calibrate(fresh, [X, batch])
    with pytest.raises(UsageError, match="give the inputs alone"):
        qtool.calibrate(fresh, DataLoader(TensorDataset(X, torch.arange(6)), batch_size=2))


def test_a_batch_is_a_tensor_or_a_tuple(prepared):
    with pytest.raises(UsageError, match="batch 0 is a ndarray; give a tensor, or a tuple of the model's arguments"):
        qtool.calibrate(prepared, [X.numpy()])


def test_what_was_seen_before_a_wrong_batch_is_kept():
    fresh = qtool.prepare(model(), (X,), CONFIG)
    with pytest.raises(UsageError, match="batch 1 is a int"):
        qtool.calibrate(fresh, [X, 5])
    assert fresh.uncalibrated() == ()


@pytest.mark.parametrize("wrong", [None, 5])
def test_save_and_load_take_files(prepared, wrong):
    kind = type(wrong).__name__
    with pytest.raises(UsageError, match=f"cannot save to a {kind}: give a path"):
        qtool.save(prepared, wrong)
    with pytest.raises(UsageError, match=f"cannot load from a {kind}: give a path"):
        qtool.load(wrong)


def test_files_are_binary(prepared):
    with pytest.raises(UsageError, match="mode 'wb'"):
        qtool.save(prepared, io.StringIO())
    with pytest.raises(UsageError, match="mode 'rb'"):
        qtool.load(io.StringIO("x"))


def test_an_engine_for_a_prepared_file_is_not_ignored(prepared):
    with pytest.raises(UsageError, match="a prepared model runs on no engine, and engine 'qnnpack' is asked for"):
        qtool.load(saved(prepared), engine="qnnpack")


def test_inspect_takes_a_file_and_no_model(prepared):
    with pytest.raises(UsageError, match="inspect takes the path of a file or its bytes; this is a PreparedModel"):
        qtool.inspect(prepared)
