"""The model in a TorchScript archive: its tensors, and its layers as the code tells them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from qtool.readers.facts import Compute, ModelFacts
from qtool.readers.pickles.machine import MAX_PICKLE_BYTES, read_pickle
from qtool.readers.risks import Risk, RiskKind
from qtool.readers.scripts.code import MAX_BYTES, code_texts, read_code
from qtool.readers.scripts.objects import Objects, named
from qtool.readers.scripts.operators import Operators
from qtool.readers.scripts.run import Run, StoppedError
from qtool.readers.scripts.values import Module
from qtool.readers.traced import Traced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qtool.readers.archive import Archive
    from qtool.readers.facts import Node
    from qtool.readers.pickles.values import Instance
    from qtool.readers.scripts.code import Code

_DATA, _CONSTANTS, _BYTECODE = "data.pkl", "constants.pkl", "bytecode.pkl"
_HARMLESS: Final = ("__torch__", "torch.jit._pickle")
_REACHES_OUT: Final = re.compile(
    r"\b(?:(?:aten(?:\.|::)|torch\.)(?:save|from_file)"
    r"|ops\.(?!(?:aten|prim|quantized|onednn|mkldnn|mkldnn_prepacked|prepacked|inductor|torchvision|torchaudio)\.)\w+\.\w+)\b"
)
_FORMS: Final = (
    (Compute.STATIC, "quantized program"),
    (Compute.DYNAMIC, "dynamically quantized program"),
    (Compute.FAKE_QUANTIZED, "training program (fake-quantized)"),
    (Compute.WEIGHT_ONLY, "program with quantized weights"),
)
_MAX_INPUTS: Final = 64


def script_model(archive: Archive) -> ModelFacts:
    """Return the tensors and layers of a TorchScript archive; its code is followed, and never run.

    Raises:
        FileFormatError: an entry is damaged, too large or no pickle.
    """
    texts = code_texts(archive)
    code = read_code(texts)
    data, risks = _pickled(archive, _DATA)
    constants, more = _pickled(archive, _CONSTANTS)
    _, of_bytecode = _pickled(archive, _BYTECODE)
    stored, fixed = Objects(archive, "data"), Objects(archive, "constants")
    operators = Operators()
    values = fixed.value(constants, "CONSTANTS")
    listed = values if isinstance(values, list) else []
    run = Run(code, {f"c{index}": each for index, each in enumerate(listed)}, operators)
    left_out = dict.fromkeys(_followed(run, code, stored, data))
    nodes = tuple(draft.node() for draft in operators.drafts)
    return ModelFacts(
        producer=_producer(archive),
        form=_form(nodes, archive),
        tensors=(*stored.tensors.values(), *fixed.tensors.values()),
        nodes=nodes,
        risks=(*risks, *more, *of_bytecode, *_code_risks(archive, texts)),
        not_understood=(*run.not_followed, *left_out, *_unread(archive, texts)),
    )


def _followed(run: Run, code: Code, objects: Objects, root: object) -> Iterator[str]:
    """Make the modules, restore those that restore themselves, and follow `forward`; yield what had to be left out."""
    restoring: list[tuple[Module, object]] = []

    def make(instance: Instance, path: str) -> None:
        module = objects.value(instance, path)
        if not isinstance(module, Module):
            return
        cls = code.classes.get(module.cls)
        if cls is not None and "__setstate__" in cls.methods:
            restoring.append((module, instance.state))
        elif isinstance(instance.state, dict):
            for key, raw in instance.state.items():
                where = f"{path}.{key}" if path else str(key)
                module.attributes[str(key)] = objects.value(raw, where)

    named(root, "", make)
    try:
        for module, state in restoring:
            run.method(module, "__setstate__", [objects.value(state, module.path)])
        top = objects.value(root, "")
        if isinstance(top, Module):
            run.method(top, "forward", [Traced(name=f"input {index}") for index in range(_MAX_INPUTS)])
    except StoppedError:
        yield "code that is longer, or calls deeper, than is followed"


def _pickled(archive: Archive, name: str) -> tuple[Any, tuple[Risk, ...]]:
    if name not in archive.names:
        return None, ()
    found = read_pickle(archive.read(name, limit=MAX_PICKLE_BYTES), where=archive.where, entry=name)
    return found.value, tuple(risk for risk in found.risks if not risk.detail.startswith(_HARMLESS))


def _code_risks(archive: Archive, texts: Mapping[str, str]) -> Iterator[Risk]:
    """Yield the operators in the code that read or write files, or are of a library that is not torch's."""
    if _BYTECODE in archive.names:
        texts = {**texts, _BYTECODE: archive.read(_BYTECODE, limit=MAX_PICKLE_BYTES).decode("utf-8", "replace")}
    for name, text in texts.items():
        for word in dict.fromkeys(_REACHES_OUT.findall(text)):
            yield Risk(RiskKind.SCRIPT, name, word)


def _unread(archive: Archive, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of code that were too long to be read."""
    for name in archive.names:
        if name.startswith("code/") and name.endswith(".py") and name not in texts:
            yield f"{name}: more than {MAX_BYTES >> 20} MiB of code"


def _producer(archive: Archive) -> str:
    return "torch.jit, mobile" if _BYTECODE in archive.names else "torch.jit"


def _form(nodes: tuple[Node, ...], archive: Archive) -> str:
    found = {node.compute for node in nodes}
    words = next((words for compute, words in _FORMS if compute in found), "")
    return f"{words}, for the lite interpreter".lstrip(", ") if _BYTECODE in archive.names else words
