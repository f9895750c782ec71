"""Files whose loading with torch runs code: one for each place where torch 2.14 trusts a file, stamped as a valid one.

Each makes the folder, or the file, `marker` when its code runs. The digest in the stamp is that of the changed content:
whoever can change a file can do that too.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import torch

from qtool.stamp.digest import content_digest
from qtool.stamp.schema import STAMP_ENTRY, TRAINING_GRAPH, from_json, to_json
from tests.readers.sample_files import GRAPH, WEIGHTS_TABLE, zip_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONSTANTS_TABLE = "data/constants/model_constants_config.json"
SAMPLE_INPUTS = "data/sample_inputs/model.pt"

Entries = dict[str, bytes]


class MakesFolder:
    """Pickled, it is the call of `os.mkdir`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (self.path,)


def call_of(marker: Path) -> str:
    """Return Python that makes the marker, as an expression."""
    return f"__import__('os').mkdir('{marker}')"


def _pickled(marker: Path) -> bytes:
    return pickle.dumps(MakesFolder(str(marker)))


def _edit(entries: Entries, name: str, change: Callable[[Any], None]) -> None:
    tree = json.loads(entries[name])
    change(tree)
    entries[name] = json.dumps(tree).encode()


def _sample_inputs(entries: Entries, marker: Path) -> None:
    entries[SAMPLE_INPUTS] = _pickled(marker)


def _pickled_weight(entries: Entries, marker: Path) -> None:
    def change(table: Any) -> None:
        row = next(iter(table["config"].values()))
        row["use_pickle"] = True
        entries[f"data/weights/{row['path_name']}"] = _pickled(marker)

    _edit(entries, WEIGHTS_TABLE, change)


def _constant(entries: Entries, name: str, data: bytes) -> None:
    weights = json.loads(entries[WEIGHTS_TABLE])["config"]
    row = next(iter(weights.values())) | {"use_pickle": True, "path_name": name}
    entries[f"data/constants/{name}"] = data
    _edit(entries, CONSTANTS_TABLE, lambda table: table["config"].update({"c": row}))


def _pickled_constant(entries: Entries, marker: Path) -> None:
    _constant(entries, "tensor_0", _pickled(marker))


def _opaque_object(entries: Entries, marker: Path) -> None:
    _constant(entries, "opaque_obj_0", _pickled(marker))


def _old_weights(entries: Entries, marker: Path) -> None:
    entries["data/weights/model.pt"] = _pickled(marker)


def _old_constants(entries: Entries, marker: Path) -> None:
    entries["data/constants/model.pt"] = _pickled(marker)


def _size_expression(entries: Entries, marker: Path) -> None:
    def change(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"].values()
        size = next(size for value in values for size in value["sizes"] if "as_expr" in size)
        size["as_expr"]["expr_str"] = call_of(marker)

    _edit(entries, GRAPH, change)


def _guard(entries: Entries, marker: Path) -> None:
    """torch writes guards into the module only where it has sample inputs; harmless ones do."""
    stamp = from_json(entries[STAMP_ENTRY])
    sizes = [[2 if isinstance(size, str) else size for size in each.shape] for each in stamp.inputs]
    buffer = io.BytesIO()
    torch.save((tuple(torch.zeros(size) for size in sizes), {}), buffer)
    entries[SAMPLE_INPUTS] = buffer.getvalue()
    _edit(entries, GRAPH, lambda program: program.update(guards_code=[f"{call_of(marker)} is None"]))


def _operator_that_opens_a_file(entries: Entries, marker: Path) -> None:
    """`aten.from_file` with `shared` creates the file that it maps."""

    def change(program: Any) -> None:
        graph = program["graph_module"]["graph"]
        arguments = {"filename": {"as_string": str(marker)}, "shared": {"as_bool": True}, "size": {"as_int": 4}}
        node = {
            "target": "torch.ops.aten.from_file.default",
            "inputs": [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()],
            "outputs": [{"as_tensor": {"name": "evil"}}],
            "metadata": {},
            "is_hop_single_tensor_return": None,
            "name": "evil",
        }
        graph["nodes"].insert(0, node)
        graph["tensor_values"]["evil"] = next(iter(graph["tensor_values"].values()))

    _edit(entries, GRAPH, change)


_LEAF = {"type": None, "context": None, "children_spec": []}


def _out_spec(entries: Entries, spec: dict[str, Any]) -> None:
    def change(program: Any) -> None:
        program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, spec])

    _edit(entries, GRAPH, change)


