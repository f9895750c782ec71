import pytest

from qtool.backends.record import Support
from qtool.backends.registry import BACKENDS
from qtool.passes.ops import SHARING
from qtool.types import Op


@pytest.mark.parametrize("record", BACKENDS, ids=lambda record: record.name)
@pytest.mark.parametrize("op", Op)
def test_what_shares_a_scale_is_what_the_catalog_says(record, op):
    rule = record.rule(op)
    if rule.support is not Support.UNSUPPORTED:
        assert rule.shares_input_parameters == (op in SHARING)
