"""Capture: from a model's code to a float program, by torch.export."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.utils import _pytree as pytree

from qtool.capture.forced_size import forcing_line, last_user_frame
from qtool.capture.program import FloatProgram, strip_origins
from qtool.capture.training_mode import check_inference, name_cumulative_averages, plain_outputs
from qtool.errors import CaptureError
from qtool.stamp.schema import InputStamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.export import ExportedProgram

BATCH = "batch"

SMALLEST_TRAINING_BATCH = 2
"""A batch norm refuses a batch of one sample, and a graph that holds for one would have to say what happens then."""


def describe_inputs(example_inputs: tuple[Any, ...], *, dynamic_batch: bool = True) -> tuple[InputStamp, ...]:
    """Return shape and dtype of each input tensor; dimension 0 of all that share the first one's is `batch`.

    The names are left empty: `capture` fills in those of the model's arguments.

    Args:
        example_inputs: positional arguments of the model; tensors, or containers of tensors.
        dynamic_batch: whether dimension 0 may take other sizes later.

    Example:
        >>> describe_inputs((torch.zeros(1, 3, 8, 8),))
        (InputStamp(name='', shape=('batch', 3, 8, 8), dtype='float32'),)
    """
    leaves = [leaf for leaf in pytree.tree_leaves(example_inputs) if isinstance(leaf, Tensor)]
    if not leaves:
        msg = "the example inputs hold no tensor; give the tensors that the model is called with, as a tuple"
        raise CaptureError(msg)
    batch = leaves[0].shape[0] if leaves[0].dim() else None
    stamps = []
    for leaf in leaves:
        shape: tuple[int | str, ...] = tuple(leaf.shape)
        if dynamic_batch and shape and shape[0] == batch:
            shape = (BATCH, *shape[1:])
        stamps.append(InputStamp(name="", shape=shape, dtype=str(leaf.dtype).removeprefix("torch.")))
    return tuple(stamps)


def capture(
    model: nn.Module, example_inputs: tuple[Any, ...], inputs: tuple[InputStamp, ...], *, training: bool = False
) -> FloatProgram:
    """Return the model as a float program with weights of its own; the model is left as it was.

    Args:
        model: a float32 model.
        example_inputs: positional arguments; a dynamic size of 1 in them is doubled, since torch.export
            specialises on 1.
        inputs: what `describe_inputs` says of them.
        training: capture what the model does in train mode too.

    Raises:
        CaptureError: a parameter is not float32 or has no data, the code cannot be captured (names the line), a
            dynamic size is forced to a number by an op, or the model is random or depends on the batch in eval mode.
    """
    _check_parameters(model)
    examples = _widened(example_inputs, inputs)
    copied = _copied(model)
    exported = strip_origins(_export(copied.eval(), examples, inputs))
    _check_outputs(exported)
    check_inference(exported)
    named = _named(inputs, exported)
    return FloatProgram(exported, named, _capture_training(copied, examples, named) if training else None)


def _capture_training(copied: nn.Module, examples: tuple[Any, ...], inputs: tuple[InputStamp, ...]) -> ExportedProgram:
    """Capture train mode; the tensors are those of the eval program."""
    name_cumulative_averages(copied)
    trained = strip_origins(_export(copied.train(), examples, inputs, smallest_batch=SMALLEST_TRAINING_BATCH))
    _check_outputs(trained)
    return plain_outputs(trained)


def _named(inputs: tuple[InputStamp, ...], exported: ExportedProgram) -> tuple[InputStamp, ...]:
    """Fill in missing names from the tensor arguments of the graph."""
    specs = exported.graph_signature.input_specs
    arguments = [s.arg.name for s in specs if s.kind is InputKind.USER_INPUT and isinstance(s.arg, TensorArgument)]
    return tuple(
        dataclasses.replace(stamp, name=stamp.name or name) for stamp, name in zip(inputs, arguments, strict=True)
    )


def _check_outputs(exported: ExportedProgram) -> None:
    for spec in exported.graph_signature.output_specs:
        if isinstance(spec.arg, ConstantArgument) and isinstance(spec.arg.value, str):
            msg = f"the model returns the word {spec.arg.value!r}, which no file can hold; let it return tensors"
            raise CaptureError(msg)


def _check_parameters(model: nn.Module) -> None:
    for kind, name, tensor in _named_tensors(model):
        if tensor.is_meta:
            msg = f"{kind} {name!r} is on the meta device and has no data; load the weights first"
            raise CaptureError(msg)
        if tensor.is_floating_point() and tensor.dtype is not torch.float32:
            dtype = str(tensor.dtype).removeprefix("torch.")
            msg = f"{kind} {name!r} is {dtype}; qtool quantizes float32 models: call model.float() first"
            raise CaptureError(msg)


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    for name, parameter in model.named_parameters():
        yield "parameter", name, parameter
    for name, buffer in model.named_buffers():
        yield "buffer", name, buffer


def _copied(model: nn.Module) -> nn.Module:
    """Copy the model, so that neither its mode nor its weights are shared with what we make of it."""
    # deepcopy refuses tensors with a gradient history, such as the weight that weight_norm keeps on its module.
    computed = [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor) and not v.is_leaf]
    try:
        copied = copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in computed})
    except Exception as error:
        msg = (
            f"the model cannot be copied ({type(error).__name__}: {error}); "
            f"detach tensors it keeps that have a gradient history, or give a freshly built model"
        )
        raise CaptureError(msg) from error
    for tensor in (*copied.parameters(), *copied.buffers()):
        tensor.data = tensor.data.contiguous()  # files hold contiguous tensors
    return copied


def _widened(example_inputs: tuple[Any, ...], inputs: tuple[InputStamp, ...]) -> tuple[Any, ...]:
    leaves, structure = pytree.tree_flatten(example_inputs)
    stamps = iter(inputs)
    return pytree.tree_unflatten([_wide(x, next(stamps)) if isinstance(x, Tensor) else x for x in leaves], structure)


def _wide(tensor: Tensor, stamp: InputStamp) -> Tensor:
    """Repeat the tensor along every dynamic dimension of size 1."""
    repeats = [2 if isinstance(size, str) and tensor.shape[d] == 1 else 1 for d, size in enumerate(stamp.shape)]
    return tensor.repeat(repeats) if tensor.dim() else tensor


def dynamic_shapes(examples: tuple[Any, ...], inputs: tuple[InputStamp, ...], *, smallest: int = 1) -> tuple[Any, ...]:
    """Return torch.export's description of the dynamic sizes: the same word is the same dimension."""
    words = {size for stamp in inputs for size in stamp.shape if isinstance(size, str)}
    dims = {word: torch.export.Dim(word, min=smallest) for word in sorted(words)}
    leaves, structure = pytree.tree_flatten(examples)
    stamps = iter(inputs)

    def shape_of(leaf: Any) -> dict[int, Any] | None:  # noqa: ANN401
        if not isinstance(leaf, Tensor):
            return None
        return {d: dims[size] for d, size in enumerate(next(stamps).shape) if isinstance(size, str)}

    return pytree.tree_unflatten([shape_of(leaf) for leaf in leaves], structure)


