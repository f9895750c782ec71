"""What people do to a model, and what is left of its stamps afterwards: the table of docs/stamp.md, row by row."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd

import qtool
from qtool.exporters.formats import Format
from qtool.inspection.nodes import Origin
from qtool.lowering.engine_switch import packing_for
from qtool.readers.archive import read_archive
from qtool.readers.facts import FileKind
from qtool.readers.marks import MARK, Marks, collect
from qtool.readers.onnx_graph import open_onnx
from qtool.readers.program_marks import program_facts
from qtool.readers.script_marks import script_facts
from qtool.readers.source import opened_source
from qtool.runtime.store import to_bytes
from qtool.workflows.export import exported_files
from tests.runtime.training_steps import batch, prepared_for_training, step

ENGINE = "onednn"
"""Its depthwise kernel is exact with all 8 bits, so the sample has nodes of both kinds."""


@dataclass(frozen=True)
class Left:
    """What can still be read: the stage in the file's stamp, and whether each int8 node is reduced, by its carrier."""

    file: str | None
    nodes: dict[str, bool]
    reduce_range: dict[str, bool]


@functools.cache
def converted():
    """A model that was prepared, calibrated, trained and converted."""
    prepared = prepared_for_training(backend=ENGINE)
    qtool.calibrate(prepared, [batch()[0]])
    step(prepared.train(), torch.optim.SGD(prepared.parameters(), lr=0.01))
    return qtool.convert(prepared.eval())


@functools.cache
def exported(name):
    return exported_files(converted(), Format(name), None).data


def sample():
    return batch()[0]


def stamped():
    """The truth: reduce_range of each int8 node."""
    return {node.name: node.reduce_range for node in converted().stamp.int8_nodes()}


def left_in_file(data: bytes) -> Left:
    """Return what a file says, and what its graph says, each read by itself."""
    report = qtool.inspect(data)
    marks = _marks(report.kind, data)
    stamped = [node for node in report.int8_nodes() if node.origin is Origin.STAMPED]
    said = {} if report.stamp is None else {node.name: node.reduce_range for node in stamped}
    is_lost = report.stamp is None or report.is_recovered
    return Left(None if is_lost else report.stamp.stage.value, _reduced(marks), said)


def _marks(kind, data) -> Marks:
    if kind is FileKind.ONNX:
        with opened_source(data) as source:
            return open_onnx(source).facts.graph.marks
    readers = {FileKind.PT2: program_facts, FileKind.TORCHSCRIPT: script_facts}
    if kind not in readers:
        return Marks()
    with read_archive(data) as archive:
        return readers[kind](archive).marks


def _reduced(marks):
    return {mark.name: mark.reduce_range for mark in marks.nodes}


def left_in_text(text: str) -> Left:
    """Return what the source of compiled code says."""
    found = _reduced(collect(match[0] for match in MARK.finditer(text)))
    return Left(None, found, found)


# --- models in memory


def in_memory(model) -> Left:
    return left_in_file(to_bytes(model))


def state_dict():
    buffer = io.BytesIO()
    torch.save(converted().state_dict(), buffer)
    return left_in_file(buffer.getvalue())


def deepcopied():
    return in_memory(copy.deepcopy(converted()))


def pickled():
    return in_memory(pickle.loads(pickle.dumps(converted())))


def moved():
    return in_memory(copy.deepcopy(converted()).to("cpu", memory_format=torch.channels_last))


def saved_by_qtool():
    return left_in_file(to_bytes(converted()))


# --- .pt2


def program(data=None):
    return torch.export.load(io.BytesIO(exported("pt2") if data is None else data))


def program_bytes(exported_program) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(exported_program, buffer)
    return buffer.getvalue()


class Wrapped(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x * 1.0) + 1.0


def converted_saved_again():
    return left_in_file(program_bytes(program(to_bytes(converted()))))


def converted_wrapped():
    body = program(to_bytes(converted())).module()
    return left_in_file(program_bytes(torch.export.export(Wrapped(body), (sample(),))))


def saved_again():
    return left_in_file(program_bytes(program()))


def wrapped():
    return left_in_file(program_bytes(torch.export.export(Wrapped(program().module()), (sample(),))))


def decomposed():
    return left_in_file(program_bytes(program().run_decompositions()))


def without_dead_code():
    module = program().module()
    module.graph.eliminate_dead_code()
    module.recompile()
    return left_in_text(module.code)


def compiled_graph():
    graphs = []

    def keep(graph_module, _):
        graphs.append(graph_module.print_readable(print_output=False))
        return graph_module.forward

    module = program().module()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=aot_autograd(fw_compiler=keep))(sample())
    return left_in_text("".join(graphs))


def inductor(**config):
    module = program().module()
    torch._dynamo.reset()
    with torch.no_grad(), torch._inductor.config.patch(config):
        _, code = torch._inductor.utils.run_and_get_code(torch.compile(module), sample())
    return left_in_text("".join(code))


def inductor_frozen():
    return inductor(freezing=True)


def inductor_package():
    whole = program()
    whole._example_inputs = ((sample(),), {})
    with TemporaryDirectory() as folder:
        path = torch._inductor.aoti_compile_and_package(whole, package_path=f"{folder}/package.pt2")
        with zipfile.ZipFile(path) as archive:
            texts = [archive.read(name).decode("latin-1") for name in archive.namelist() if name.endswith(".cpp")]
    return left_in_text("".join(texts))


