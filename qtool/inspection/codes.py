"""All codes a finding can have. A code keeps its meaning for ever; docs/findings.md explains each.

QT1xx: what loading the file would execute. QT2xx: what the file says about itself. QT3xx: the file and its target.
QT4xx: the numbers in it. The page is `findings.md` beside this file; `qtool.inspection.explain` takes sections from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is: an error ends `qtool inspect` with status 1, a warning and an info do not."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing a report says.

    Attributes:
        code: for example `QT303`.
        severity: error, warning or info.
        node: the node it is about; None for the whole file.
        message: what is wrong, with the values; may hold untrusted text.
        remedy: what to do about it.
    """

    code: str
    severity: Severity
    node: str | None
    message: str
    remedy: str


@dataclass(frozen=True)
class Code:
    """What findings of one code have in common.

    Attributes:
        name: for example `QT303`.
        severity: of every finding with that code.
        title: what it means, in a few words; the heading in docs/findings.md.
        remedy: what to do about it; BACKEND in it stands for the backend asked for.
    """

    name: str
    severity: Severity
    title: str
    remedy: str

    def finding(self, message: str, *, node: str | None = None, backend: str = "BACKEND") -> Finding:
        """Return a finding with this code."""
        remedy = self.remedy.replace("BACKEND", backend)
        return Finding(code=self.name, severity=self.severity, node=node, message=message, remedy=remedy)


_GET_AGAIN = "get the file again from where it was made; do not load it with torch.export.load"
_AGAIN_FOR_TARGET = "convert the prepared file for it: qtool convert PREPARED --backend BACKEND -o OUT"

SAMPLE_INPUTS = Code("QT101", Severity.ERROR, "Sample inputs are pickled", _GET_AGAIN)
PICKLED_TENSOR = Code("QT102", Severity.ERROR, "A tensor is pickled", _GET_AGAIN)
CUSTOM_OBJECT = Code("QT103", Severity.ERROR, "A custom object is in the file", _GET_AGAIN)
COMPILED_CODE = Code("QT104", Severity.ERROR, "Compiled code is in the file", _GET_AGAIN)
EXPRESSION = Code("QT105", Severity.ERROR, "A size expression is more than arithmetic", _GET_AGAIN)
OPERATOR = Code("QT106", Severity.ERROR, "An operator is not known to be harmless", _GET_AGAIN)
CONTAINER_TYPE = Code("QT107", Severity.ERROR, "A container type is not a builtin", _GET_AGAIN)
NAME = Code("QT108", Severity.ERROR, "A name could carry code", _GET_AGAIN)
PICKLE_CALL = Code(
    "QT109",
    Severity.ERROR,
    "A pickle calls what is not known to be harmless",
    "do not load it, unless you trust whoever made it; save plain tensors: torch.save(model.state_dict(), PATH)",
)
SCRIPT = Code(
    "QT110",
    Severity.ERROR,
    "The program reaches out of itself",
    "do not load it, unless you trust whoever made it: it reads or writes files, or runs code when it is loaded",
)
OUTSIDE = Code(
    "QT111",
    Severity.ERROR,
    "Data is looked for outside the file's folder",
    "do not load it: every runtime would open that path; get the file again from where it was made",
)
MISSING_DATA = Code(
    "QT112",
    Severity.ERROR,
    "Data beside the file is missing",
    "put the named file beside it, whole, or get both again from where they were made",
)