def _export(
    model: nn.Module, examples: tuple[Any, ...], inputs: tuple[InputStamp, ...], *, smallest_batch: int = 1
) -> ExportedProgram:
    shapes = dynamic_shapes(examples, inputs, smallest=smallest_batch)
    try:
        with (
            torch.set_grad_enabled(model.training),  # or the training graph would not show where there are none
            warnings.catch_warnings(),
            _quiet(logging.getLogger("torch._subclasses.fake_tensor")),
        ):
            # Said of every LSTM: its list of weights. torch.export puts them back itself.
            warnings.filterwarnings("ignore", message=r"The tensor attributes? .* assigned during export")
            # Of a copy that the float kernel makes; here it becomes a pad of its own.
            warnings.filterwarnings("ignore", message="Using padding='same' with even kernel lengths")
            return torch.export.export(model, examples, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        again = functools.partial(torch.export.export, model, examples, dynamic_shapes=shapes, strict=False)
        raise CaptureError(_explain(error, again)) from error


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep torch from logging a traceback of an error that becomes one of ours."""
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _explain(error: Exception, again: Callable[[], object]) -> str:
    """Say in words what torch.export could not do, and where in the user's code; `again` runs it once more."""
    where = _user_line(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # What follows in the same line speaks of torch.export's own options.
    reasons = [line.removeprefix("- ").partition(" If you're using")[0] for line in lines if line.startswith("- ")]
    first = next(iter((*reasons, *lines)), type(error).__name__)
    if "specialized" in str(error) or "Constraints violated" in str(error):
        where = forcing_line(again) or where
        advice = (
            "An op of the model fixes a size that was to stay dynamic: write that size as a number in "
            "`model.inputs` (in the API: dynamic_batch=False), or change the op."
        )
    elif "data-dependent" in str(error) or "GuardOnDataDependent" in type(error).__name__:
        advice = "The model branches on values of a tensor: make the branch an argument of the constructor."
    else:
        advice = (
            "Check that the model runs on tensors of the stated shapes and dtypes (`model.inputs`, or the example "
            "inputs), with as many inputs, and that it is plain tensor code."
        )
    return f"the model cannot be captured{where}: {first} ({type(error).__name__}). {advice}"


def _user_line(error: Exception) -> str:
    frame = last_user_frame(traceback.extract_tb(error.__traceback__))
    return "" if frame is None else f" at {frame.filename}:{frame.lineno}"
