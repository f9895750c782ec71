import collections
import io
import zipfile

import pytest
import torch
from torch import nn

from qtool.errors import FileFormatError
from qtool.readers.facts import Compute, FileKind, Role
from qtool.readers.pickles.content import MAX_DEPTH, MAX_PARTS
from qtool.readers.risks import RiskKind
from qtool.types import Op
from tests.readers.pickles.samples import (
    bytes_of,
    dynamic,
    eager,
    facts_of,
    graph,
    mlp,
    nodes_of,
    saved,
    trained,
)

BOTH_FORMS = pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "older"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, groups=1), nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, 2, bias=False)
        self.emb = nn.Embedding(3, 4)
        self.register_buffer("anchors", torch.arange(4))
        self.extra = [torch.ones(2)]


def changed(data, **entries):
    """Return an archive with entries changed, added, or left out (None)."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        content = {name: old.read(name) for name in old.namelist()}
        content |= {f"archive/{name.replace('__', '/')}": value for name, value in entries.items()}
        for name, value in content.items():
            if value is not None:
                new.writestr(name, value)
    return stream.getvalue()


def c_order(shape):
    return torch.empty(shape, device="meta").stride()


def integers(tensor):
    return tensor.int_repr() if tensor.is_quantized else tensor


def same_bytes(data, expected):
    """Compare each tensor with torch's, bit for bit."""
    found = bytes_of(data)
    for name, tensor in expected.items():
        facts, content = found[name]
        assert facts.shape == tuple(tensor.shape)
        elements = torch.frombuffer(bytearray(content), dtype=integers(tensor).dtype)
        assert torch.equal(elements.as_strided(facts.shape, facts.strides or c_order(facts.shape)), integers(tensor))
    return found


@BOTH_FORMS
def test_a_state_dict_bit_for_bit(options):
    values = mlp().state_dict() | {"half.weight": torch.randn(3, 2).half(), "n": torch.tensor(3)}
    data = saved(values, **options)
    assert set(same_bytes(data, torch.load(io.BytesIO(data)))) == set(values)
    facts = facts_of(data)
    assert (facts.kind, facts.risks) == (FileKind.CHECKPOINT, ())
    assert (facts.model.producer, facts.model.form) == ("torch", "float state dict")
    assert dict(facts.model.bytes_by_dtype) == {"float32": 4 * (64 * 32 * 2 + 96), "int64": 8, "float16": 12}


@BOTH_FORMS
def test_a_quantized_state_dict_bit_for_bit(options):
    data = saved(eager().state_dict(), **options)
    expected = {name: value for name, value in torch.load(io.BytesIO(data)).items() if isinstance(value, torch.Tensor)}
    found = same_bytes(data, expected)
    weight = expected["features.0.weight"]
    scales, content = found["features.0.weight.scale"]
    assert scales.dtype == "float64"
    assert content == weight.q_per_channel_scales().numpy().tobytes()


@BOTH_FORMS
def test_the_state_of_a_training_beside_the_model(options):
    data = saved(trained(), **options)
    facts = facts_of(data)
    assert facts.model.form == "float state dict with optimizer state"
    assert [node.name for node in facts.model.nodes] == ["0", "2"]
    assert [node.op for node in facts.model.nodes] == [Op.LINEAR, Op.LINEAR]
    expected = torch.load(io.BytesIO(data))
    same_bytes(
        data,
        {f"model.{name}": value for name, value in expected["model"].items()}
        | {"optimizer.state.0.exp_avg": expected["optimizer"]["state"][0]["exp_avg"]},
    )


def test_two_models_in_one_file_keep_their_names():
    facts = facts_of(saved({"model": mlp().state_dict(), "ema": mlp().state_dict()}))
    assert [node.name for node in facts.model.nodes] == ["model.0", "model.2", "ema.0", "ema.2"]


def test_tensors_that_share_their_bytes_have_one_place():
    tied = torch.randn(8, 8)
    facts = facts_of(saved({"a.weight": tied, "b.weight": tied, "c.weight": tied[4:]}))
    first, second, part = (tensor.place for tensor in facts.model.tensors)
    assert first == second
    assert (part.part, part.offset) == (first.part, 128)
    assert facts.model.bytes_by_dtype == (("float32", 256),)


@BOTH_FORMS
def test_a_whole_module_is_read_as_data(options):
    data = saved(Net(), **options)
    facts = facts_of(data)
    assert (facts.kind, facts.model.form) == (FileKind.MODULE, "float module")
    assert f"{__name__}.Net" in [risk.detail for risk in facts.risks]
    assert {risk.kind for risk in facts.risks} == {RiskKind.PICKLE_CALL}
    nodes = nodes_of(data)
    assert {name: node.target.rpartition(".")[2] for name, node in nodes.items()} == {
        "features.0": "Conv2d",
        "features.1": "BatchNorm2d",
        "fc": "Linear",
        "emb": "Embedding",
    }
    assert (nodes["features.0"].op, nodes["features.0"].groups) == (Op.CONV2D, 1)
    assert (nodes["fc"].op, nodes["emb"].op) == (Op.LINEAR, None)
    same_bytes(data, Net.state_dict(torch.load(io.BytesIO(data), weights_only=False)))
    assert "extra.0" in bytes_of(data)


def test_a_module_in_a_dict():
    facts = facts_of(saved({"epoch": 1, "net": mlp()}))
    assert facts.kind is FileKind.CHECKPOINT
    assert facts.model.form == "float module"
    assert [node.name for node in facts.model.nodes] == ["0", "2"]


