from tests.lowering.engine_template import EngineTemplate


class TestX86(EngineTemplate):
    backend = "x86"
