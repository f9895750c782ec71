"""How models are called: nested and fixed arguments, other batches, layouts and modes, from threads."""

import threading

import pytest
import torch
from torch import nn

from qtool.errors import NonFiniteError, UsageError
from qtool.runtime.module import RuntimeModel
from qtool.runtime.store import from_bytes, to_bytes
from qtool.workflows.calibrate import calibrate
from qtool.workflows.convert import convert
from qtool.workflows.prepare import prepare
from qtool.workflows.verify import verify
from tests.patterns import Lambda, bn2d, conv

ENGINES = ["fbgemm", "qnnpack", "x86"]


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, doubled, parts, scale=1.0, mode=None):
        y = self.a(parts["left"]) + self.b(parts["right"][0])
        y = y * 2 if doubled else y
        return {"y": y * scale, "mode": mode}


def arguments(batch=3, *, doubled=True, scale=0.5):
    generator = torch.Generator().manual_seed(batch)
    left, right = torch.randn(2, batch, 4, generator=generator)
    return doubled, {"left": left, "right": [right]}, scale, None


@pytest.fixture(scope="module")
def called():
    torch.manual_seed(0)
    model = Calls().eval()
    prepared = prepare(model, arguments(), {"target": {"backend": "fbgemm"}})
    calibrate(prepared, [arguments(), arguments(5)])
    return model, prepared, convert(prepared)


def test_nested_and_fixed_arguments_at_every_stage(called):
    model, prepared, converted = called
    assert [stamp.name for stamp in prepared.program.inputs] == ["parts_left", "parts_right_0"]
    expected = model(*arguments(5))["y"]
    again = from_bytes(to_bytes(converted))
    for stage in (prepared, from_bytes(to_bytes(prepared)), converted, again, RuntimeModel(converted)):
        found = stage(*arguments(5))
        assert found.keys() == {"y", "mode"}
        assert found["mode"] is None
        torch.testing.assert_close(found["y"], expected, rtol=0, atol=0.1)
    assert max(verify(prepared, converted).values()) <= 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (arguments(doubled=False), r"captured as called with \(True, .*; called with \(False, "),
        (arguments(doubled=1), r"called with \(1, "),
        (arguments(scale=2.0), r"'right': \[parts_right_0\]}, 0.5, None\); called with .*2\.0"),
        (arguments()[:3], "captured as called with"),
        ((True, [*arguments()[1].values()], 0.5, None), r"called with \(True, \[parts_left, \[parts_right_0\]\]"),
        ((True, {"left": torch.zeros(3, 4), "right": [1.0]}, 0.5, None), "1 input tensors given; the model takes 2"),
    ],
)
def test_other_fixed_arguments_are_refused(called, wrong, message):
    _, prepared, converted = called
    for stage in (prepared, converted, RuntimeModel(converted)):
        with pytest.raises(UsageError, match=message):
            stage(*wrong)


@pytest.fixture(scope="module", params=ENGINES)
def runtime(request):
    torch.manual_seed(0)
    model = nn.Sequential(
        conv(3, 8, padding=1), bn2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.SiLU(), conv(8, 8, groups=8), nn.Flatten(),
        nn.Linear(8 * 6 * 6, 5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    prepared = prepare(model, x, {"target": {"backend": request.param}})
    calibrate(prepared, [x])
    converted = convert(prepared)
    return RuntimeModel(converted), converted


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_case_23_any_batch_even_an_empty_one(runtime, batch):
    model, converted = runtime
    x = torch.randn(batch, 3, 16, 16)
    assert model(x).shape == converted(x).shape == (batch, 5)
    assert torch.equal(model(x), torch.cat([model(row) for row in x.split(1)]) if batch else torch.empty(0, 5))


def test_layouts_of_the_input_change_nothing(runtime):
    model, _ = runtime
    x = torch.randn(4, 3, 16, 16)
    expected = model(x)
    wide = torch.zeros(4, 3, 32, 32)
    wide[:, :, ::2, 1::2] = x
    for same in (x.to(memory_format=torch.channels_last), wide[:, :, ::2, 1::2], x.clone().requires_grad_()):
        assert torch.equal(model(same), expected)


def test_autocast_and_the_default_dtype_change_nothing(runtime):
    model, converted = runtime
    x = torch.randn(2, 3, 16, 16)
    expected = model(x), converted(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(x), converted(x)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    torch.set_default_dtype(torch.float64)
    try:
        found = model(x), converted(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_threads_may_call_one_model(runtime):
    model, _ = runtime
    inputs = [torch.randn(2, 3, 16, 16) for _ in range(4)]
    expected = [model(x) for x in inputs]
    wrong = []

    def call(index):
        wrong.extend(index for _ in range(20) if not torch.equal(model(inputs[index]), expected[index]))

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_engines_take_turns_in_one_process():
    torch.manual_seed(0)
    model, x = nn.Sequential(conv(), nn.ReLU(), conv(8, 4)).eval(), torch.randn(2, 4, 9, 9)
    before = torch.backends.quantized.engine
    models = []
    for backend in (*ENGINES, "onednn"):
        prepared = prepare(model, x, {"target": {"backend": backend}})
        calibrate(prepared, [x])
        models.append(RuntimeModel(convert(prepared)))
        assert torch.backends.quantized.engine == before
    expected = [each(x) for each in models]
    for _ in range(2):
        assert all(torch.equal(each(x), y) for each, y in zip(models, expected, strict=True))


def test_the_default_dtype_leaves_no_trace_in_a_file():
    torch.manual_seed(0)
    model, x = nn.Sequential(conv(), nn.ReLU(), conv(8, 4)).eval(), torch.randn(2, 4, 9, 9)

    def file():
        prepared = prepare(model, x, {"target": {"backend": "fbgemm"}})
        calibrate(prepared, [x])
        return to_bytes(prepared), to_bytes(convert(prepared))

    expected = file()
    torch.set_default_dtype(torch.float64)
    try:
        found = file()
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == expected


def test_a_models_own_names_do_not_meet_those_of_qtool():
    """Also `int8`: the float weight of a layer of that name is not taken for the int8 weight of its parent."""
    torch.manual_seed(0)
    parent = conv(4, 4, padding=1)
    parent.int8 = conv(4, 4)
    layers = {"activations": conv(4, 4), "weights": conv(4, 4), "kernels": conv(4, 4), "parent": parent}
    model = Lambda(lambda m, x: m.parent.int8(m.kernels(m.weights(m.activations(m.parent(x))))), **layers).eval()
    x = torch.randn(2, 4, 12, 12)
    prepared = prepare(model, x, {"target": {"backend": "fbgemm"}, "quantize": {"skip": ["parent.int8"]}})
    calibrate(prepared, [x])
    converted = convert(prepared)
    assert max(verify(prepared, converted).values()) <= 1
    assert torch.equal(converted(x), prepared(x))


def test_nan_is_refused_where_it_would_come_out_as_a_number():
    x = torch.randn(2, 4, 8, 8)
    prepared = prepare(conv().eval(), x, {"target": {"backend": "fbgemm"}})
    calibrate(prepared, [x])
    runtime = RuntimeModel(convert(prepared))
    x[1, 2, 3, 4] = torch.nan
    assert bool(prepared(x).isnan().any())  # in float it shows
    with pytest.raises(NonFiniteError, match="input 'input' holds 1 NaN of 512 values"):
        runtime(x)
    x[1, 2, 3, 4] = torch.inf
    assert bool(runtime(x).isfinite().all())
