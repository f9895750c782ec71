"""What a checkpoint may differ in from the training that goes on from it; `test_train.py` has the rest."""

from dataclasses import replace

import pytest
import torch

from qtool.config.load import changed, config_from_mapping
from qtool.errors import FileFormatError, UsageError
from qtool.workflows.same_config import check_resumable
from tests.training.test_checkpoint import CHECKPOINT
from tests.workflows.training_parts import CONFIG

CONFIGURED = config_from_mapping(CONFIG)


def checkpoint_of(**state):
    known = {"epoch": 2, "num_samples": 24, "torch_version": torch.__version__}
    return replace(CHECKPOINT, state=replace(CHECKPOINT.state, **known | state), config_json=CONFIGURED.to_json())


def test_the_same_training_goes_on():
    check_resumable(checkpoint_of(), CONFIGURED, 24, allow_change=False)


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"num_samples": 23}, "samples of data.train: 24, was 23"),
        ({"torch_version": "2.0.0"}, f'torch: "{torch.__version__}", was "2.0.0"'),
    ],
)
def test_other_data_or_another_torch_would_end_in_other_bytes(state, named):
    with pytest.raises(UsageError) as caught:
        check_resumable(checkpoint_of(**state), CONFIGURED, 24, allow_change=False)
    assert f"of another training: {named}. Go on as it began, or with --allow-config-change" in str(caught.value)
    check_resumable(checkpoint_of(**state), CONFIGURED, 24, allow_change=True)


def test_another_optimizer_cannot_take_on_the_state():
    other = changed(CONFIGURED, {"train.optimizer": {"kind": "adamw"}}, "test")
    with pytest.raises(UsageError, match="the checkpoint's optimizer is of kind 'sgd', whose state no other"):
        check_resumable(checkpoint_of(), other, 24, allow_change=True)


def test_keys_that_change_no_bit_may_differ():
    free = {"train.num_workers": 2, "train.log_every": 7, "train.keep": 1}
    check_resumable(checkpoint_of(), changed(CONFIGURED, free, "test"), 24, allow_change=False)
    with pytest.raises(UsageError, match=r"another training: train\.seed: 3, was 0\. Go on"):
        check_resumable(checkpoint_of(), changed(CONFIGURED, {**free, "train.seed": 3}, "test"), 24, allow_change=False)


@pytest.mark.parametrize("config", ["{", "[1]", "null", "{}", '{"version": 1, "target": {"backend": "fbgemm"}}'])
def test_a_checkpoint_whose_config_is_none_of_a_training_is_refused(config):
    with pytest.raises(FileFormatError, match=r"^config\.json: "):
        check_resumable(replace(checkpoint_of(), config_json=config), CONFIGURED, 24, allow_change=True)
