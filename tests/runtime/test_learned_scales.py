"""Scales that are parameters: what trains them, what keeps them, and what reads them."""

import copy
import pickle

import pytest
import torch

import qtool
from qtool.errors import UncalibratedError, UsageError
from qtool.runtime.store import from_bytes
from qtool.workflows.prepare import prepare
from tests.runtime.training_steps import (
    GRANULARITIES,
    assert_same,
    batch,
    prepared_for_training,
    saved,
    small_net,
    state,
    step,
    trained,
)


def learning(steps=3, **kwargs):
    """A model with learned scales after some steps, and its optimizer."""
    prepared = prepared_for_training(**kwargs)
    qtool.calibrate(prepared, [batch()[0]])
    prepared.train().learn_scales()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3, momentum=0.9)
    for number in range(steps):
        step(prepared, optimizer, data=batch(number))
    return prepared, optimizer


def scales(prepared):
    points = [*prepared.activations.values(), *prepared.weights.values()]
    return [point.fake_quantize.scale.clone() for point in points]


def through_state_dict(model):
    fresh = prepared_for_training()
    fresh.load_state_dict(model.state_dict())
    return fresh.train(model.training)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_they_begin_with_what_is_known_and_every_one_of_them_learns(granularity):
    prepared, _ = learning(steps=0, granularity=granularity)
    before, x = scales(prepared), batch()[0]
    prepared.learn_scales(False)
    observed = prepared.eval()(x)
    prepared.train().learn_scales()
    assert torch.equal(prepared.eval()(x), observed)
    prepared.train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3)
    step(prepared, optimizer)
    assert all(bool((p.grad != 0).any()) for p in prepared.scale_parameters())
    step(prepared, optimizer)
    assert not any(torch.equal(one, other) for one, other in zip(before, scales(prepared), strict=True))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_case_14_the_int8_model_has_the_scales_of_the_last_step_of_the_optimizer(granularity):
    prepared, optimizer = learning(granularity=granularity)
    step(prepared, optimizer)  # the optimizer moves the scales after the last pass
    converted = qtool.convert(prepared.eval())
    x, _ = batch()
    assert torch.equal(converted(x), prepared(x))
    stamped = {t.edge: t.scale_min for node in converted.stamp.int8_nodes() for t in (*node.inputs, node.output) if t}
    for name, point in prepared.activations.items():
        assert float(point.fake_quantize.scale) == float(point.fake_quantize.trained_scale().detach()) == stamped[name]
    assert torch.equal(from_bytes(saved(converted))(x), prepared(x))


def test_edges_of_one_scale_have_one_parameter():
    prepared, _ = learning()
    groups = {}
    for edge in prepared.plan.edges:
        groups.setdefault(edge.group, set()).add(id(prepared.activations[edge.name].fake_quantize.shift))
    assert all(len(parameters) == 1 for parameters in groups.values())
    assert len(prepared.scale_parameters()) == len(groups) + len(prepared.weights)
    assert any(len([e for e in prepared.plan.edges if e.group == group]) > 1 for group in groups)


WAYS = [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: from_bytes(saved(m)).train(m.training)]


@pytest.mark.parametrize("way", [*WAYS, through_state_dict], ids=["deepcopy", "pickle", "file", "state_dict"])
def test_case_61_62_they_go_on_bit_for_bit(way):
    here, optimizer = learning()
    there = way(here)
    assert there.learns_scales
    assert [n for n, _ in there.named_parameters()] == [n for n, _ in here.named_parameters()]
    other = torch.optim.SGD(there.parameters(), lr=1e-3, momentum=0.9)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for number in range(2):
        losses = [step(m, o, data=batch(number + 9)) for m, o in ((here, optimizer), (there, other))]
        assert torch.equal(*losses)
    assert_same(state(here), state(there))
    assert saved(here) == saved(there)


def test_observers_no_longer_follow_and_frozen_scales_stay():
    prepared, optimizer = learning()
    seen = [point.observer.num_batches.clone() for point in prepared.activations.values()]
    step(prepared, optimizer, data=(batch()[0] * 50, batch()[1]))
    assert seen == [point.observer.num_batches for point in prepared.activations.values()]
    optimizer.zero_grad()
    frozen = torch.optim.SGD(prepared.parameters(), lr=1e-3)
    prepared.freeze_observers()
    prepared(batch()[0])
    before = scales(prepared)
    for number in range(2):
        step(prepared, frozen, data=batch(number))
    assert all(torch.equal(one, other) for one, other in zip(before, scales(prepared), strict=True))
    assert all(parameter.grad is None for parameter in prepared.scale_parameters())
    prepared.freeze_observers(False)
    step(prepared, frozen), step(prepared)
    assert not any(torch.equal(one, other) for one, other in zip(before, scales(prepared), strict=True))


def test_case_34_eval_changes_none_of_them():
    prepared, _ = learning()
    before = state(prepared.eval())
    assert torch.equal(prepared(batch()[0] * 100), prepared(batch()[0] * 100))
    assert_same(before, state(prepared))


def test_no_longer_learned_they_follow_what_is_seen_again():
    prepared, _ = learning()
    prepared.learn_scales(False)
    assert prepared.scale_parameters() == []
    before = float(prepared.activations["x"].fake_quantize.scale)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3)
    for _ in range(2):
        step(prepared, optimizer, data=(batch()[0] * 50, batch()[1]))
    assert float(prepared.activations["x"].fake_quantize.scale) > 2 * before


def test_calibrating_again_begins_anew():
    prepared, _ = learning()
    qtool.calibrate(prepared, [batch()[0] * 4])
    point = prepared.activations["x"].fake_quantize
    assert float(point.shift.detach()) == 0.0
    assert torch.equal(point.trained_scale().detach(), point.scale)
    prepared.reset()
    assert not prepared.learns_scales


def test_what_nothing_is_known_of_cannot_be_learned():
    with pytest.raises(
        UncalibratedError, match="the ranges of 7 of 7 edges are not known yet, first 'x', so they cannot"
    ):
        prepared_for_training().learn_scales()
    with pytest.raises(UsageError, match="this model has no graph to train"):
        prepare(small_net().eval(), batch()[0], {"target": {"backend": "fbgemm"}}).learn_scales()


def test_two_passes_before_one_backward():
    """A pass writes to no scale that another one keeps for backward."""
    prepared, optimizer = learning()
    optimizer.zero_grad()
    (prepared(batch(5)[0]).sum() + prepared(batch(6)[0]).sum()).backward()
    assert all(torch.isfinite(p.grad).all() for p in prepared.parameters())


def test_a_trained_model_that_began_to_learn_converts_for_a_backend_of_the_same_grids():
    prepared = trained()
    prepared.learn_scales()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3)
    step(prepared, optimizer)
    x, _ = batch()
    assert torch.equal(qtool.convert(prepared.eval(), "x86")(x), prepared(x))
