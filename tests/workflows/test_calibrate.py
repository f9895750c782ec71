"""Calibrate: what is said of the ranges that were found."""

import pytest
import torch

from qtool.errors import QtoolWarning
from qtool.workflows.calibrate import calibrate
from qtool.workflows.prepare import prepare
from tests.patterns import Lambda, conv


def test_case_16_ranges_far_apart_in_a_cat_are_told_with_both_ranges():
    torch.manual_seed(0)
    model = Lambda(lambda m, x: torch.cat([m.a(x) * 100, m.b(x) * 0.01], 1), a=conv(), b=conv()).eval()
    x = torch.randn(4, 4, 9, 9)
    config = {"target": {"backend": "fbgemm"}, "quantize": {"overrides": [{"match": "cat", "dtype": "int8"}]}}
    prepared = prepare(model, x, config)
    with pytest.warns(QtoolWarning, match=r"'cat' gives 'mul' \(.* to .*\) and 'mul#2' \(.* to .*\) one scale"):
        calibrate(prepared, [x])
    config = {"target": {"backend": "fbgemm"}, "quantize": {"overrides": [{"match": "cat", "dtype": "float"}]}}
    kept = prepare(model, x, config)
    calibrate(kept, [x])  # a warning would be an error here
    with torch.no_grad():
        error = (kept(x)[:, 8:] - model(x)[:, 8:]).abs().max() / model(x)[:, 8:].abs().max()
    assert float(error) < 0.02
