"""In-place and functional spellings give one graph, and the values are those of the eager model."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.errors import CaptureError
from tests.patterns import Lambda, conv


def program_of(model, x):
    return capture(model, (x,), describe_inputs((x,)))


def graph_of(model, x):
    return str(program_of(model, x).graph_module().graph)


def slice_written(m, x):
    y = m.a(x)
    y[:, :2] += 1
    return y * 2


def view_written(m, x):
    y = m.a(x)
    y.view(y.size(0), -1).relu_()
    return y


def select_written(m, x):
    y = m.a(x)
    y.select(1, 0).zero_()
    return y + 1


def permuted_written(m, x):
    y = m.a(x)
    y.permute(0, 2, 3, 1).mul_(3)
    return y


def piece_written(m, x):
    y = m.a(x)
    first, second = y.split([2, 6], 1)
    second.clamp_(-0.1, 0.1)
    return y, first


def alias_read_later(m, x):
    y = m.a(x)
    v = y.transpose(1, 2)
    y.add_(1)
    return v * 2, y


def base_overwritten_by_its_relu(m, x):
    y = m.a(x)
    z = F.relu_(y)
    return m.b(z) + y


def dropout_is_an_alias(m, x):
    y = F.dropout(m.a(x), 0.5, training=False)
    y.relu_()
    return m.b(y)


def copied_into(m, x):
    y = m.a(x)
    y[:, 1:3].copy_(y[:, 3:5])
    return y


WRITES = [
    slice_written,
    view_written,
    select_written,
    permuted_written,
    piece_written,
    alias_read_later,
    base_overwritten_by_its_relu,
    dropout_is_an_alias,
    copied_into,
]


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("batch", [1, 3])
def test_values_are_those_of_the_eager_model(function, batch):
    torch.manual_seed(0)
    model = Lambda(function, a=conv(4, 8, padding=1), b=conv(8, 8, padding=1)).eval()
    graph = program_of(model, torch.randn(1, 4, 6, 6)).graph_module()
    x = torch.randn(batch, 4, 6, 6)
    with torch.no_grad():
        expected = model(x.clone())
    torch.testing.assert_close(graph(x.clone()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_no_op_writes_into_its_argument(function):
    model = Lambda(function, a=conv(4, 8, padding=1), b=conv(8, 8, padding=1)).eval()
    graph = program_of(model, torch.randn(2, 4, 6, 6)).graph_module().graph
    schemas = [node.target._schema for node in graph.nodes if hasattr(node.target, "_schema")]
    assert schemas
    assert not any(a.alias_info and a.alias_info.is_write for s in schemas for a in s.arguments)


def in_place(m, x):
    y = m.c1(x)
    z = F.relu(y, inplace=True)
    o = m.c2(z)
    o += y
    return F.relu(o, inplace=True)


def out_of_place(m, x):
    y = F.relu(m.c1(x))
    o = m.c2(y)
    return F.relu(o + y)


def test_case_46_in_place_and_functional_spellings_give_one_graph():
    torch.manual_seed(0)
    c1, c2 = conv(4, 4, padding=1), conv(4, 4, padding=1)
    x = torch.randn(2, 4, 6, 6)
    one = Lambda(in_place, c1=c1, c2=c2).eval()
    other = Lambda(out_of_place, c1=c1, c2=c2).eval()
    torch.testing.assert_close(one(x.clone()), other(x.clone()), rtol=0, atol=0)
    assert graph_of(one, x) == graph_of(other, x)


def test_the_graph_is_the_same_each_time_it_is_made():
    program = program_of(Lambda(view_written, a=conv(4, 8)).eval(), torch.randn(2, 4, 6, 6))
    assert str(program.graph_module().graph) == str(program.graph_module().graph)


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(conv(), nn.BatchNorm2d(8), nn.Dropout(0.5)).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    program = program_of(model, torch.randn(2, 4, 6, 6))
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    model[0].weight.data.zero_()
    assert bool(program.exported.state_dict["0.weight"].any())


def test_a_write_without_functional_form_is_refused_by_name():
    def expanded(m, x):
        y = m.a(x).sum(1, keepdim=True)
        y.as_strided((2, 1, 4, 4), (16, 16, 4, 1)).add_(1)
        return y

    with pytest.raises(CaptureError, match=r"as_strided.*no functional form"):
        graph_of(Lambda(expanded, a=conv()).eval(), torch.randn(2, 4, 6, 6))
