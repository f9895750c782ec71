from dataclasses import replace

import pytest

from qtool.backends.registry import backend
from qtool.types import Granularity


@pytest.fixture
def toy_without_channels():
    """A backend that can do one scale per weight only, as old mobile runtimes."""
    record = backend("qnnpack")
    rules = tuple(replace(r, granularities=(Granularity.TENSOR,)) if r.granularities else r for r in record.rules)
    return replace(record, name="toy", rules=rules)
