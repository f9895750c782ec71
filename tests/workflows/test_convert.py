import pytest
import torch
from torch import nn

from qtool.errors import NonFiniteError, QtoolWarning, UncalibratedError, UsageError
from qtool.numerics.qparams import SCALE_FLOOR
from qtool.runtime.module import RuntimeModel
from qtool.types import Verdict
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import NOT_CALIBRATED, convert
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import generated_for, verify
from tests.patterns import Lambda, conv

ENGINES = ["fbgemm", "x86", "onednn", "qnnpack"]


def prepared_on(model, x, backend="fbgemm", **quantize):
    return prepare(model.eval(), x, {"target": {"backend": backend}, "quantize": quantize})


def test_case_19_convert_without_calibration_names_every_observer():
    prepared = prepared_on(nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)), torch.rand(1, 5))
    with pytest.raises(
        UncalibratedError, match=r"3 of 3 observers saw no data: input, 0, 2.*--allow-uncalibrated"
    ) as caught:
        convert(prepared)
    assert caught.value.nodes == ("input", "0", "2")


def test_case_19_allowed_uncalibrated_nodes_stay_float():
    model = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    x = torch.rand(4, 5)
    converted = convert(prepared_on(model, x), allow_uncalibrated=True)
    assert {node.reason for node in converted.plan.nodes} == {NOT_CALIBRATED}
    assert torch.equal(converted(x), model(x))


def test_case_19_a_branch_without_data_is_refused_and_only_it_stays_float():
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, y):
            return self.a(x), self.b(y)

    prepared = prepare(TwoInputs().eval(), (torch.randn(2, 4), torch.randn(2, 4)), {"target": {"backend": "fbgemm"}})
    for name, point in prepared.activations.items():
        if name in ("x", "a"):
            point.observer.update(torch.randn(8))
    prepared.settle()
    with pytest.raises(UncalibratedError, match="2 of 4 observers saw no data: y, b"):
        convert(prepared)
    verdicts = {n.name: n.verdict for n in convert(prepared, allow_uncalibrated=True).plan.nodes}
    assert verdicts == {"a": Verdict.INT8, "b": Verdict.FLOAT}


def test_case_19_a_scale_of_exactly_one_is_calibrated():
    prepared = prepared_on(nn.Linear(4, 4), torch.zeros(1, 4), backend="qnnpack")
    calibrate(prepared, [torch.tensor([[0.0, 255.0, 1.0, 2.0]])])
    assert float(prepared.activations["input"].fake_quantize.scale) == 1.0
    assert convert(prepared).plan.int8_nodes()


def test_an_empty_iterable_is_no_calibration():
    prepared = prepared_on(nn.Linear(4, 4), torch.zeros(1, 4))
    with pytest.raises(UncalibratedError, match="no batch to calibrate on"):
        calibrate(prepared, [])


@pytest.mark.parametrize("engine", ENGINES)
def test_case_13_fake_quantized_and_converted_agree(engine):
    """A lone convolution and a small perceptron: at most one step at every node, none where it is only rounded."""
    for model, x in (
        (nn.Conv2d(3, 3, 1), torch.randn(4, 3, 9, 9)),
        (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), torch.randn(64, 8)),
    ):
        prepared = prepared_on(model, x, engine)
        calibrate(prepared, [x])
        steps = verify(prepared, convert(prepared), (x * 2,))
        assert max(steps.values()) <= 1
        assert steps["input"] == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_case_13_a_lone_quantize_and_dequantize_is_exact(engine):
    """Nothing but rounding: the codes are those of the fake-quantize, also at exact ties."""
    model = nn.Sequential(nn.MaxPool2d(1), nn.Conv2d(3, 3, 1))
    steps_of_255 = (torch.arange(256.0) / 127.5 - 1).view(1, 1, 16, 16).expand(2, 3, 16, 16)
    prepared = prepared_on(model, steps_of_255, engine)
    calibrate(prepared, [steps_of_255])
    steps = verify(prepared, convert(prepared), (steps_of_255.contiguous(),))
    assert (steps["input"], steps["0"]) == (0, 0)


def test_the_reference_program_equals_the_fake_quantized_model():
    torch.manual_seed(0)
    x = torch.randn(4, 4, 9, 9)
    prepared = prepared_on(nn.Sequential(conv(), nn.ReLU(), conv(8, 4)), x)
    calibrate(prepared, [x])
    converted = convert(prepared)
    assert torch.equal(converted(x * 3), prepared(x * 3))
    assert set(verify(prepared, converted, (x,), use_reference=True).values()) == {0}


def test_another_backend_takes_its_own_ranges_from_the_same_data():
    torch.manual_seed(0)
    model, x = nn.Sequential(conv(), nn.ReLU(), conv(8, 4)), torch.randn(4, 4, 9, 9)
    for_fbgemm = prepared_on(model, x, "fbgemm")
    for_qnnpack = prepared_on(model, x, "qnnpack")
    for prepared in (for_fbgemm, for_qnnpack):
        calibrate(prepared, [x])
    moved = convert(for_fbgemm, "qnnpack")
    assert moved.stamp.backends == ("qnnpack",)
    assert {edge.spec.qmax for edge in moved.plan.edges} == {255}
    assert torch.equal(moved(x), convert(for_qnnpack)(x))


