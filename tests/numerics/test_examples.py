"""The examples in the docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import qtool.numerics
import qtool.numerics.kernels
import qtool.observers
from qtool.numerics.grid import Bounds, Grid
from qtool.numerics.qparams import affine_qparams
from qtool.types import Dtype, Granularity, Spec

MODULES = [
    f"{package.__name__}.{module.name}"
    for package in (qtool.numerics, qtool.numerics.kernels, qtool.observers)
    for module in pkgutil.iter_modules(package.__path__)
]
NAMES = {
    "Bounds": Bounds,
    "Grid": Grid,
    "torch": torch,
    "Dtype": Dtype,
    "Granularity": Granularity,
    "Spec": Spec,
    "affine_qparams": affine_qparams,
    "uint8": Spec(dtype=Dtype.UINT8, qmin=0, qmax=255),
}


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name, capsys):
    torch.manual_seed(0)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.REPORT_ONLY_FIRST_FAILURE
    failed, _ = doctest.testmod(importlib.import_module(name), extraglobs=NAMES, optionflags=flags)
    assert failed == 0, capsys.readouterr().out
