"""What capture makes plain: grad and autocast regions, padding in words, weights computed from parameters."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.errors import CaptureError
from tests.patterns import Lambda, conv

X = (2, 4, 14, 15)


def graph_module(model, shape=X):
    x = torch.randn(shape)
    return capture(model.eval(), (x,), describe_inputs((x,))).graph_module()


def assert_equal_to(graph, model, shape=X, **tolerance):
    x = torch.randn(3, *shape[1:])
    with torch.no_grad():
        torch.testing.assert_close(graph(x), model(x), **(tolerance or {"rtol": 0, "atol": 0}))


def targets(graph):
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def grad_regions(m, x):
    with torch.enable_grad():
        y = m.a(x)
        with torch.no_grad():
            y = F.relu_(y)
        z = m.b(y)
    return z, y


def autocast_off(m, x):
    with torch.autocast("cpu", enabled=False):
        y = m.a(x)
    return m.b(F.relu(y))


@pytest.mark.parametrize("function", [grad_regions, autocast_off])
def test_regions_become_plain_ops(function):
    model = Lambda(function, a=conv(), b=conv(8, 4))
    graph = graph_module(model)
    assert targets(graph) == ["aten.conv2d.default", "aten.relu.default", "aten.conv2d.default"]
    assert_equal_to(graph, model)


def test_autocast_in_the_models_code_is_refused():
    def autocast_on(m, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m.a(x)

    with pytest.raises(CaptureError, match="autocast to bfloat16"):
        graph_module(Lambda(autocast_on, a=conv()))


@pytest.mark.parametrize("dilation", [1, 2, (1, 3)])
@pytest.mark.parametrize("kernel", [1, 3, 4, (2, 5)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_case_53_padding_in_words(padding, kernel, dilation):
    """Equal at the borders too, where even kernels need one more on the right."""
    layer = conv(k=kernel, dilation=dilation, padding=padding)
    graph = graph_module(layer)
    assert "aten.conv2d.padding" not in targets(graph)
    assert_equal_to(graph, layer, rtol=1e-5, atol=1e-6)


def test_case_53_padding_in_words_over_one_dimension():
    layer = nn.Conv1d(2, 4, 4, padding="same")
    graph = graph_module(layer, (1, 2, 16))
    assert targets(graph) == ["aten.pad.default", "aten.conv1d.default"]
    assert_equal_to(graph, layer, (1, 2, 16), rtol=1e-5, atol=1e-6)


def legacy_weight_norm():
    with pytest.warns(FutureWarning, match="weight_norm"):
        return nn.utils.weight_norm(nn.Linear(6, 5))  # keeps a weight with a gradient history on the module


COMPUTED = {
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)),
    "legacy weight_norm": legacy_weight_norm,
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5)),
    "transposed": lambda: Lambda(lambda m, x: F.linear(x, m.a.weight.t(), m.a.bias * 2), a=nn.Linear(6, 6)),
    "constant": lambda: Lambda(lambda m, x: F.linear(x, torch.ones(2, 6) / 3)),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_case_51_computed_weights_are_computed_once(name):
    torch.manual_seed(0)
    model = COMPUTED[name]().eval()
    graph = graph_module(model, (2, 6))
    assert targets(graph) == ["aten.linear.default"]
    assert_equal_to(graph, model, (2, 6), rtol=1e-5, atol=1e-6)


def test_weights_that_depend_on_the_input_or_on_chance_are_left():
    for function in (
        lambda m, x: F.linear(x, m.a.weight * x.mean()),
        lambda m, x: F.linear(x, m.a.weight * torch.rand(6, 6)),
    ):
        assert "aten.mul.Tensor" in targets(graph_module(Lambda(function, a=nn.Linear(6, 6)), (2, 6)))


def test_a_returned_word_is_refused():
    with pytest.raises(CaptureError, match="returns the word 'label'"):
        graph_module(Lambda(lambda m, x: (m.a(x), "label"), a=conv()))


def test_an_lstm_is_captured_without_a_warning():
    """Warnings are errors here; the LSTM itself stays float."""
    model = Lambda(lambda m, x: m.b(m.a(x)[0]), a=nn.LSTM(6, 8, batch_first=True), b=nn.Linear(8, 4))
    assert_equal_to(graph_module(model, (2, 5, 6)), model.eval(), (2, 5, 6))


def test_a_model_in_channels_last_is_stored_contiguous():
    model = conv().to(memory_format=torch.channels_last)
    x = torch.randn(X)
    state = capture(model, (x,), describe_inputs((x,))).exported.state_dict
    assert all(tensor.is_contiguous() for tensor in state.values())
    assert not model.weight.is_contiguous()


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = conv()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.a(x) + self.calls


def test_a_counter_counts_in_each_module_alone():
    x = torch.randn(X)
    program = capture(Counter(), (x,), describe_inputs((x,)))
    first = program.graph_module()
    once = first(x)
    torch.testing.assert_close(first(x), once + 1)
    assert torch.equal(program.graph_module()(x), once)
    assert float(program.exported.state_dict["calls"]) == 0.0
