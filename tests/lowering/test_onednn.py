from qtool.backends.host import host_facts
from qtool.types import Isa
from tests.lowering.engine_template import EngineTemplate


class TestOnednn(EngineTemplate):
    backend = "onednn"
    # Full-range activations where this CPU computes them right; elsewhere the model would be refused.
    isa = Isa.VNNI if host_facts().isa_of("onednn") is Isa.VNNI else Isa.ANY


class TestOnednnReduced(EngineTemplate):
    backend = "onednn"
