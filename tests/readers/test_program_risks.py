import io
import json
import zipfile

import pytest

from qtool.errors import FileFormatError
from qtool.readers.archive import read_archive
from qtool.readers.program_risks import RiskKind, find_risks
from qtool.stamp.schema import TRAINING_GRAPH
from tests.readers.sample_files import GRAPH, WEIGHTS_TABLE, program_entries, zip_bytes


def risks_of(changes: dict[str, bytes]) -> list[tuple[RiskKind, str]]:
    with read_archive(zip_bytes(program_entries() | changes)) as archive:
        return [(risk.kind, risk.detail) for risk in find_risks(archive)]


def graph_with(**changes: object) -> dict[str, bytes]:
    graph = json.loads(program_entries()[GRAPH])
    return {GRAPH: json.dumps(graph | changes).encode()}


def node_with(**changes: object) -> dict[str, bytes]:
    graph = json.loads(program_entries()[GRAPH])
    graph["graph_module"]["graph"]["nodes"][0] |= changes
    return {GRAPH: json.dumps(graph).encode()}


def test_what_torch_writes_for_a_plain_model_has_no_risk():
    assert risks_of({}) == []


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("data/sample_inputs/model.pt", b"PK", RiskKind.SAMPLE_INPUTS),
        ("data/weights/model.pt", b"", RiskKind.PICKLED_TENSOR),
        ("data/constants/model.pt", b"", RiskKind.PICKLED_TENSOR),
        ("data/constants/custom_obj_0", b"", RiskKind.CUSTOM_OBJECT),
        ("data/constants/opaque_obj_0", b"", RiskKind.CUSTOM_OBJECT),
        ("data/constants/custom_obj_/x", b"", RiskKind.CUSTOM_OBJECT),
        ("data/sample_inputs/a/b.pt", b"PK", RiskKind.SAMPLE_INPUTS),
        ("data/weights/a/b.pt", b"", RiskKind.PICKLED_TENSOR),
        ("data/weights/a/b_weights_config.json", b'[{"use_pickle": true}]', RiskKind.PICKLED_TENSOR),
        ("data/constants/x_constants_config.json", b'{"path_name": "opaque_obj_1"}', RiskKind.CUSTOM_OBJECT),
        ("data/aotinductor/model/x.so", b"", RiskKind.COMPILED_CODE),
    ],
)
def test_entries_that_loading_unpickles_or_runs(name, data, kind):
    assert [found for found, _ in risks_of({name: data})] == [kind]


@pytest.mark.parametrize("flag", [True, 1, "no", None])
def test_a_pickled_tensor(flag):
    table = json.loads(program_entries()[WEIGHTS_TABLE])
    table["config"]["stem.scale"]["use_pickle"] = flag
    assert risks_of({WEIGHTS_TABLE: json.dumps(table).encode()}) == [(RiskKind.PICKLED_TENSOR, "weight_1")]


@pytest.mark.parametrize(
    "target",
    [
        "torch.load",
        "torch.hub.load",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.__class__",
        "torch.ops.aten.add.__call__",
        "torch.ops.aten.add.Tensor.__class__",
        "torch.ops.higher_order.call_torchbind",
        "torch.ops.mine.op.default",
        "torch.sym_not.__globals__",
        "_operator.call",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.__loader__.load_module",
        "os.system",
        "#ext:op",
        "",
        None,
    ],
)
def test_operators_that_are_not_known_to_be_harmless(target):
    assert risks_of(node_with(target=target)) == [(RiskKind.OPERATOR, str(target))]


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.conv2d.default",
        "torch.ops.aten.add_.Tensor",
        "torch.ops.aten.__and__.Tensor",
        "torch.ops.aten._assert_async.msg",
        "torch.ops.quantized_decomposed.quantize_per_tensor.default",
        "torch.ops.quantized_decomposed.dequantize_per_channel.default",
        "torch.ops.torchvision.nms.default",
        "torch.ops.higher_order.cond",
        "torch.sym_max",
        "_operator.getitem",
        "math.ceil",
    ],
)
def test_operators_of_plain_models(target):
    assert risks_of(node_with(target=target)) == []


def test_operators_are_found_at_any_depth():
    inner = {"graph": {"nodes": [{"target": "torch.load", "name": "x"}]}, "name": "branch"}
    argument = {"name": "true_fn", "arg": {"as_graph": inner}}
    assert risks_of(node_with(inputs=[argument])) == [(RiskKind.OPERATOR, "torch.load")]
    assert risks_of(node_with(inputs=[{"arg": {"as_operator": "torch.load"}}])) == [(RiskKind.OPERATOR, "torch.load")]


