"""What to do with files that qtool does not load."""

from __future__ import annotations

from typing import Final

from qtool.readers.facts import FileKind

WHOLE_MODULE: Final = (
    "qtool never unpickles one. Where its class can be imported, load it and give the float model to qtool.prepare, or "
    "save what qtool.convert returned with qtool.save"
)
STATE_DICT: Final = (
    "it holds weights and no program: name it in model.checkpoint of a config, and let qtool prepare read it"
)

WITHOUT_STAMP: Final = {
    FileKind.PT2: (
        "it is an exported program that qtool did not write, or that another program saved again: make it anew, with "
        "qtool prepare from the float model or qtool convert from the prepared file"
    ),
    FileKind.AOTI: (
        "it is a library that AOTInductor compiled, which torch would load into the process: give the float model it "
        "came from to qtool prepare"
    ),
    FileKind.TORCHSCRIPT: (
        "it is a TorchScript archive, which torch.jit.load runs: give the float model it came from to qtool prepare"
    ),
    FileKind.CHECKPOINT: f"it is a checkpoint of torch.save: {STATE_DICT}",
    FileKind.MODULE: f"it is a whole module, pickled by torch.save: {WHOLE_MODULE}",
}
"""What to do with a file without a stamp."""