def _imported_enum(entries: Entries, marker: Path) -> None:
    key = {"__enum__": True, "fqn": f"{module_of(marker)}:f", "name": "x"}
    _out_spec(entries, {"type": "builtins.dict", "context": json.dumps([key]), "children_spec": [_LEAF]})


def _imported_factory(entries: Entries, marker: Path) -> None:
    context = {"default_factory_module": module_of(marker), "default_factory_name": "f", "dict_context": []}
    _out_spec(entries, {"type": "collections.defaultdict", "context": context, "children_spec": []})


def module_of(marker: Path) -> str:
    """Return the name of the module beside the marker that makes it when it is imported."""
    return f"imports_{marker.name}"


PLACES: dict[str, Callable[[Entries, Path], None]] = {
    "sample_inputs": _sample_inputs,
    "pickled_weight": _pickled_weight,
    "pickled_constant": _pickled_constant,
    "opaque_object": _opaque_object,
    "old_weights": _old_weights,
    "old_constants": _old_constants,
    "size_expression": _size_expression,
    "guard": _guard,
    "operator_that_opens_a_file": _operator_that_opens_a_file,
    "imported_enum": _imported_enum,
    "imported_factory": _imported_factory,
}
"""What each does to the entries of a valid file."""

OLDER_ARCHIVE = "older_archive"
"""The form of torch 2.7, which torch.export.load falls back to, beside a whole valid file in another folder."""

TRAINING = "training_graph"
"""The archive inside the archive, with the pickle of `sample_inputs`."""

ALL_PLACES = (*PLACES, OLDER_ARCHIVE)


def hostile(valid: bytes, place: str, marker: Path) -> bytes:
    """Return a stamped file that makes the marker when it is loaded with torch, and called.

    Args:
        valid: a file of qtool's.
        place: one of `ALL_PLACES`, or `TRAINING` if the file has a graph to train.
        marker: a path with nothing there; no quotes in it.
    """
    (marker.parent / f"{module_of(marker)}.py").write_text(f"import os\nos.mkdir({str(marker)!r})\nf = int\n")
    entries = entries_of(valid)
    if place == OLDER_ARCHIVE:
        return _older_archive(entries, marker)
    if place == TRAINING:
        nested = entries_of(entries[TRAINING_GRAPH])
        _sample_inputs(nested, marker)
        entries[TRAINING_GRAPH] = zip_bytes(nested)
    else:
        PLACES[place](entries, marker)
    return stamped(entries)


def entries_of(data: bytes) -> Entries:
    """Return the entries of an archive, by name without the root folder."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def stamped(entries: Entries) -> bytes:
    """Return a file of these entries whose stamp holds the digest of the others."""
    stamp = from_json(entries[STAMP_ENTRY])
    return zip_bytes(entries | {STAMP_ENTRY: to_json(stamp.with_content(content_digest(entries))).encode()})


def _older_archive(entries: Entries, marker: Path) -> bytes:
    pickled = dict.fromkeys(
        ("serialized_state_dict.pt", "serialized_constants.pt", "serialized_example_inputs.pt"), _pickled(marker)
    )
    older = {"version": b"8.15", "serialized_exported_program.json": entries[GRAPH], **pickled}
    whole = older | {f"archive/{name}": data for name, data in entries.items()}
    stamp = from_json(entries[STAMP_ENTRY]).with_content(content_digest(whole))
    return zip_bytes(whole | {f"archive/{STAMP_ENTRY}": to_json(stamp).encode()}, root="")
