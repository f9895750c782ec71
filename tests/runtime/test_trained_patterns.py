"""Every pattern, trained for two steps: eval mode is the reference program bit for bit; engines follow to a step."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from qtool.errors import MismatchError
from qtool.runtime.module import RuntimeModel
from qtool.runtime.verify import step_differences
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from tests.patterns import PATTERNS, make_pattern

CONFIG = {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}}
"""fbgemm's ranges are reduced, so what is trained on them is right on every engine."""


def trained_pattern(name):
    model, x = make_pattern(name)
    prepared = prepare(model, x, CONFIG, dynamic_batch=PATTERNS[name].has_batch).train()
    optimizer = torch.optim.SGD(prepared.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        loss = sum(leaf.square().mean() for leaf in tree_leaves(prepared(x)))
        loss.backward()
        optimizer.step()
    prepared(x)  # after the first step there are ranges, after this one those of the trained weights
    return prepared.eval(), x


@pytest.mark.parametrize("name", PATTERNS)
def test_a_trained_pattern_is_deployed_as_it_is(name):
    prepared, x = trained_pattern(name)
    converted = convert(prepared)
    with torch.no_grad():
        for one, other in zip(tree_leaves(converted(x)), tree_leaves(prepared(x)), strict=True):
            assert torch.equal(one, other)
    for engine in ("fbgemm", "x86", "onednn", "qnnpack"):
        if PATTERNS[name].islands_on(engine) > PATTERNS[name].islands_on("fbgemm"):
            with pytest.raises(MismatchError, match=f"cannot run on {engine}"):
                RuntimeModel(converted, engine)
            continue
        lowered = RuntimeModel(converted, engine).body
        differences = step_differences(prepared, lowered, (x,))
        assert differences.keys() == {edge.name for edge in prepared.plan.edges}
        assert max(differences.values()) <= 1
