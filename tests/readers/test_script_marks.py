"""Marks in TorchScript's code, and in bytecode where there is no code."""

import pytest

from qtool.readers.archive import read_archive
from qtool.readers.marks import NodeMark, encode
from qtool.readers.script_marks import script_facts
from qtool.types import Isa, Op
from tests.readers.sample_files import zip_bytes

MARK = NodeMark(name="stem", backends=("fbgemm",), reduce_range=True, op=Op.CONV2D, isa=Isa.ANY, qmin=0, qmax=127)
CODE = f"""
class Model(Module):
  def forward(self: __torch__.Model, x: Tensor) -> Tensor:
    _0 = "{encode(MARK)}"
    if torch.ne(ops.prim.dtype(x), 13):
      ops.prim.RaiseException(_0, "builtins.RuntimeError")
    y = ops.quantized.conv2d_relu(x, self.stem, 0.1, 0)
    return y
"""
OTHER = "    z = ops.quantized.linear(y, self.head, 0.1, 0)\n    p = ops.quantized.conv2d_prepack(w, b)\n"


def facts(**entries):
    names = {name: text.encode("latin-1") for name, text in entries.items()}
    with read_archive(zip_bytes({"data.pkl": b"", **names})) as archive:
        return script_facts(archive)


def test_the_marks_in_the_code():
    found = facts(**{"code/a.py": CODE, "code/a.py.debug_pkl": CODE})
    assert found.marks.nodes == (MARK,)
    assert (found.num_int8_layers, found.num_unmarked) == (1, 0)


def test_a_layer_without_a_guard_is_counted():
    found = facts(**{"code/a.py": CODE + OTHER})
    assert (found.num_int8_layers, found.num_unmarked) == (2, 1)


def test_bytecode_alone():
    size = len(encode(MARK)).to_bytes(4, "little").decode("latin-1")
    found = facts(**{"bytecode.pkl": f"\x80\x02X{size}{encode(MARK)}q\x01"})
    assert found.marks.nodes == (MARK,)


def test_two_models_with_one_name_for_a_layer_are_two_layers():
    found = facts(**{"code/a.py": CODE, "code/b.py": CODE})
    assert found.marks.nodes == (MARK,)
    assert (found.num_int8_layers, found.num_unmarked) == (2, 0)


@pytest.mark.parametrize("text", ["", "\0" * 99, "qtool 1 node name=", '"qtool 2 node name=a backends=b"'])
def test_other_code_has_none(text):
    assert not facts(**{"code/a.py": text}).marks
