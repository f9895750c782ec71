from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from qtool.numerics.coded import Coded
from qtool.numerics.input_keeping import FORMULAS, SAVES_INPUT, keeps_input
from tests.numerics.op_samples import input_keeping_samples, other_samples

KEEPING = input_keeping_samples()
OTHERS = other_samples()


def saves_an_input(op, args):
    args = tree_map(lambda x: x.values if isinstance(x, Coded) else x, args, is_leaf=lambda x: isinstance(x, Coded))
    coded = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves(args) if isinstance(leaf, Tensor)}
    found = []

    def pack(tensor):
        found.append(tensor.untyped_storage().data_ptr() in coded)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        op(*args)
    return any(found)


@pytest.mark.parametrize("name", KEEPING)
def test_ops_of_the_set_make_autograd_save_an_input(name):
    op, args = KEEPING[name]
    assert saves_an_input(op, args)
    assert keeps_input(op, args)


@pytest.mark.parametrize("name", OTHERS)
def test_other_calls_save_no_input(name):
    op, args = OTHERS[name]
    assert not saves_an_input(op, args)
    assert not keeps_input(op, args)


def test_every_op_of_the_set_is_sampled():
    assert {op for op, _ in KEEPING.values()} == SAVES_INPUT


def test_formulas_are_of_ops_of_the_set():
    assert set(FORMULAS) <= SAVES_INPUT
