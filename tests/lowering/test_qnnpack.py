from tests.lowering.engine_template import EngineTemplate


class TestQnnpack(EngineTemplate):
    backend = "qnnpack"