NO_STAMP = Code(
    "QT201",
    Severity.ERROR,
    "No stamp",
    "nothing is known of its target: make the file with qtool convert, or ask whoever made it",
)
NEWER_STAMP = Code(
    "QT202", Severity.ERROR, "The stamp is of a newer version", "install the qtool that wrote the file, or a later one"
)
UNREADABLE_STAMP = Code(
    "QT203", Severity.ERROR, "The stamp cannot be read", "get the file again from where it was made"
)
CONTENT_DIFFERS = Code(
    "QT204",
    Severity.ERROR,
    "The content is not the stamped one",
    "it was damaged, or changed by another program: get it again, or convert again",
)
PLAN_DIFFERS = Code(
    "QT205", Severity.ERROR, "The plan is missing or contradicts the stamp", "prepare or convert again with this qtool"
)
NOT_CALIBRATED = Code(
    "QT206",
    Severity.WARNING,
    "Scales are missing",
    "run data through the prepared model: set data.calibrate in the config and run qtool prepare",
)
UNKNOWN_BACKEND = Code(
    "QT207",
    Severity.ERROR,
    "The stamp names an unknown backend",
    "install the qtool that wrote the file, or a later one",
)

STAMP_LOST = Code(
    "QT208",
    Severity.WARNING,
    "The file's stamp is lost, and its nodes say what is left of it",
    "export it again with qtool export, which writes the whole stamp",
)
UNMARKED_LAYERS = Code(
    "QT209",
    Severity.ERROR,
    "Some int8 layers have no stamp",
    "their target and ranges are unknown: make the file with qtool convert, or ask whoever made it",
)
NOT_QUANTIZED = Code(
    "QT210",
    Severity.WARNING,
    "Nothing in it is quantized",
    "nothing is wrong; to quantize it, give the float model to qtool prepare, and the prepared file to qtool convert",
)
CONTRADICTS = Code(
    "QT211",
    Severity.ERROR,
    "The stamp contradicts the numbers in the file",
    "the file was changed after it was stamped, or the stamp is of another one: convert again, or get it again",
)
NOT_UNDERSTOOD = Code(
    "QT212",
    Severity.WARNING,
    "A part of the model was not understood",
    "what is reported of the rest stands; ask whoever made the file about this part",
)

OTHER_BACKEND = Code("QT301", Severity.ERROR, "Made for another backend", _AGAIN_FOR_TARGET)
UNSUPPORTED_OP = Code("QT302", Severity.ERROR, "The backend has no int8 kernel for the op", _AGAIN_FOR_TARGET)
CAN_SATURATE = Code(
    "QT303",
    Severity.ERROR,
    "Can saturate",
    "prepare with target.isa: any (or no-vnni), which reduces the range, or run it on a CPU with VNNI or on qnnpack",
)
PROVED_SAFE = Code("QT304", Severity.INFO, "Full range, proved safe", "nothing: the result is right on this target")
REDUCED_IN_VAIN = Code(
    "QT305",
    Severity.WARNING,
    "Reduced range without need",
    "nothing is wrong; for more accuracy prepare for this target, with target.backend: BACKEND in the config",
)
GRANULARITY = Code(
    "QT306",
    Severity.ERROR,
    "The backend cannot do the granularity",
    "prepare with quantize.weights.granularity: auto and target.backend: BACKEND",
)
CODES_DTYPE = Code("QT307", Severity.ERROR, "The backend takes codes of another dtype", _AGAIN_FOR_TARGET)
HOST_WITHOUT_VNNI = Code(
    "QT308",
    Severity.WARNING,
    "This machine lacks what the file was made for",
    "run it elsewhere, or on qnnpack; or prepare with target.isa: any",
)
NO_ENGINE = Code(
    "QT309",
    Severity.ERROR,
    "The engine is not on this machine",
    "run it on a machine that has it, or convert the prepared file for one that is here: qtool backends lists them",
)
LARGE_MULTIPLIER = Code(
    "QT310",
    Severity.WARNING,
    "A multiplier of 1 or more",
    "try it on the runtime it will run on: qnnpack of older torch releases refuses it; newer ones are right",
)
WRONG_GEOMETRY = Code(
    "QT311",
    Severity.ERROR,
    "The backend's kernel is wrong for this geometry",
    "convert the prepared file for the backend: qtool convert PREPARED --backend BACKEND -o OUT keeps the node float",
)