@pytest.mark.parametrize(
    "changes",
    [
        {"anything": {"expr_str": "exit()"}},
        {"anything": [[{"expr_str": 5}]]},
        {"guards_code": ["exit()"]},
        {"guards_code": "exit()"},
        {"guards_code": [None]},
        {"range_constraints": {"exit()": {}}},
        {"range_constraints": [1]},
    ],
)
def test_expressions_that_are_code(changes):
    assert [kind for kind, _ in risks_of(graph_with(**changes))] == [RiskKind.EXPRESSION]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "x\n  exit()"},
        {"name": "x y"},
        {"name": 5},
        {"forward_arg_names": ["x", "y=exit()"]},
        {"buffer_name": "b\")); exit(); (('"},
        {"parameter_name": "p\\"},
        {"tensor_constant_name": "c\x00"},
    ],
)
def test_names_that_could_be_code(changes):
    assert [kind for kind, _ in risks_of(graph_with(**changes))] == [RiskKind.NAME]


def test_names_of_modules_are_free():
    assert risks_of(graph_with(parameter_name="blocks.0.a-b c.weight", buffer_name="λ.scale", name=None)) == []


def test_custom_objects_in_the_graph():
    found = risks_of(node_with(inputs=[{"arg": {"as_custom_obj": {"name": "o", "class_fqn": "Evil"}}}]))
    assert [kind for kind, _ in found] == [RiskKind.CUSTOM_OBJECT]
    assert [kind for kind, _ in risks_of(graph_with(custom_obj_values={"o": {}}))] == [RiskKind.CUSTOM_OBJECT]


def container(kind: object, context: object) -> str:
    return json.dumps([1, {"type": kind, "context": context, "children_spec": []}])


@pytest.mark.parametrize(
    "spec",
    [
        container("builtins.tuple", "null"),
        container("builtins.dict", '["a", 1]'),
        container("collections.OrderedDict", '["z"]'),
        container(None, None),
        "",
        None,
    ],
)
def test_builtin_containers_are_plain(spec):
    assert risks_of(graph_with(in_spec=spec, out_spec=spec)) == []


@pytest.mark.parametrize(
    "spec",
    [
        container("collections.defaultdict", '{"default_factory_module": "os"}'),
        container("builtins.dict", '[{"__enum__": true, "fqn": "os:x", "name": "y"}]'),
        container("builtins.dict", "{}"),
        container("builtins.dict", "not json"),
        container("mine.Type", "null"),
        container(None, "null"),
        '[1, {"type": "builtins.tuple"}]',
        '[1, {"type": []}]',
        "not json",
        5,
        "[" * 5000,
    ],
)
def test_other_containers_are_risks(spec):
    assert [kind for kind, _ in risks_of(graph_with(in_spec=spec))] == [RiskKind.CONTAINER_TYPE]


@pytest.mark.parametrize("name", ["models/other.json", "models/a/b.json", "models/model", "models/x.txt"])
def test_every_model_in_the_archive_is_looked_at(name):
    assert [kind for kind, _ in risks_of({name: b'{"target": "torch.load"}'})] == [RiskKind.OPERATOR]


def test_one_risk_is_told_once_and_cut_to_a_line():
    nodes = [{"target": "os." + "x" * 500, "name": "a"}] * 3
    [(kind, detail)] = risks_of(graph_with(nodes=nodes))
    assert (kind, len(detail)) == (RiskKind.OPERATOR, 120)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, "{}".encode("utf-16")])
def test_a_graph_that_is_no_json_is_a_format_error(data):
    with pytest.raises(FileFormatError, match="not valid JSON"):
        risks_of({GRAPH: data})


def test_depth_is_no_problem():
    deep = b'{"a":' * 400 + b'{"target": "torch.load"}' + b"}" * 400
    assert [kind for kind, _ in risks_of({GRAPH: deep})] == [RiskKind.OPERATOR]


def test_an_archive_in_the_archive_is_looked_into():
    assert risks_of({TRAINING_GRAPH: zip_bytes(program_entries())}) == []
    inner = (
        program_entries()
        | {"data/sample_inputs/model.pt": b"PK"}
        | node_with(target="torch.ops.aten.from_file.default")
    )
    with read_archive(zip_bytes(program_entries() | {TRAINING_GRAPH: zip_bytes(inner)})) as archive:
        found = {(risk.kind, risk.entry) for risk in find_risks(archive)}
    assert found == {
        (RiskKind.SAMPLE_INPUTS, f"{TRAINING_GRAPH}/data/sample_inputs/model.pt"),
        (RiskKind.OPERATOR, f"{TRAINING_GRAPH}/{GRAPH}"),
    }


def test_an_archive_in_the_archive_with_several_folders_is_a_risk():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("evil/data/sample_inputs/model.pt", b"PK")
        archive.writestr("archive/models/model.json", b"{}")
    assert RiskKind.NAME in [kind for kind, _ in risks_of({TRAINING_GRAPH: buffer.getvalue()})]


def test_an_archive_in_the_archive_that_is_none_is_a_format_error():
    with pytest.raises(FileFormatError):
        risks_of({TRAINING_GRAPH: b"PK nothing"})
