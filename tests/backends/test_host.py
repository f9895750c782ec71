import subprocess
import sys

import pytest

from qtool.backends.host import SHOWN_FLAGS, VNNI_FLAGS, host_facts
from qtool.backends.registry import BACKENDS, backend_names
from qtool.errors import UsageError
from qtool.types import Isa

SKYLAKE = "fpu sse4_1 avx2 avx512f avx512bw avx512vl"
CASCADE_LAKE = f"{SKYLAKE} avx512_vnni"
SAPPHIRE_RAPIDS = f"{CASCADE_LAKE} avx_vnni amx_int8 amx_tile"
ALDER_LAKE = "fpu sse4_1 avx2 avx_vnni"
HASWELL = "fpu sse4_1 avx2"
NEHALEM = "fpu sse4_1"


@pytest.fixture
def host(tmp_path):
    """Facts of a machine with that /proc/cpuinfo: its flags line, or the whole text."""

    def make(flags, environment=None, architecture="x86_64"):
        path = tmp_path / "cpuinfo"
        core = "processor\t: {}\nmodel name\t: Some CPU\nflags\t\t: {}\nvmx flags\t: vnmi\n\n"
        text = flags if "\n" in flags else core.format(0, flags) + core.format(1, flags)
        path.write_text(text, encoding="utf-8")
        return host_facts(cpuinfo=path, environment=environment or {}, architecture=architecture)

    return make


@pytest.mark.parametrize(
    ("flags", "fbgemm", "onednn", "onnxruntime"),
    [
        (HASWELL, Isa.NO_VNNI, Isa.NO_VNNI, Isa.NO_VNNI),
        (SKYLAKE, Isa.NO_VNNI, Isa.NO_VNNI, Isa.NO_VNNI),
        (CASCADE_LAKE, Isa.VNNI, Isa.VNNI, Isa.VNNI),
        (SAPPHIRE_RAPIDS, Isa.VNNI, Isa.VNNI, Isa.VNNI),
        (ALDER_LAKE, Isa.NO_VNNI, Isa.VNNI, Isa.VNNI),  # fbgemm has no code for AVX-VNNI
    ],
)
def test_isa_by_cpu(host, flags, fbgemm, onednn, onnxruntime):
    facts = host(flags)
    assert (facts.isa_of("fbgemm"), facts.isa_of("onednn"), facts.isa_of("onnxruntime")) == (
        fbgemm,
        onednn,
        onnxruntime,
    )
    assert facts.isa_of("x86") is fbgemm  # it asks for AVX-512 VNNI before it takes oneDNN
    assert facts.has_vnni is any(flag in flags.split() for flag in VNNI_FLAGS)


@pytest.mark.parametrize(
    ("environment", "fbgemm", "onednn"),
    [
        ({"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}, Isa.NO_VNNI, Isa.VNNI),
        ({"FBGEMM_ENABLE_INSTRUCTIONS": "avx512_256"}, Isa.NO_VNNI, Isa.VNNI),
        ({"FBGEMM_ENABLE_INSTRUCTIONS": "AVX512_E1"}, Isa.VNNI, Isa.VNNI),
        ({"FBGEMM_ENABLE_INSTRUCTIONS": "nonsense"}, Isa.VNNI, Isa.VNNI),
        ({"FBGEMM_ENABLE_INSTRUCTIONS": ""}, Isa.VNNI, Isa.VNNI),
        ({"ONEDNN_MAX_CPU_ISA": "avx2"}, Isa.VNNI, Isa.NO_VNNI),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}, Isa.VNNI, Isa.NO_VNNI),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}, Isa.VNNI, Isa.VNNI),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}, Isa.VNNI, Isa.VNNI),
        ({"ONEDNN_MAX_CPU_ISA": "ALL"}, Isa.VNNI, Isa.VNNI),
        ({"DNNL_MAX_CPU_ISA": "AVX2"}, Isa.VNNI, Isa.NO_VNNI),
        ({"DNNL_MAX_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "ALL"}, Isa.VNNI, Isa.VNNI),  # the first one counts
        ({"DNNL_MAX_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": ""}, Isa.VNNI, Isa.NO_VNNI),  # empty is not set
    ],
)
def test_caps(host, environment, fbgemm, onednn):
    facts = host(SAPPHIRE_RAPIDS, environment)
    assert (facts.isa_of("fbgemm"), facts.isa_of("onednn")) == (fbgemm, onednn)
    both = Isa.NO_VNNI if Isa.NO_VNNI in (fbgemm, onednn) else Isa.VNNI
    expected = Isa.NO_VNNI if environment.get("ONEDNN_MAX_CPU_ISA") == "AVX2_VNNI" else both
    assert facts.isa_of("x86") is expected
    assert facts.isa_of("onnxruntime") is Isa.VNNI
    assert facts.has_vnni is True


