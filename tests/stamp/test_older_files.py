"""Files of every stamp format that was ever written still load and compute the same bits."""

import json

import pytest
import torch

from qtool.inspection.findings import Content, Outcome
from qtool.inspection.inspect import inspect_file
from qtool.stamp.schema import FORMAT_VERSION
from qtool.workflows.convert import convert
from qtool.workflows.load import load, read
from qtool.workflows.save import save
from tests.stamp.fixtures.make import FOLDER, pictures

FORMATS = sorted(int(path.stem.removeprefix("format_")) for path in FOLDER.glob("format_*.json"))


def test_there_are_files_of_every_format():
    assert FORMATS == list(range(1, FORMAT_VERSION + 1))
