"""Which settings a node has: the config's defaults, `skip`, then `overrides`, where the last match wins.

A pattern is written as for file names: `*` is any text (dots too), `?` one character, `[ab]` one of these. It matches
a node by its name, or by the path of a module above it: `classifier` matches `classifier.1`. A second call of a module
is named `relu#2`; `relu` matches all its calls, `relu#1` only the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from qtool.errors import nearest
from qtool.types import MAC_OPS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from qtool.config.schema import ActivationObserver, GranularityChoice, Override, QuantizeConfig
    from qtool.types import Op, Reduce

DEFAULT_ORIGIN = "quantize"
"""Where the settings of a node come from that neither `skip` nor an override names."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What the config asks of one node.

    Attributes:
        dtype: `float` or `int8` if asked for, else None: the backend decides.
        observer: how the range of the node's output is found.
        granularity: scales of the node's weight.
        reduce_range: when the activations it reads give up their eighth bit.
        skipped: a pattern of `skip` keeps it float.
        origin: key path of the entry that decided dtype; of the last that matched where none did.
    """

    dtype: str | None
    observer: ActivationObserver
    granularity: GranularityChoice
    reduce_range: Reduce
    skipped: bool
    origin: str


def settings_for(quantize: QuantizeConfig, node_name: str, op: Op | None) -> NodeSettings:
    """Return what the config asks of the node of that name and op.

    Each setting is taken by itself: from the last override that matches and says it, else from the defaults. `skip`
    stands before all overrides, so an override with `dtype: int8` takes a node out of it.

    Example:
        With `skip: [classifier]` and `overrides: [{match: "*.1", observer: mse}]` the node `classifier.1` has
        dtype "float", observer "mse", skipped True, origin "quantize.skip.0".
    """
    skips = [f"quantize.skip.{i}" for i, pattern in enumerate(quantize.skip) if matches(pattern, node_name)]
    overrides = [
        (f"quantize.overrides.{i}", override)
        for i, override in enumerate(quantize.overrides)
        if matches(override.match, node_name) and override.op in (None, op)
    ]
    dtypes = [(origin, override.dtype) for origin, override in overrides if override.dtype]
    asked = [(origin, "float") for origin in skips] + dtypes
    origins = [origin for origin, _ in asked or overrides]
    return NodeSettings(
        dtype=asked[-1][1] if asked else None,
        observer=next((o.observer for _, o in reversed(overrides) if o.observer), quantize.activations.observer),
        granularity=next(
            (o.granularity for _, o in reversed(overrides) if o.granularity), quantize.weights.granularity
        ),
        reduce_range=next((o.reduce_range for _, o in reversed(overrides) if o.reduce_range), quantize.reduce_range),
        skipped=bool(skips) and not dtypes,
        origin=origins[-1] if origins else DEFAULT_ORIGIN,
    )


def matches(pattern: str, node_name: str) -> bool:
    """Return whether a pattern matches a node, by its name or by a path above it.

    Example:
        >>> matches("features.*.conv", "features.0.1.conv"), matches("classifier", "classifier.1")
        (True, True)
        >>> matches("relu", "relu#2"), matches("relu#1", "relu#2")
        (True, False)
    """
    return any(fnmatchcase(form, pattern) for form in _forms(node_name))


def unmatched_patterns(quantize: QuantizeConfig, names_and_ops: Collection[tuple[str, Op | None]]) -> list[str]:
    """Return a problem for each pattern of `skip` and `overrides` that matches no node; an empty list if all do.

    Args:
        quantize: the config's section.
        names_and_ops: name and op of every node of the model.

    Example:
        For the nodes `features.0` and `classifier.1` the entry `skip: [clasifier]` gives
        "c.yaml:7:10: quantize.skip.0: found 'clasifier', which matches none of the 2 nodes; did you mean
        'classifier' or 'classifier.1'?".
    """
    patterns: list[tuple[str, str, Op | None]]
    patterns = [(f"quantize.skip.{i}", pattern, None) for i, pattern in enumerate(quantize.skip)]
    patterns += [(f"quantize.overrides.{i}.match", o.match, o.op) for i, o in enumerate(quantize.overrides)]
    faults = [(key, _fault(pattern, op, names_and_ops)) for key, pattern, op in patterns]
    for i, override in enumerate(quantize.overrides):
        faults += [(f"quantize.overrides.{i}.{key}", text) for key, text in _idle_settings(override, names_and_ops)]
    return [f"{quantize.locate(key)}: {key}: {fault}" for key, fault in faults if fault]


def _idle_settings(override: Override, names_and_ops: Collection[tuple[str, Op | None]]) -> list[tuple[str, str]]:
    """Return key and fault of the settings that are of weights, where no node that the override matches has one.

    The reduced range is such a setting: it is for kernels that multiply by weights, and only their inputs have it.
    """
    matched = [op for name, op in names_and_ops if matches(override.match, name) and override.op in (None, op)]
    if not matched or MAC_OPS & set(matched):
        return []
    given = {"granularity": override.granularity, "reduce_range": override.reduce_range}
    needed = ", ".join(sorted(MAC_OPS))
    return [
        (
            key,
            f"found {str(value)!r}, but none of the {len(matched)} nodes it is for is a {needed}; it would do nothing",
        )
        for key, value in given.items()
        if value is not None
    ]


def _fault(pattern: str, op: Op | None, names_and_ops: Collection[tuple[str, Op | None]]) -> str:
    """Return what is wrong with a pattern that matches no node, or an empty string."""
    matched = [node_op for name, node_op in names_and_ops if matches(pattern, name)]
    if matched and (op is None or op in matched):
        return ""
    if matched:
        ops = ", ".join(sorted({node_op or "ops that cannot run in int8" for node_op in matched}))
        return f"found {pattern!r}, which matches {len(matched)} nodes, none of them {op}; allowed: {ops}"
    regex = "; patterns are as for file names, not regular expressions" if ".*" in pattern or "\\" in pattern else ""
    near = nearest(pattern, _vocabulary(name for name, _ in names_and_ops), limit=3)
    return f"found {pattern!r}, which matches none of the {len(names_and_ops)} nodes{regex}{near}"


def _vocabulary(names: Iterator[str]) -> list[str]:
    """Return all names and paths above them, each once."""
    return list(dict.fromkeys(form for name in names for form in _forms(name) if not form.endswith("#1")))


def _forms(node_name: str) -> Iterator[str]:
    """Yield what a pattern may match: the name with its call number and without, then each path above it."""
    path, _, call = node_name.partition("#")
    yield f"{path}#{call or 1}"
    while path:
        yield path
        path = path.rpartition(".")[0]
