"""The shape of a backend's description: frozen records without behaviour.

A backend is one constant in one file of `qtool/backends/catalog/`, made of the records below. What follows from
them (which codes an activation may use on which CPU) is decided in `qtool.backends.ranges`, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qtool.errors import RangeError, nearest
from qtool.types import MAC_OPS, Dtype, Granularity, Op


class Support(StrEnum):
    """What a backend's int8 kernel of one op computes, compared with the reference arithmetic.

    EQUAL: at most one output step from it, for every input.
    UNSUPPORTED: there is no int8 kernel; the op runs in float.
    WRONG_UNLESS: equal only under the condition the rule states; else wrong without a message.
    """

    EQUAL = "equal"
    UNSUPPORTED = "unsupported"
    WRONG_UNLESS = "wrong_unless"


class Saturates(StrEnum):
    """On which CPUs a kernel adds pairs of u8 x s8 products in int16, which full-range codes saturate.

    255 * 127 * 2 = 64770 is above 32767; 127 * 127 * 2 = 32258 is not.
    """

    NEVER = "never"
    WITHOUT_VNNI = "without_vnni"
    ALWAYS = "always"


class Pairing(StrEnum):
    """Which two products of one output channel a kernel adds in int16; `qtool.saturation.pairs` has the arithmetic.

    ANY: any two; what is taken where the order is not known.
    IN_ORDER: neighbours 2k and 2k + 1 in the order of an unfolded input: kernel positions, at each the input channels.
    CHANNELS: neighbouring input channels 2k and 2k + 1 at one kernel position; with fewer than 4 channels in a group,
        which kernels for first layers take in other orders, any two.
    """

    ANY = "any"
    IN_ORDER = "in_order"
    CHANNELS = "channels"


class RangeName(StrEnum):
    """Which part of its dtype a tensor's codes use; `qtool.backends.ranges` has the numbers.

    FULL: all of it. REDUCED: half of it, one bit less. SYMMETRIC: as many negative as positive codes.
    """

    FULL = "full"
    REDUCED = "reduced"
    SYMMETRIC = "symmetric"


@dataclass(frozen=True, kw_only=True)
class GroupedFault:
    """Grouped convolutions that a backend's kernel must never be given, because it damages the process.

    Attributes:
        kernel: the window.
        channels_per_group: the numbers of channels per group it befalls, if inputs and outputs have the same.
        multiple_of: it befalls layers with more channels than this that are not a multiple of it.
        what: what happens, in words.
    """

    kernel: tuple[int, ...]
    channels_per_group: tuple[int, ...]
    multiple_of: int
    what: str


@dataclass(frozen=True, kw_only=True)
class TransposedFault:
    """Transposed convolutions without groups that a backend's kernel must never be given, because it is wrong.

    Attributes:
        kernel_height: first size of the window.
        multiple_of: it befalls layers whose input and output channels are both multiples of it.
        what: what happens, in words.
    """

    kernel_height: int
    multiple_of: int
    what: str


@dataclass(frozen=True, kw_only=True)
class OpRule:
    """What one backend does with one op.

    Attributes:
        op: the op pattern.
        support: what its int8 kernel computes.
        unless: with WRONG_UNLESS, the condition under which the kernel is right, in words; else empty.
        granularities: of the weight, best first; empty for ops without weight.
        saturates: where the kernel's int16 sums saturate.
        depthwise_saturates: the same for a convolution with more than one group and one input and one output channel
            in each, which has kernels of its own.
        pairings: which products are added where the kernel saturates; of several, the worst counts.
        depthwise_pairings: the same for one output channel in each group; empty if it is no other.
        fused_activations: activations computed with the op, without a quantized value in between.
        faults: convolutions that stay float; see `qtool.backends.faults`.
        note: what else a reader should know, in words.
        source: the upstream file or page that shows it.
        measured: the test that runs the kernel and shows it; empty where this project cannot run it.

    Raises:
        RangeError: the rule contradicts itself.
    """

    op: Op
    support: Support
    unless: str = ""
    granularities: tuple[Granularity, ...] = ()
    saturates: Saturates = Saturates.NEVER
    depthwise_saturates: Saturates = Saturates.NEVER
    pairings: tuple[Pairing, ...] = (Pairing.ANY,)
    depthwise_pairings: tuple[Pairing, ...] = ()
    fused_activations: tuple[str, ...] = ()
    faults: tuple[GroupedFault | TransposedFault, ...] = ()
    note: str = ""
    source: str
    measured: str = ""

    def __post_init__(self) -> None:
        if (self.support is Support.WRONG_UNLESS) != bool(self.unless):
            msg = (
                f"rule for {self.op.value!r}: support {self.support.value!r} with condition {self.unless!r}; "
                "exactly the 'wrong_unless' rules state one"
            )
            raise RangeError(msg)
        can_saturate = self.saturates is not Saturates.NEVER or self.depthwise_saturates is not Saturates.NEVER
        if can_saturate and self.support is not Support.WRONG_UNLESS:
            msg = f"rule for {self.op.value!r}: a kernel that saturates is 'wrong_unless', not {self.support.value!r}"
            raise RangeError(msg)
        if not self.pairings:
            msg = f"rule for {self.op.value!r}: no pairing; where none is known, state 'any'"
            raise RangeError(msg)
        has_weight = self.op in MAC_OPS and self.support is not Support.UNSUPPORTED
        if has_weight != bool(self.granularities):
            msg = f"rule for {self.op.value!r}: granularities {self.granularities}; exactly ops with a weight have some"
            raise RangeError(msg)


@dataclass(frozen=True, kw_only=True)
class IsaCap:
    """An environment variable that keeps a library from using all the CPU has; read once, when the process starts.

    Attributes:
        variables: its names; the first one that is set and not empty counts.
        usable: for each value that takes VNNI away or narrows it, the CPU flags that stay usable. Case does not
            matter; a value that is not listed changes nothing.
        source: upstream file that reads it.
    """

    variables: tuple[str, ...]
    usable: tuple[tuple[str, tuple[str, ...]], ...]
    source: str


@dataclass(frozen=True, kw_only=True)
class KernelIsa:
    """Which instruction sets keep a backend's kernels from saturating, and what can keep it from using them.

    Attributes:
        vnni_flags: CPU flags as /proc/cpuinfo spells them; with any one of them the kernels sum in int32.
        caps: the variables that cap what the kernels use; all of them count.
        source: upstream file that looks at the CPU.
    """

    vnni_flags: tuple[str, ...]
    caps: tuple[IsaCap, ...] = ()
    source: str


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One way to run an int8 model: its kernels, and what they need to be right.

    Attributes:
        name: the name in configs, stamps and options.
        title: one line for people.
        engine: name of the torch quantized engine that runs it; None if something else does.
        runtime: the program it runs in.
        activation_dtype: dtype of activation codes; their zero point is free.
        weight_dtype: dtype of weight codes; their zero point is 0.
        weight_range: which part of that dtype weights use.
        isa: the instruction sets its kernels depend on; None where results never depend on the CPU.
        rules: one rule for every op.
        source: upstream file or page that describes the backend.

    Raises:
        RangeError: two rules for one op, or an op without one.
    """

    name: str
    title: str
    engine: str | None
    runtime: str
    activation_dtype: Dtype = Dtype.UINT8
    weight_dtype: Dtype = Dtype.INT8
    weight_range: RangeName = RangeName.SYMMETRIC
    isa: KernelIsa | None = None
    rules: tuple[OpRule, ...]
    source: str

    def __post_init__(self) -> None:
        ops = [rule.op.value for rule in self.rules]
        if sorted(ops) != sorted(op.value for op in Op):
            missing = sorted({op.value for op in Op} - set(ops))
            repeated = sorted({op for op in ops if ops.count(op) > 1})
            msg = f"backend {self.name!r}: no rule for {missing}, several for {repeated}; give every op exactly one"
            raise RangeError(msg)

    def rule(self, op: Op) -> OpRule:
        """Return the rule for an op.

        Raises:
            RangeError: `op` is not one of `Op`.
        """
        for rule in self.rules:
            if rule.op == op:
                return rule
        names = [known.value for known in Op]
        msg = f"{op!r} is not an op of backend {self.name!r}{nearest(str(op), names) or '.'} Known: {', '.join(names)}"
        raise RangeError(msg)
