"""The converted model: the int8 reference program, which every engine and exporter starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qtool.capture.export import dynamic_shapes
from qtool.capture.program import Call, plain_module, strip_origins
from qtool.errors import MismatchError, ModelError
from qtool.passes.to_reference import NODE_STAMP, to_reference
from qtool.runtime.filed import Filed
from qtool.runtime.inputs import check_inputs
from qtool.runtime.origin import Origin, make_stamp
from qtool.stamp.schema import from_json, to_json
from qtool.types import Stage

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

    from qtool.capture.program import FloatProgram
    from qtool.plan import Plan
    from qtool.runtime.prepared import PreparedModel
    from qtool.stamp.schema import Stamp


class ConvertedModel(Filed):
    """The reference program as a module: int8 weights, explicit quantize and dequantize, float arithmetic between.

    Attributes:
        exported: the program; what a converted file holds.
        plan: what was decided for every node and edge.
        stamp: for which target, and how every tensor is quantized.
        origin: where it comes from.
    """

    def __init__(self, exported: ExportedProgram, plan: Plan, stamp: Stamp, origin: Origin) -> None:
        super().__init__()
        self.exported = exported
        self._call = Call.of(exported)
        self.plan = plan
        self.stamp = stamp
        self.origin = origin
        self.body = plain_module(exported)

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - whatever the model takes and returns
        """Return what the model returns, computed by the reference program."""
        check_inputs(inputs, self._call, self.stamp.inputs)
        with torch.autocast("cpu", enabled=False):  # the program says what is float32
            return self.body(*inputs)

    def get_extra_state(self) -> Tensor:
        """Return the stamp for state_dict: its JSON as bytes, so that a state_dict holds nothing but tensors."""
        return torch.frombuffer(bytearray(to_json(self.stamp.with_content("")).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Check that a state_dict is of a model with the same targets and scales; those of activations are not in it.

        Raises:
            MismatchError: it is of another one.
        """
        theirs = from_json(state.numpy().tobytes(), where="state_dict")
        different = _first_difference(self.stamp, theirs)
        if different is not None:
            msg = (
                f"this state is of a model for {', '.join(theirs.backends)}, isa {theirs.isa}, with other {different}: "
                f"a state_dict holds no scales of activations, so keep a converted model with qtool.save"
            )
            raise MismatchError(msg)


def _first_difference(mine: Stamp, theirs: Stamp) -> str | None:
    """Return what differs between the targets and scales of two models; None if nothing does."""
    if (mine.backends, mine.isa) != (theirs.backends, theirs.isa):
        return "targets"
    if len(mine.nodes) != len(theirs.nodes):
        return "nodes"
    pairs = zip(mine.nodes, theirs.nodes, strict=True)
    return next((f"ranges or scales, first at {one.name!r}" for one, other in pairs if one != other), None)


@torch.no_grad()
def convert_calibrated(prepared: PreparedModel) -> ConvertedModel:
    """Return the reference program of a prepared model all of whose edges are calibrated."""
    found = prepared.parameters_found()
    plan, origin, program = prepared.plan, prepared.origin, prepared.current_program()
    reference = to_reference(program.graph_module(), plan, found)
    exported = _export(reference, program)
    stamp = make_stamp(plan, found, origin, program.inputs, Stage.CONVERTED)
    _stamp_nodes(exported, reference)
    return ConvertedModel(exported, plan, stamp, origin)


def _export(reference: GraphModule, program: FloatProgram) -> ExportedProgram:
    examples = example_inputs(program)
    shapes = dynamic_shapes(examples, program.inputs)
    return strip_origins(torch.export.export(reference, examples, dynamic_shapes=shapes, strict=False))


def example_inputs(program: FloatProgram) -> tuple[Any, ...]:
    """Return inputs of zeros in the sizes the program was captured with."""
    call = program.call
    return call.arrange(_zeros(leaf) for leaf in call.leaves if isinstance(leaf, Tensor))


def _zeros(fake: Tensor) -> Tensor:
    sizes: list[Any] = list(fake.shape)
    hints: list[Any] = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
    return torch.zeros(hints, dtype=fake.dtype)


def _stamp_nodes(exported: ExportedProgram, reference: GraphModule) -> None:
    """Write each node's stamp into its meta: export traces op by op, so both graphs have the same ops in order."""
    ours = [node for node in reference.graph.nodes if _makes_tensors(node)]
    theirs = [node for node in exported.graph.nodes if _makes_tensors(node)]
    if [node.target for node in ours] != [node.target for node in theirs]:
        msg = "torch.export changed the ops of the reference program, so its nodes cannot be stamped; please report it"
        raise ModelError(msg)
    for mine, its in zip(ours, theirs, strict=True):
        if NODE_STAMP in mine.meta:
            its.meta["custom"] = {NODE_STAMP: mine.meta[NODE_STAMP]}  # what torch.export keeps through save and load


def _makes_tensors(node: Node) -> bool:
    """Whether a node is an op on tensors; export moves those that only ask for sizes and reckon with them."""
    if node.op != "call_function":
        return False
    is_aten = isinstance(node.target, torch._ops.OpOverload)
    return is_aten and node.target not in (torch.ops.aten.sym_size.int, torch.ops.aten.sym_numel.default)