def test_float_layers_by_their_shapes_alone():
    values = collections.OrderedDict()
    for name, module in {
        "conv1d": nn.Conv1d(3, 4, 3), "conv2d": nn.Conv2d(3, 4, 3), "conv3d": nn.Conv3d(3, 4, 3),
        "conv_transpose2d": nn.ConvTranspose2d(3, 4, 3), "linear": nn.Linear(3, 4), "norm": nn.LayerNorm(4),
        "batch_norm": nn.BatchNorm2d(4), "weight": nn.Embedding(3, 4), "lstm": nn.LSTM(3, 4),
        "mha": nn.MultiheadAttention(4, 2),
    }.items():  # fmt: skip
        values |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    nodes = nodes_of(saved(values))
    for name in ("conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear"):
        assert nodes[name].op == name
        assert nodes[name].operand(Role.BIAS).tensor.name == f"{name}.bias"
    assert [nodes[name].op for name in ("norm", "batch_norm", "weight")] == [None, None, None]
    assert nodes["batch_norm"].target == "batch_norm"
    assert nodes["lstm.weight_hh_l0"].op is nodes["mha.in_proj_weight"].op is nodes["mha.out_proj"].op is Op.LINEAR
    assert {node.compute for node in nodes.values()} == {Compute.FLOAT}


def test_lightning_is_the_producer():
    facts = facts_of(saved({"pytorch-lightning_version": "2.1.0", "state_dict": mlp().state_dict()}))
    assert facts.model.producer == "pytorch-lightning 2.1.0"


def test_a_storage_that_is_not_there_is_a_risk():
    facts = facts_of(changed(saved(mlp().state_dict()), data__0=None))
    assert [(risk.kind, risk.detail) for risk in facts.risks] == [
        (RiskKind.MISSING_DATA, "storage '0' is not in the file")
    ]
    assert facts.model.tensors[0].place is None


def test_a_storage_that_is_too_short_is_an_error():
    with pytest.raises(FileFormatError, match=r"data: storage '0' is said to have 8192 bytes, and has 100"):
        facts_of(changed(saved(mlp().state_dict()), data__0=b"\0" * 100))


def test_big_endian_bytes_are_not_taken_for_little_endian_ones():
    facts = facts_of(changed(saved(mlp().state_dict()), byteorder=b"big"))
    assert {tensor.place for tensor in facts.model.tensors} == {None}
    assert facts.model.not_understood == ("its tensors are stored big-endian, and are not looked at",)
    assert facts.risks == ()


def test_what_is_nested_too_deep_is_left_out_and_said():
    value = inner = {}
    for _ in range(MAX_DEPTH + 5):
        inner["a"] = inner = {}
    inner["weight"] = torch.ones(1)
    model = facts_of(saved(value)).model
    assert model.tensors == ()
    assert len(model.not_understood) == 1


def test_a_long_list_is_left_out_and_said():
    model = facts_of(saved([[1]] + [{"a": [2]} for _ in range(MAX_PARTS // 2)])).model
    assert model.not_understood == (f"what comes after {MAX_PARTS} dicts, lists and objects",)


def test_cycles_end():
    value = {"weight": torch.ones(2, 2)}
    value["itself"] = [value]
    assert [tensor.name for tensor in facts_of(saved(value)).model.tensors] == ["weight"]


def test_case_25_scale_and_zero_point_of_any_dtype():
    values = {
        "a.weight": torch.ones(2, 3), "a.weight_fake_quant.fake_quant_enabled": torch.tensor([1], dtype=torch.uint8),
        "a.weight_fake_quant.scale": torch.tensor([0.5], dtype=torch.float64),
        "a.weight_fake_quant.zero_point": torch.tensor([3], dtype=torch.int64),
        "b.scale": torch.tensor(0.25, dtype=torch.float16), "b.zero_point": torch.tensor(7, dtype=torch.int32),
    }  # fmt: skip
    nodes = nodes_of(saved(values))
    weight = nodes["a"].operand(Role.WEIGHT).quantization
    output = nodes["b"].operand(Role.OUTPUT).quantization
    assert (weight.scale, weight.zero_point) == ((0.5,), (3,))
    assert (output.scale, output.zero_point) == ((0.25,), (7,))


@pytest.mark.filterwarnings("ignore:`torch.jit.s")
def test_case_58_what_torch_refuses_by_default_is_named_and_the_rest_read():
    packed, tensors = saved(dynamic().state_dict()), saved(graph().state_dict())
    assert {risk.detail for risk in facts_of(packed).risks} == {"torch.ScriptObject"}
    with pytest.raises(Exception, match="ScriptObject"):
        torch.load(io.BytesIO(packed))
    assert facts_of(tensors).risks == ()
    torch.load(io.BytesIO(tensors))
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), stream)
    assert facts_of(stream.getvalue()).kind is FileKind.TORCHSCRIPT


def test_case_59_a_pickled_quantized_model_is_recognised():
    data = saved(eager())
    facts = facts_of(data)
    assert (facts.kind, facts.model.form) == (FileKind.MODULE, "statically quantized module")
    assert facts.model.producer == "torch.ao (eager)"
    assert nodes_of(data)["features.0"].compute is Compute.STATIC


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_case_60_a_quantized_state_dict_has_no_float_copy():
    model = nn.Sequential(nn.Linear(256, 256))
    as_float = facts_of(saved(model.state_dict()))
    quantized = facts_of(saved(torch.ao.quantization.quantize_dynamic(model, {nn.Linear}).state_dict()))
    assert dict(as_float.model.bytes_by_dtype)["float32"] == 4 * (256 * 256 + 256)
    assert dict(quantized.model.bytes_by_dtype) == {"int8": 256 * 256, "float32": 4 * (256 + 1), "int64": 8}
