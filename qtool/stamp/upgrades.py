"""Brings documents of older formats to the present one, a version at a time, before they are read strictly.

A step changes names and shapes, never what was decided. What does not look as it should is left as it is: the strict
reader names the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""From a document of one version to one of the next; the version itself is counted by `upgraded`."""


def upgraded(document: dict[str, Any], steps: Mapping[int, Upgrade]) -> dict[str, Any]:
    """Return the document in the newest format.

    Args:
        document: with a `format_version` that is known.
        steps: by version, what makes a document of the next version from one of it.

    Example:
        >>> upgraded({"format_version": 1, "nodes": [{"backend": "fbgemm"}]}, STAMP_UPGRADES)
        {'format_version': 2, 'nodes': [{'backends': ['fbgemm']}]}
    """
    while (step := steps.get(document["format_version"])) is not None:
        document = {**step(document), "format_version": document["format_version"] + 1}
    return document


def _stamp_from_1(stamp: dict[str, Any]) -> dict[str, Any]:
    """From 2 on a node can be made for several backends."""
    nodes = stamp.get("nodes")
    return {**stamp, "nodes": [_with_backends(node) for node in nodes]} if isinstance(nodes, list) else stamp


def _plan_from_1(document: dict[str, Any]) -> dict[str, Any]:
    """From 2 on a plan can be for several backends."""
    return {**document, "plan": _with_backends(document.get("plan"))}


def _with_backends(record: object) -> object:
    if not isinstance(record, dict) or "backend" not in record or "backends" in record:
        return record
    return {**{key: value for key, value in record.items() if key != "backend"}, "backends": [record["backend"]]}


NO_UPGRADES: Final[Mapping[int, Upgrade]] = MappingProxyType({})
STAMP_UPGRADES: Final[Mapping[int, Upgrade]] = {1: _stamp_from_1}
PLAN_UPGRADES: Final[Mapping[int, Upgrade]] = {1: _plan_from_1}