_CALIBRATE_AGAIN = "calibrate and convert again; where a layer's values are all 0 or not finite, keep it float"

BAD_SCALE = Code("QT401", Severity.ERROR, "A scale is not above 0 and finite", _CALIBRATE_AGAIN)
DENORMAL_SCALE = Code("QT402", Severity.ERROR, "A scale is denormal", _CALIBRATE_AGAIN)
BAD_ZERO_POINT = Code(
    "QT403",
    Severity.ERROR,
    "A zero point is no code of its tensor",
    "round it, and keep it within the codes when the file is made; 0.0 has no code of its own now",
)
BIAS_SCALE = Code(
    "QT404",
    Severity.ERROR,
    "The bias has another scale than its sums",
    "quantize the bias with the input's scale times the weight's, with zero point 0",
)
BIAS_RANGE = Code(
    "QT405",
    Severity.ERROR,
    "The bias does not fit int32",
    "raise the weight's scale until it fits, as qtool convert does, or keep the layer float",
)
DEAD_CHANNEL = Code("QT406", Severity.INFO, "Output channels are dead", "nothing is wrong; they could be left out")
ONE_CODE = Code(
    "QT407",
    Severity.WARNING,
    "A weight has a single code",
    "look at the float weight and at its scale: all its values became one",
)
WRONG_AXIS = Code(
    "QT408",
    Severity.ERROR,
    "Scales lie on the wrong axis",
    "quantize the weight with one scale for each output channel, on their axis",
)
FAKE_QUANTIZED = Code(
    "QT409",
    Severity.WARNING,
    "Fake-quantize was left in",
    "convert the model before it is saved: it computes in float, and is as large and as slow as before",
)
FLOAT_COPY = Code(
    "QT410",
    Severity.WARNING,
    "A float copy lies beside the int8 weight",
    "save without the float parameters: the file is larger than the model it came from",
)
BATCH_NORM = Code(
    "QT411",
    Severity.WARNING,
    "A batch norm was left behind a quantized layer",
    "fold it into the layer before calibration, as qtool prepare does",
)
STORED_TWICE = Code(
    "QT412", Severity.INFO, "A tensor is stored more than once", "share the parameter between the modules that use it"
)
NOT_FINITE = Code(
    "QT413",
    Severity.ERROR,
    "A weight holds values that are not finite",
    "find where training went wrong; no output can be right",
)

CODES: tuple[Code, ...] = (
    SAMPLE_INPUTS,
    PICKLED_TENSOR,
    CUSTOM_OBJECT,
    COMPILED_CODE,
    EXPRESSION,
    OPERATOR,
    CONTAINER_TYPE,
    NAME,
    PICKLE_CALL,
    SCRIPT,
    OUTSIDE,
    MISSING_DATA,
    NO_STAMP,
    NEWER_STAMP,
    UNREADABLE_STAMP,
    CONTENT_DIFFERS,
    PLAN_DIFFERS,
    NOT_CALIBRATED,
    UNKNOWN_BACKEND,
    STAMP_LOST,
    UNMARKED_LAYERS,
    NOT_QUANTIZED,
    CONTRADICTS,
    NOT_UNDERSTOOD,
    OTHER_BACKEND,
    UNSUPPORTED_OP,
    CAN_SATURATE,
    PROVED_SAFE,
    REDUCED_IN_VAIN,
    GRANULARITY,
    CODES_DTYPE,
    HOST_WITHOUT_VNNI,
    NO_ENGINE,
    LARGE_MULTIPLIER,
    WRONG_GEOMETRY,
    BAD_SCALE,
    DENORMAL_SCALE,
    BAD_ZERO_POINT,
    BIAS_SCALE,
    BIAS_RANGE,
    DEAD_CHANNEL,
    ONE_CODE,
    WRONG_AXIS,
    FAKE_QUANTIZED,
    FLOAT_COPY,
    BATCH_NORM,
    STORED_TWICE,
    NOT_FINITE,
)
