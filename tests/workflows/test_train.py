"""Training by a config: to the same bits each time, also when it is interrupted and resumed. Case 61 among them."""

import json
from dataclasses import dataclass, replace

import pytest
import torch

import qtool
from qtool.config.load import changed, config_from_mapping, load_config
from qtool.errors import (
    ConfigError,
    DataError,
    ModelError,
    NonFiniteError,
    UncalibratedError,
    UsageError,
)
from qtool.readers.qtool_file import check_loadable, read_qtool_file
from qtool.runtime.store import from_bytes, to_bytes
from qtool.training.checkpoint import from_file
from qtool.types import Stage
from qtool.workflows.prepare import prepare_from_config
from qtool.workflows.seed import seed_everything
from qtool.workflows.train import Files, Listeners, Trained, train_from_config
from tests.workflows.training_parts import CONFIG

PARTS = "tests.workflows.training_parts"
BEST = {"train.optimizer": {"kind": "adamw", "lr": 0.05}, "train.select": "best", "train.evaluate_every": 2}


def with_changes(changes):
    return changed(config_from_mapping(CONFIG), changes, "test")


@dataclass(frozen=True)
class Result:
    trained: Trained
    folder: object
    metrics: list


def train(config, folder, prepared=None, **settings):
    """Train with checkpoints and metrics in a folder."""
    files = Files(checkpoints=folder / "run", metrics=folder / "metrics.jsonl", **settings.pop("files", {}))
    trained = train_from_config(config, prepared, files=files, **settings)
    return Result(trained, folder / "run", lines(folder / "metrics.jsonl"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def measured(metrics, since=0):
    """The records after an epoch, without what a clock says."""
    clock = ("seconds", "samples_per_second")
    kept = [m for m in metrics if m["event"] in ("step", "epoch", "end") and (m["epoch"] > since)]
    return [{key: value for key, value in m.items() if key not in clock} for m in kept]


def trained_whole(changes, factory):
    config = with_changes(changes)
    torch.manual_seed(99)  # what was drawn before must not matter
    return config, train(config, factory.mktemp("whole"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A training by SGD that nothing interrupted, with its config."""
    return trained_whole({}, tmp_path_factory)


@pytest.fixture(scope="module")
def adamw(tmp_path_factory):
    """One by AdamW that keeps the best of every other epoch."""
    return trained_whole(BEST, tmp_path_factory)


@pytest.fixture(params=["plain", "adamw"])
def whole(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_case_61_a_resumed_training_is_that_which_nothing_interrupted(whole, epoch, tmp_path):
    config, uninterrupted = whole
    checkpoint = uninterrupted.folder / f"epoch-{epoch:04}.zip"
    torch.manual_seed(epoch)
    resumed = train(config, tmp_path, files={"resume": checkpoint})
    assert resumed.trained == uninterrupted.trained
    assert measured(resumed.metrics, since=epoch) == measured(uninterrupted.metrics, since=epoch)
    names = [f"epoch-{number:04}.zip" for number in range(epoch + 1, 5)]
    assert sorted(path.name for path in resumed.folder.iterdir()) == names
    for name in names:  # parameters, batch norms, observers, optimizer, generators
        assert (resumed.folder / name).read_bytes() == (uninterrupted.folder / name).read_bytes()


def test_resuming_a_complete_training_gives_its_model(whole, tmp_path):
    config, uninterrupted = whole
    resumed = train(config, tmp_path, files={"resume": uninterrupted.folder})
    assert resumed.trained == uninterrupted.trained
    assert [record["event"] for record in resumed.metrics] == ["start", "end"]


def test_the_metrics_tell_the_whole_story(whole):
    config, uninterrupted = whole
    metrics = uninterrupted.metrics
    assert [m["event"] for m in metrics] == ["start", *["step", "step", "step", "step", "epoch"] * 4, "end"]
    epochs = [m for m in metrics if m["event"] == "epoch"]
    evaluated = [2, 4] if config.train.evaluate_every == 2 else [1, 2, 3, 4]
    assert [m["epoch"] for m in epochs if "evaluate_accuracy" in m] == evaluated
    assert [m["phase"] for m in epochs] == [
        "observe",
        "observe",
        "batch norm frozen",
        "observers and batch norm frozen",
    ]
    assert epochs[-1]["loss"] < epochs[0]["loss"]
    accuracies = {m["epoch"]: m["evaluate_accuracy"] for m in epochs if "evaluate_accuracy" in m}
    trained = uninterrupted.trained
    assert accuracies[trained.epoch] == trained.accuracy == metrics[-1]["evaluate_accuracy"]
    if config.train.select == "best":
        assert trained.accuracy == max(accuracies.values())
    else:
        assert trained.epoch == trained.epochs == 4


def test_the_result_is_a_trained_file_that_converts(whole):
    config, uninterrupted = whole
    stamp = check_loadable(read_qtool_file(uninterrupted.trained.data))
    assert stamp.stage is Stage.TRAINED
    assert stamp.config_digest == config.digest()
    model = from_bytes(uninterrupted.trained.data)
    assert to_bytes(model) == uninterrupted.trained.data
    assert not model.uncalibrated()
    x = torch.randn(5, 1, 6, 6)
    assert model(x).shape == (5, 3)
    assert qtool.convert(model).stamp.stage is Stage.CONVERTED


def test_observers_and_batch_norms_stay_once_they_are_frozen(plain):
    _, uninterrupted = plain

    def state(epoch, part):
        model = from_bytes(from_file(uninterrupted.folder / f"epoch-{epoch:04}.zip").model)
        return {name: value for name, value in model.state_dict().items() if part in name}

    def moved(part, one, other):
        before, after = state(one, part), state(other, part)
        assert before
        return any(not torch.equal(before[name], after[name]) for name in before)

    assert moved("running_mean", 1, 2)
    assert not moved("running_mean", 2, 4)
    assert moved("scale", 2, 3)
    assert not moved("scale", 3, 4)


def test_beginning_with_a_prepared_file_is_the_same(tmp_path):
    config = with_changes({"train.epochs": 2})
    seed_everything(0)
    prepared = to_bytes(prepare_from_config(config))
    alone = train_from_config(config)
    assert train_from_config(config, from_bytes(prepared)) == alone
    other = with_changes({"train.epochs": 2, "train.seed": 1})
    assert train_from_config(other, from_bytes(prepared)).data != alone.data


def test_calibration_gives_starting_ranges_and_is_told_of():
    told = []
    calibrate = {"kind": "synthetic", "count": 8, "batch_size": 4}
    config = with_changes({"data.calibrate": calibrate, "train.epochs": 2, "train.freeze_observers_after": 0})
    trained = train_from_config(config, listeners=Listeners(on_batch=lambda done, total: told.append((done, total))))
    assert told == [(4, 8), (8, 8)]
    assert not from_bytes(trained.data).uncalibrated()


def test_ranges_that_nobody_set_cannot_stay():
    with pytest.raises(UncalibratedError, match=r"freeze_observers_after is 0, and 5 of 5 ranges are not known"):
        train_from_config(with_changes({"train.freeze_observers_after": 0}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"train.epochs": 5}, "train.epochs: 5, was 4"),
        ({"train.optimizer": {"kind": "sgd", "lr": 0.2}}, "train.optimizer.lr: 0.2, was 0.1"),
        ({"data.train.batch_size": 8}, "data.train.batch_size: 8, was 6"),
    ],
)
def test_a_config_that_changed_is_refused_and_what_changed_is_named(plain, changes, named):
    config, uninterrupted = plain
    other = changed(config, changes, "test")
    files = Files(resume=uninterrupted.folder / "epoch-0002.zip")
    with pytest.raises(UsageError) as caught:
        train_from_config(other, files=files)
    assert f"the checkpoint is of another training: {named}. Go on" in str(caught.value)
    assert train_from_config(other, files=files, allow_config_change=True).epochs == other.train.epochs


@pytest.mark.parametrize("allow", [False, True])
def test_case_61_a_checkpoint_for_another_backend_is_refused_always(plain, allow):
    config, uninterrupted = plain
    other = changed(config, {"target.backend": "qnnpack"}, "test")
    with pytest.raises(UsageError, match=r'target\.backend: "qnnpack", was "fbgemm"'):
        train_from_config(other, files=Files(resume=uninterrupted.folder), allow_config_change=allow)


def test_fewer_epochs_than_were_trained_are_refused(plain):
    config, uninterrupted = plain
    other = changed(config, {"train.epochs": 3}, "test")
    with pytest.raises(UsageError, match=r"has 4 epochs, and train\.epochs is 3: nothing is left"):
        train_from_config(other, files=Files(resume=uninterrupted.folder), allow_config_change=True)


def test_a_checkpoint_folder_of_another_training_is_refused(plain):
    config, uninterrupted = plain
    with pytest.raises(UsageError, match=r"holds epoch-0004\.zip already"):
        train_from_config(config, files=Files(checkpoints=uninterrupted.folder))


def test_an_error_notes_the_last_checkpoint(tmp_path):
    config = with_changes({"data.evaluate": None, "train.loss": f"{PARTS}:nan_in_the_end"})
    with pytest.raises(NonFiniteError, match=r"^epoch 3, step 9: the loss is nan; nothing was written") as caught:
        train(config, tmp_path)
    (note,) = caught.value.__notes__
    assert note == f"{tmp_path}/run/epoch-0002.zip holds what was trained before; go on with --resume {tmp_path}/run"


def test_a_prepared_model_of_another_config_is_refused():
    prepared = prepare_from_config(with_changes({"target.backend": "qnnpack"}))
    with pytest.raises(UsageError, match=r'prepared with another config: target\.backend: "fbgemm", was "qnnpack"'):
        train_from_config(config_from_mapping(CONFIG), prepared)
    for_calibration = prepare_from_config(with_changes({"quantize.mode": "ptq", "train": None, "data.train": None}))
    with pytest.raises(UsageError, match=r'quantize\.mode: "qat", was "ptq"'):
        train_from_config(config_from_mapping(CONFIG), for_calibration)
    with pytest.raises(ModelError, match="train takes what `qtool prepare` wrote"):
        train_from_config(config_from_mapping(CONFIG), torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": None}, r"train: nothing found; needed: how the model is trained, epochs at least"),
        ({"data.train": None}, r"data\.train: nothing found; training needs a data source"),
        ({"model": None}, r"model: nothing found"),
    ],
)
def test_what_training_needs_is_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        train_from_config(with_changes(changes))


def test_samples_without_labels_are_an_error():
    with pytest.raises(DataError, match=r"data\.train has samples without labels"):
        train_from_config(with_changes({"data.train.factory": f"{PARTS}:unlabelled"}))


def test_without_labels_to_evaluate_on_there_is_no_accuracy_and_no_best():
    changes = {"data.evaluate.factory": f"{PARTS}:unlabelled", "train.epochs": 2}
    assert train_from_config(with_changes(changes)).accuracy is None
    with pytest.raises(DataError, match=r"data\.evaluate has no labels to tell the best model by; set select: last"):
        train_from_config(with_changes({**changes, "train.select": "best"}))


def test_one_of_several_processes_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="WORLD_SIZE is '2', as torchrun sets it; qtool trains in one process"):
        train_from_config(config_from_mapping(CONFIG))


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"train\.device is 'cuda'.*--set train\.device=cpu"):
        train_from_config(with_changes({"train.device": "cuda"}))


def test_a_batch_norm_that_sees_one_value_per_channel_says_what_to_set():
    changes = {"model.factory": f"{PARTS}:pooled_classifier", "data.train.batch_size": 1, "train.epochs": 1}
    one = with_changes({**changes, "train.schedule": {"kind": "constant"}})
    with pytest.raises(DataError, match=r"^epoch 1, step 1: batch norm '1' sees one value per channel") as caught:
        train_from_config(one)
    assert "set data.train.batch_size to at least 2" in str(caught.value)
    assert "train.freeze_batch_norm_after: 0" in str(caught.value)
    for fix in ({"data.train.batch_size": 2}, {"train.freeze_batch_norm_after": 0}):
        assert train_from_config(changed(one, fix, "test")).epoch == 1


def test_nan_in_the_data_names_the_node_and_is_advised_on_once():
    with pytest.raises(NonFiniteError) as caught:
        train_from_config(with_changes({"data.train.factory": f"{PARTS}:nan_pictures"}))
    said = str(caught.value)
    assert said.startswith(
        "epoch 1, step 1: training pass 1: at node 'x': 216 NaN and 0 infinite of 216 values reached the observer"
    )
    assert said.count("look") == said.count("the data") == 1
    assert "Lower train.optimizer.lr (it is 0.1)" in said


def test_another_number_of_workers_goes_on_to_the_same_model(plain, tmp_path):
    """The file differs in the digest of the config alone, which is that of the config that it was finished with."""
    config, uninterrupted = plain
    other = changed(config, {"train.num_workers": 1, "train.log_every": 2, "train.keep": 1}, "test")
    resumed = train(other, tmp_path, files={"resume": uninterrupted.folder / "epoch-0003.zip"})
    assert check_loadable(read_qtool_file(resumed.trained.data)).config_digest == other.digest()
    model = from_bytes(resumed.trained.data)
    model.origin = replace(model.origin, config_digest=config.digest())
    assert to_bytes(model) == uninterrupted.trained.data


def test_a_loss_that_is_not_there_is_named_by_its_key_and_place(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"version": 1, **CONFIG}))
    config = load_config(tmp_path / "c.json", [f"train.loss={PARTS}:torck"])
    with pytest.raises(DataError) as caught:
        train_from_config(config)
    assert str(caught.value) == (
        f"--set #1: train.loss: '{PARTS}:torck': '{PARTS}' has no attribute 'torck'"
    )  # and not: did you mean 'torch'


def test_batches_of_a_factory_are_not_called_a_stream():
    listed = with_changes({"data.train.factory": f"{PARTS}:listed_batches"})
    with pytest.raises(DataError, match=r"^data\.train gives batches, which cannot be shuffled: return single samples"):
        train_from_config(listed)
    loader = with_changes({"data.train.factory": f"{PARTS}:loader"})
    with pytest.raises(
        DataError, match=r"^data\.train is a stream, which cannot be shuffled: return a list or a torch"
    ):
        train_from_config(loader)


def test_a_worker_that_is_killed_is_told_with_what_to_lower(monkeypatch):
    monkeypatch.setenv("QTOOL_TEST_END", "kill 4")
    with pytest.raises(DataError) as caught:
        train_from_config(with_changes({"train.num_workers": 1}))
    said = str(caught.value)
    assert said.startswith("a worker process of data.train died (out of memory?): DataLoader worker (pid")
    assert said.endswith("; lower train.num_workers or data.train.batch_size")


LEARNED = {
    "train.scales": "learned",
    "train.optimizer": {"kind": "sgd", "lr": 0.001},
    "data.calibrate": {"kind": "synthetic", "count": 8, "batch_size": 4},
}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A training of the scales too."""
    return trained_whole(LEARNED, tmp_path_factory)


def test_learned_scales_are_trained_until_ranges_stay_and_are_what_is_converted(learned):
    _, uninterrupted = learned
    models = [from_bytes(from_file(uninterrupted.folder / f"epoch-{epoch:04}.zip").model) for epoch in (2, 3, 4)]
    shifts = [{n: p.detach() for n, p in m.named_parameters() if n.endswith("shift")} for m in models]
    assert len(shifts[0]) == len(models[0].scale_parameters()) > 4
    assert all(not torch.equal(shifts[0][name], shifts[1][name]) for name in shifts[0])
    assert all(torch.equal(shifts[1][name], shifts[2][name]) for name in shifts[0])
    model, x = from_bytes(uninterrupted.trained.data), torch.randn(5, 1, 6, 6)
    assert torch.equal(qtool.convert(model)(x), model(x))


@pytest.mark.parametrize("epoch", [1, 3])
def test_case_61_a_resumed_training_of_scales_is_that_which_nothing_interrupted(learned, epoch, tmp_path):
    config, uninterrupted = learned
    resumed = train(config, tmp_path, files={"resume": uninterrupted.folder / f"epoch-{epoch:04}.zip"})
    assert resumed.trained == uninterrupted.trained


def test_scales_cannot_begin_or_cease_to_be_learned_in_a_resume(plain, learned):
    for (config, uninterrupted), other in ((plain, "learned"), (learned, "observed")):
        with pytest.raises(UsageError, match=r"the checkpoint was trained with train\.scales: "):
            train_from_config(
                changed(config, {"train.scales": other}, "test"),
                files=Files(resume=uninterrupted.folder / "epoch-0002.zip"),
                allow_config_change=True,
            )


def test_scales_are_learned_from_ranges_that_are_known():
    config = with_changes({**LEARNED, "data.calibrate": None})
    with pytest.raises(UncalibratedError, match=r"train\.scales is 'learned', and 5 of 5 ranges are not known: name"):
        train_from_config(config)