def test_an_unknown_backend_is_named_with_the_nearest():
    prepared = prepared_on(nn.Linear(4, 4), torch.zeros(1, 4))
    with pytest.raises(UsageError, match=r"'qnpack'.*'qnnpack'"):
        convert(prepared, "qnpack")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_skipped_layer_is_bit_equal_to_the_float_one(engine):
    """Case 52: with a dequantize before it."""
    torch.manual_seed(0)
    model, x = nn.Sequential(conv(), nn.ReLU(), conv(8, 4)).eval(), torch.randn(2, 4, 9, 9)
    prepared = prepared_on(model, x, engine, skip=["2"])
    calibrate(prepared, [x])
    runtime = RuntimeModel(convert(prepared))
    seen = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if str(n.target) == "aten.conv2d.default":
                seen["input"] = self.fetch_args_kwargs_from_env(n)[0][0]
            return result

    found = Recorder(runtime.body).run(x, enable_io_processing=False)
    assert torch.equal(found[0], model[2](seen["input"]))


def test_generated_inputs_reach_both_ends_of_the_calibrated_range():
    x = torch.randn(4, 4, 9, 9)
    prepared = prepared_on(conv(), x)
    calibrate(prepared, [x])
    (inputs,) = generated_for(prepared)
    assert inputs.shape == (4, 4, 9, 9)
    assert inputs.min() < x.min()
    assert inputs.max() > x.max()


def test_nan_in_calibration_names_edge_and_batch():
    prepared = prepared_on(nn.Linear(2, 2), torch.zeros(1, 2))
    bad = torch.tensor([[1.0, torch.nan]])
    with pytest.raises(NonFiniteError, match=r"batch 1: at node 'input': 1 NaN"):
        calibrate(prepared, [torch.randn(3, 2), bad])


class Indexed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, i):
        return self.linear(x)[:, i + 1], self.linear(x)[:, torch.arange(4) + 0], i + 1


@torch.no_grad()
@pytest.mark.parametrize("engine", ENGINES)
def test_case_29_integers_keep_their_dtype_and_the_numbers_hold(engine):
    torch.manual_seed(0)
    model, x, i = Indexed().eval(), torch.randn(64, 4), torch.tensor([0, 2])
    prepared = prepare(model, (x, i), {"target": {"backend": engine}}, dynamic_batch=False)
    calibrate(prepared, [(x, i)])
    converted = convert(prepared)
    expected, found = model(x, i), RuntimeModel(converted)(x, i)
    assert found[2].dtype is torch.int64
    assert torch.equal(found[2], expected[2])
    step = float(prepared.activations["linear"].fake_quantize.scale)
    for one, other in zip(expected[:2], found[:2], strict=True):
        assert float((one - other).abs().max()) <= 4 * step


def test_case_18_moved_values_keep_their_scale_in_the_converted_program():
    torch.manual_seed(0)
    model = Lambda(lambda m, x: m.a(x)[:, :4] + m.a(x)[:, 4:], a=nn.Conv2d(3, 8, 3, padding=1)).eval()
    x = torch.randn(1, 3, 32, 32)
    prepared = prepare(model, x, {"target": {"backend": "fbgemm"}})
    calibrate(prepared, [x])
    converted = convert(prepared)
    grids = {
        node.meta["custom"]["qtool"]["edge"]: node.args[1:3]
        for node in converted.exported.graph.nodes
        if str(node.target) == "quantized_decomposed.quantize_per_tensor.default"
    }
    inputs = {node.output: node.inputs[0] for node in converted.plan.nodes if node.op == "layout"}
    assert len(inputs) == 4  # a slice of each of two dimensions, twice
    assert all(grids[output] == grids[source] for output, source in inputs.items())


@pytest.mark.parametrize("engine", ENGINES)
def test_case_21_a_dead_channel_gives_its_bias_and_a_bias_of_zeros_nothing(engine):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(36, 5))
    model[0].weight.data[1], model[0].bias.data[1] = 0.0, 0.7
    model[2].bias.data.zero_()
    x = torch.randn(8, 3, 3, 3)
    prepared = prepared_on(model, x, engine)
    calibrate(prepared, [x])
    converted = convert(prepared)
    found = prepared.parameters_found()
    assert all(float(qparams.scale.min()) >= SCALE_FLOOR for qparams in found.activations.values())
    assert all(float(weight.qparams.scale.min()) >= SCALE_FLOOR for weight in found.weights.values())
    step = float(found.activations["0"].scale)
    dead = prepared_on(nn.Sequential(model[0]), x, engine)
    calibrate(dead, [x])
    for runtime in (convert(dead), RuntimeModel(convert(dead))):
        assert float((runtime(x)[:, 1] - 0.7).abs().max()) <= step
    answers = RuntimeModel(converted)(x)
    assert answers.isfinite().all()
    assert max(verify(prepared, converted, (x,)).values()) <= 1


def test_case_42_a_model_inside_a_wrapper_is_converted_with_a_note():
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    prepared = prepare(nn.Linear(6, 3), x, {"target": {"backend": "fbgemm"}, "quantize": {"mode": "qat"}})
    calibrate(prepared, [x])
    with pytest.warns(QtoolWarning, match="convert takes the model inside of the DataParallel"):
        converted = convert(nn.DataParallel(prepared))
    assert torch.equal(converted(x), prepared(x))
