"""Guards in a .pt2: one of the file, one in front of each int8 node, and nothing else changes."""

import io

import pytest
import torch

import qtool
from qtool.exporters.guards import BUFFER
from qtool.exporters.pt2 import pt2_files
from qtool.readers.marks import collect, marks_of
from tests.exporters.together import FEW, converted_pattern, converted_together

GUARD = torch.ops.aten._assert_async.msg


def program_of(converted):
    return torch.export.load(io.BytesIO(pt2_files(converted).data))


def guards(program):
    return [node for node in program.graph.nodes if node.target is GUARD]


def test_the_guards_say_what_the_stamp_says():
    converted, _ = converted_together(FEW, "fbgemm")
    found = collect(str(node.args[1]) for node in guards(program_of(converted)))
    assert found.files[0].backends == ("fbgemm",)
    assert set(found.nodes) == set(marks_of(converted.stamp).nodes)
    assert len(found.nodes) == len(converted.stamp.int8_nodes())


def test_each_stands_in_front_of_its_node():
    program = program_of(converted_pattern("conv2d_chain", "fbgemm")[0])
    nodes = list(program.graph.nodes)
    said = {str(node.args[1]): node for node in guards(program)}
    by_name = {text.split("name=")[1].split()[0]: node for text, node in said.items() if "name=" in text}
    for node in nodes:
        name = node.meta.get("custom", {}).get("qtool", {}).get("node")
        if name is not None:
            assert nodes.index(by_name[name]) < nodes.index(node)
    assert set(by_name) == {"0", "2", "4"}


def test_a_guard_whose_buffer_is_false_says_what_the_file_was_made_for():
    module = program_of(converted_pattern("conv2d_chain", "fbgemm")[0]).module()
    getattr(module, BUFFER).fill_(False)
    with pytest.raises(RuntimeError, match="qtool 1 file stage=exported backends=fbgemm"):
        module(converted_pattern("conv2d_chain", "fbgemm")[1])


def test_a_buffer_of_that_name_is_left_alone():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.register_buffer(BUFFER, torch.randn(4))

        def forward(self, x):
            return torch.nn.functional.silu(self.linear(x)) * self.get_buffer(BUFFER)

    converted, x = converted_model(Named().eval(), torch.randn(3, 4))
    module = program_of(converted).module()
    assert torch.equal(module(x), converted(x))
    assert getattr(module, f"{BUFFER}_").item() is True


def converted_model(model, x):
    prepared = qtool.prepare(model, x, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, [x])
    return qtool.convert(prepared), x
