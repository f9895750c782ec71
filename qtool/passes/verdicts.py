"""Which patterns of a model run in int8, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qtool.backends.faults import conv_fault
from qtool.backends.record import Support
from qtool.config.select import settings_for
from qtool.errors import UsageError
from qtool.passes.ops import value
from qtool.types import CONVOLUTIONS, MAC_OPS, Isa, Op, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Node

    from qtool.backends.record import Backend
    from qtool.config.schema import QuantizeConfig
    from qtool.config.select import NodeSettings
    from qtool.passes.match import Match


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a plan is asked for.

    Attributes:
        backend: what will run the model; of several backends the meet.
        isa: the CPU it will run on.
        quantize: the config's `quantize` section.
        keep_float: names of nodes that stay float whatever the rules say, each with the reason.
        proved_safe: names of nodes whose weights are proved not to saturate with all codes of the input.
    """

    backend: Backend
    isa: Isa
    quantize: QuantizeConfig
    keep_float: Mapping[str, str]
    proved_safe: frozenset[str] = frozenset()

    def settings(self, name: str, op: Op | None) -> NodeSettings:
        """Return what the config says of one node."""
        return settings_for(self.quantize, name, op)


@dataclass(frozen=True)
class Decision:
    """The verdict on one pattern."""

    verdict: Verdict
    reason: str

    @property
    def is_int8(self) -> bool:
        """Whether the pattern runs in int8."""
        return self.verdict is Verdict.INT8


def decide(matches: tuple[Match, ...], names: Mapping[Node, str], request: Request) -> dict[Match, Decision]:
    """Return a decision for every match.

    Ops that multiply are int8 wherever backend and config allow. What lies between them is int8 where codes
    already come in, or where it only moves values on their way into a multiplication; anything else would be
    quantized for its own sake, and loses accuracy for nothing.

    Raises:
        UsageError: the config asks for int8 where it is not possible.
    """
    decided: dict[Match, Decision] = {}
    for match in matches:
        _check_asked(match, names[match.node], request)
        reason = _float_reason(match, names[match.node], request)
        if reason:
            decided[match] = Decision(Verdict.FLOAT, reason)
        elif match.op in MAC_OPS:
            decided[match] = Decision(Verdict.INT8, _kernel(match, request))
    producers = {node: match for match in matches for node in match.members}
    wanted = _moved_into_multiplications(matches, producers, decided)
    for match in matches:
        if match not in decided:
            decided[match] = _decide_between(match, names[match.node], request, producers, decided, wanted)
    return decided


def _check_asked(match: Match, name: str, request: Request) -> None:
    """Refuse what cannot be done, rather than drop it."""
    settings = request.settings(name, match.op)
    if settings.dtype != "int8":
        return
    why = _impossible(match, request)
    if why:
        msg = f"{name!r} cannot run in int8 ({why}), but {settings.origin} asks for it; narrow its match, or give `op`"
        raise UsageError(msg)


def _kernel(match: Match, request: Request) -> str:
    return f"{request.backend.name} has an int8 {match.op}"


def _float_reason(match: Match, name: str, request: Request) -> str:
    """Return why a match must stay float, or an empty string."""
    settings = request.settings(name, match.op)
    if settings.skipped or settings.dtype == "float":
        return f"asked for: {settings.origin}"
    if name in request.keep_float:
        return request.keep_float[name]
    return _impossible(match, request)


def _impossible(match: Match, request: Request) -> str:
    """Return why the backend cannot run a match in int8, or an empty string."""
    if match.op is None:
        return match.reason
    rule = request.backend.rule(match.op)
    if rule.support is Support.UNSUPPORTED:
        return f"{request.backend.name} has no int8 {match.op}{f' ({rule.note})' if rule.note else ''}"
    if match.op not in CONVOLUTIONS:
        return ""
    weight: Any = match.node.args[1]
    return conv_fault(request.backend, match.op, value(weight).shape, match.groups)


def _moved_into_multiplications(
    matches: tuple[Match, ...], producers: Mapping[Node, Match], decided: Mapping[Match, Decision]
) -> set[Match]:
    """Return the undecided ops that only move or choose values, all of whose readers multiply in int8.

    Quantizing before such an op gives the same codes as quantizing after it, and moves a quarter of the bytes.
    """
    wanted: set[Match] = set()
    for match in reversed(matches):
        if match in decided or match.op not in (Op.LAYOUT, Op.MAX_POOL):
            continue
        readers = [producers.get(user) for user in match.result.users]
        if readers and all(r is not None and (r in wanted or (r in decided and decided[r].is_int8)) for r in readers):
            wanted.add(match)
    return wanted


def _decide_between(
    match: Match,
    name: str,
    request: Request,
    producers: Mapping[Node, Match],
    decided: Mapping[Match, Decision],
    wanted: set[Match],
) -> Decision:
    sources = [producers.get(node) for node in match.inputs]
    if any(source is not None and decided[source].is_int8 for source in sources):
        return Decision(Verdict.INT8, _kernel(match, request))
    if match in wanted:
        return Decision(Verdict.INT8, "it moves values on their way into an int8 op")
    settings = request.settings(name, match.op)
    if settings.dtype == "int8":
        return Decision(Verdict.INT8, f"asked for: {settings.origin}")
    return Decision(Verdict.FLOAT, "none of its inputs is int8")
