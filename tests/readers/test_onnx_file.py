"""An ONNX file is told from its bytes, whole or not, and nothing else is taken for one."""

import onnx
import pytest

from qtool.readers.onnx_file import onnx_note
from qtool.readers.source import opened_source

TEXT = '<ir_version: 10, opset_import: ["" : 20]> agraph (float[N] x) => (float[N] y) { y = Relu (x) }'


def model(**metadata):
    proto = onnx.parser.parse_model(TEXT)
    onnx.helper.set_model_props(proto, metadata)
    return proto.SerializeToString()


def note(data):
    with opened_source(data) as source:
        return onnx_note(source)


def test_a_model_is_recognised_and_its_stamp_too():
    assert "qtool.stamp" not in note(model())
    assert "qtool.stamp" not in note(model(author="qtool.stamp"))
    assert "the JSON under 'qtool.stamp'" in note(model(author="me", **{"qtool.stamp": "{}"}))


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\3\4", b"\x08", b"\x08\x0a", b"\x08\x0a\x3a", b"\x08\x0a\x3a\x7f", b"\x80" * 99, b"\0" * 99, model()[:-1]]
)  # fmt: skip
def test_nothing_else_is(data):
    assert note(data) is None


def test_the_number_of_fields_is_bounded():
    assert note(model() + b"\x28\x01" * 10**6) is not None