# --- TorchScript


def script():
    with packing_for(ENGINE):
        return torch.jit.load(io.BytesIO(exported("torchscript")))


def script_bytes(module) -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    return buffer.getvalue()


def left_in_script(module) -> Left:
    """Return what is left once a module has been saved by torch; it must still run."""
    with packing_for(ENGINE):
        again = torch.jit.load(io.BytesIO(script_bytes(module)))
    assert again(sample()).shape == (len(sample()), 5)
    return left_in_file(script_bytes(again))


def script_exported():
    return left_in_file(exported("torchscript"))


def scripted():
    return left_in_script(torch.jit.script(script()))


def traced():
    return left_in_script(torch.jit.trace(script(), sample()))


def frozen():
    return left_in_script(torch.jit.freeze(script().eval()))


def script_wrapped():
    return left_in_script(torch.jit.script(Wrapped(script())))


def trace_wrapped():
    return left_in_script(torch.jit.trace(Wrapped(script()), sample()))


def optimized():
    # Saved code of an optimized module may hold layouts that cannot be loaded again: its graph is what counts.
    return left_in_text(str(torch.jit.optimize_for_inference(script().eval()).graph))


def lite(with_stamp=True):
    files = {"qtool/stamp.json": ""}
    with packing_for(ENGINE):
        module = torch.jit.load(io.BytesIO(exported("torchscript")), _extra_files=files)
    return left_in_file(module._save_to_buffer_for_lite_interpreter(files if with_stamp else {}))


def lite_without_stamp():
    return lite(with_stamp=False)


def script_kept():
    files = {"qtool/stamp.json": ""}
    with packing_for(ENGINE):
        module = torch.jit.load(io.BytesIO(exported("torchscript")), _extra_files=files)
    buffer = io.BytesIO()
    torch.jit.save(module, buffer, _extra_files=files)
    return left_in_file(buffer.getvalue())


def script_saved_again():
    return left_in_script(script())


# --- ONNX


def onnx_saved():
    return left_in_file(onnx.load_model_from_string(exported("onnx")).SerializeToString())


def onnx_without_metadata():
    proto = onnx.load_model_from_string(exported("onnx"))
    del proto.metadata_props[:]
    return left_in_file(proto.SerializeToString())


def onnx_optimized():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        onnxruntime.InferenceSession(exported("onnx"), options, providers=["CPUExecutionProvider"])
        return left_in_file(Path(options.optimized_model_filepath).read_bytes())


# --- the table


@dataclass(frozen=True)
class Row:
    """One line of the table; the last three say whether it survives."""

    form: str
    what: str
    do: object
    file: bool
    node: bool
    reduce_range: bool
    slow: bool = False


SURVIVAL = (
    Row("qtool model", "state_dict", state_dict, False, False, False),
    Row("qtool model", "copy.deepcopy", deepcopied, True, True, True),
    Row("qtool model", "pickle", pickled, True, True, True),
    Row("qtool model", ".to()", moved, True, True, True),
    Row("qtool .pt2", "prepare, train, convert, save", saved_by_qtool, True, True, True),
    Row("qtool .pt2", "torch.export load and save", converted_saved_again, False, True, True),
    Row("qtool .pt2", "wrapped and exported again", converted_wrapped, False, False, False),
    Row("exported .pt2", "prepare, train, convert, export", lambda: left_in_file(exported("pt2")), True, True, True),
    Row("exported .pt2", "torch.export load and save", saved_again, False, True, True),
    Row("exported .pt2", "wrapped and exported again", wrapped, False, True, True),
    Row("exported .pt2", "run_decompositions", decomposed, False, True, True),
    Row("exported .pt2", "dead-code elimination", without_dead_code, False, True, True),
    Row("exported .pt2", "torch.compile: its graph", compiled_graph, False, True, True),
    Row("exported .pt2", "torch.compile: Inductor's code", inductor, False, True, True, slow=True),
    Row("exported .pt2", "Inductor with freezing", inductor_frozen, False, True, True, slow=True),
    Row("exported .pt2", "AOTInductor package", inductor_package, False, True, True, slow=True),
    Row("TorchScript", "prepare, train, convert, export", script_exported, True, True, True),
    Row("TorchScript", "script", scripted, False, True, True),
    Row("TorchScript", "trace", traced, False, True, True),
    Row("TorchScript", "freeze", frozen, False, True, True),
    Row("TorchScript", "wrapped and scripted", script_wrapped, False, True, True),
    Row("TorchScript", "wrapped and traced", trace_wrapped, False, True, True),
    Row("TorchScript", "optimize_for_inference", optimized, False, True, True),
    Row("TorchScript", ".ptl with its extra files", lite, True, True, True),
    Row("TorchScript", ".ptl without", lite_without_stamp, False, True, True),
    Row("TorchScript", "load and save with its extra files", script_kept, True, True, True),
    Row("TorchScript", "load and save without", script_saved_again, False, True, True),
    Row("ONNX", "prepare, train, convert, export", lambda: left_in_file(exported("onnx")), True, True, True),
    Row("ONNX", "onnx load and save", onnx_saved, True, True, True),
    Row("ONNX", "the model's metadata removed", onnx_without_metadata, False, True, True),
    Row("ONNX", "ONNX Runtime's optimized model", onnx_optimized, True, False, True),
)  # fmt: skip


def quietly(do) -> Left:
    """Run one transformation without the warnings of torch's about torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return do()
