import pytest
import torch
from torch import nn

from qtool.capture.export import capture, describe_inputs
from qtool.errors import CaptureError
from qtool.passes.naming import node_names
from qtool.stamp.schema import InputStamp
from tests.patterns import Lambda, conv


def capture_on(model, x, **kwargs):
    return capture(model, (x,), describe_inputs((x,), **kwargs))


@pytest.mark.parametrize("example", [1, 2, 5])
def test_case_54_the_batch_is_dynamic_whatever_the_example(example):
    model = nn.Linear(4, 4).eval()
    program = capture_on(model, torch.randn(example, 4))
    assert program.inputs == (InputStamp(name="input", shape=("batch", 4), dtype="float32"),)
    for batch in (1, 2, 3, 17):
        x = torch.randn(batch, 4)
        assert torch.equal(program.graph_module()(x), model(x))


def test_case_54_an_op_that_fixes_the_batch_is_named():
    def viewed(m, x):
        y = m.a(x)
        return y.view(2, -1)

    line = viewed.__code__.co_firstlineno + 2
    where = rf"test_export\.py:{line}: return y\.view\(2, -1\)"
    with pytest.raises(CaptureError, match=rf"{where}.*An op of the model fixes a size that was to stay dynamic"):
        capture_on(Lambda(viewed, a=nn.Linear(4, 4)).eval(), torch.randn(2, 4))


def test_a_fixed_batch_is_possible_on_request():
    model = Lambda(lambda m, x: m.a(x).view(2, -1), a=nn.Linear(4, 4)).eval()
    program = capture_on(model, torch.randn(2, 4), dynamic_batch=False)
    assert program.inputs[0].shape == (2, 4)


def test_a_branch_on_data_names_the_line_of_the_users_code():
    def branching(m, x):
        if x.sum() > 0:
            return m.a(x)
        return -m.a(x)

    line = branching.__code__.co_firstlineno + 1
    with pytest.raises(CaptureError, match=rf"test_export.py:{line}: .*branches on values"):
        capture_on(Lambda(branching, a=nn.Linear(4, 4)).eval(), torch.randn(2, 4))


def test_a_model_that_is_not_float32_is_refused_with_the_parameter():
    with pytest.raises(CaptureError, match=r"parameter 'weight' is float16.*model.float\(\)"):
        capture_on(nn.Linear(4, 4).half(), torch.randn(2, 4))


def test_a_model_without_data_is_refused():
    with pytest.raises(CaptureError, match=r"parameter 'weight' is on the meta device"):
        capture_on(nn.Linear(4, 4, device="meta"), torch.randn(2, 4))


def test_example_inputs_without_a_tensor_are_refused():
    with pytest.raises(CaptureError, match="hold no tensor"):
        describe_inputs((3, None))


def test_nothing_of_the_machine_is_kept():
    program = capture_on(nn.Sequential(conv(), nn.ReLU()), torch.randn(2, 4, 6, 6))
    kept = {key for node in program.exported.graph.nodes for key in node.meta}
    assert kept <= {"val", "tensor_meta", "nn_module_stack"}
    assert program.exported.example_inputs is None


def test_two_inputs_keep_their_names_and_share_the_batch():
    model = Lambda2(nn.Linear(4, 4)).eval()
    arguments = (torch.randn(1, 4), torch.randn(1, 4))
    program = capture(model, arguments, describe_inputs(arguments))
    assert [(stamp.name, stamp.shape) for stamp in program.inputs] == [("left", ("batch", 4)), ("right", ("batch", 4))]


class Lambda2(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, left, right):
        return self.layer(left) + right


@pytest.mark.parametrize("name", ["image data", "class", "self", "torch", "1x", "input:0", "x.y", "größe"])
def test_an_input_may_bear_any_name(name):
    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    program = capture(model, (x,), (InputStamp(name=name, shape=("batch", 4), dtype="float32"),))
    graph = program.graph_module()
    assert torch.equal(graph(x), model(x))
    assert next(iter(node_names(graph.graph).values())) == name


def test_a_failed_capture_says_nothing_beside_its_error(capfd):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).eval()
    inputs = (InputStamp(name="x", shape=("batch", 1, "height", 8), dtype="float32"),)
    with pytest.raises(CaptureError, match=r"model\.inputs"):
        capture(model, (torch.zeros(2, 1, 2, 8),), inputs)
    assert capfd.readouterr() == ("", "")


def test_too_many_inputs_are_no_fault_of_pythons_library():
    x = torch.zeros(2, 4)
    with pytest.raises(CaptureError) as caught:
        capture(nn.Linear(4, 4).eval(), (x, x), describe_inputs((x, x)))
    assert "inspect.py" not in str(caught.value)
