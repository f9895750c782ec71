from tests.lowering.engine_template import EngineTemplate


class TestFbgemm(EngineTemplate):
    backend = "fbgemm"
