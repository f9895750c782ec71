"""Takes a trained float PyTorch model to int8 for a named backend.

    prepared = qtool.prepare(model, example_inputs, {"target": {"backend": "fbgemm"}})
    qtool.calibrate(prepared, batches)
    qtool.save(qtool.convert(prepared), "int8.pt2")
    model = qtool.load("int8.pt2")
    qtool.export("int8.pt2", "int8.onnx")
    report = qtool.inspect("int8.pt2")

Importing qtool imports no torch: each function brings what it needs when it is first named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtool._version import __version__

if TYPE_CHECKING:
    from qtool.inspection.findings import Report
    from qtool.workflows.calibrate import calibrate
    from qtool.workflows.convert import convert
    from qtool.workflows.export import export
    from qtool.workflows.inspect import inspect
    from qtool.workflows.load import load
    from qtool.workflows.prepare import prepare
    from qtool.workflows.save import save

__all__ = ["Report", "__version__", "calibrate", "convert", "export", "inspect", "load", "prepare", "save"]

_MODULES = {
    "Report": "qtool.inspection.findings",
    "calibrate": "qtool.workflows.calibrate",
    "convert": "qtool.workflows.convert",
    "export": "qtool.workflows.export",
    "inspect": "qtool.workflows.inspect",
    "load": "qtool.workflows.load",
    "prepare": "qtool.workflows.prepare",
    "save": "qtool.workflows.save",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _MODULES:
        msg = f"module 'qtool' has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