def test_a_cap_to_what_the_cpu_has_not_leaves_nothing(host):
    assert host(CASCADE_LAKE, {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}).isa_of("onednn") is Isa.NO_VNNI
    assert host(ALDER_LAKE, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}).isa_of("onednn") is Isa.NO_VNNI


def test_caps_that_are_set_are_shown(host):
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX2", "FBGEMM_ENABLE_INSTRUCTIONS": "", "HOME": "/"}
    assert host(HASWELL, environment).caps == (("ONEDNN_MAX_CPU_ISA", "AVX2"),)


def test_a_flag_that_one_core_lacks_is_not_counted(host):
    text = f"flags\t\t: {SAPPHIRE_RAPIDS}\n\nflags\t\t: {HASWELL}\n"
    assert host(text).cpu_flags == frozenset(HASWELL.split())


def test_flags_are_shown_in_order(host):
    assert host(SAPPHIRE_RAPIDS).isa_flags == ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8")
    assert set(SHOWN_FLAGS) >= VNNI_FLAGS


def test_arm_is_unknown_territory(host):
    facts = host("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\n", architecture="arm64")
    assert (facts.architecture, facts.isa_flags) == ("aarch64", ("asimd", "asimddp", "i8mm"))
    assert (facts.has_vnni, facts.isa_of("onednn")) == (None, Isa.ANY)
    assert facts.engines == ("qnnpack",)


@pytest.mark.parametrize("text", ["", "nothing of use\n", "flags : written without a tab\n"])
def test_a_cpuinfo_without_flags_is_unknown(host, text):
    facts = host(f"{text}\n")
    assert (facts.cpu_flags, facts.isa_flags, facts.has_vnni) == (None, None, None)
    assert {facts.isa_of(name) for name in backend_names()} == {Isa.ANY}
    assert facts.engines == ("fbgemm", "x86", "onednn", "qnnpack")


def test_a_missing_cpuinfo_is_unknown(tmp_path):
    facts = host_facts(cpuinfo=tmp_path / "none", environment={}, architecture="AMD64")
    assert (facts.architecture, facts.cpu_flags, facts.has_vnni) == ("x86_64", None, None)


def test_engines_that_need_avx2_are_not_expected_without_it(host):
    assert host(NEHALEM).engines == ("onednn", "qnnpack")


def test_an_unknown_architecture_has_unknown_engines(host):
    facts = host(HASWELL, architecture="riscv64")
    assert (facts.engines, facts.has_vnni, facts.isa_of("fbgemm")) == (None, None, Isa.ANY)


def test_without_torch_there_are_no_engines(host, monkeypatch):
    monkeypatch.setattr("qtool.backends.host._torch_version", lambda: None)
    facts = host(HASWELL)
    assert (facts.torch_version, facts.engines) == (None, ())


def test_a_typo_in_the_backend_gets_the_nearest_name(host):
    with pytest.raises(UsageError, match="did you mean 'onednn'"):
        host(HASWELL).isa_of("onedn")


def test_this_machine_has_torch():
    facts = host_facts()
    assert facts.torch_version
    assert {facts.isa_of(record.name) for record in BACKENDS} <= set(Isa)


def test_asking_does_not_import_torch():
    code = (
        "import sys; from qtool.backends.host import host_facts; host_facts(); import qtool.backends.defaults; "
        "import qtool.saturation.pairs; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
