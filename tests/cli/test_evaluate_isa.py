"""`qtool evaluate --isa`: the stamped engine as it is on an older CPU, unprotected, in a process of its own."""

import json

import pytest

from qtool.backends.host import HostFacts, host_facts
from qtool.backends.registry import backend
from qtool.cli.main import run
from qtool.errors import MissingIsaError
from qtool.types import Isa
from qtool.workflows.other_cpu import check_has, environment_for
from tests.cli.conftest import write_config_to
from tests.cli.process import call, environment

CAPS = {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A file made for CPUs with VNNI, whose weights can saturate without."""
    return made(tmp_path_factory.mktemp("full"), "vnni")


def made(folder, isa, backend_name="onednn"):
    changes = {"target": {"backend": backend_name, "isa": isa}, "model.factory": "tests.cli.models:loud_classifier"}
    config = write_config_to(folder / "model.yaml", changes)
    assert run(["prepare", str(config), "-o", str(folder / "prepared.pt2")]) == 0
    assert run(["convert", str(folder / "prepared.pt2"), "-o", str(folder / "int8.pt2")]) == 0
    return folder / "int8.pt2", config


def evaluate(files, *options, **settings):
    return call(["evaluate", str(files[0]), "--config", str(files[1]), *options], **settings)


def test_the_damage_shows_and_its_nodes_are_named(full, capfd):
    facts = {}
    for options in (("--isa", "no-vnni"), ("--engine", "qnnpack")):
        capfd.readouterr()
        assert run(["evaluate", str(full[0]), "--config", str(full[1]), "--json", *options]) == 0
        measured = json.loads(capfd.readouterr().out)
        facts[measured["engine"]] = measured
    assert facts["onednn"]["isa"] == "no-vnni"
    assert [override["node"] for override in facts["onednn"]["overrides"]] == ["0"]
    assert (facts["qnnpack"]["isa"], facts["qnnpack"]["overrides"]) == (None, [])
    assert facts["onednn"]["sqnr_db"] < facts["qnnpack"]["sqnr_db"] - 10


@pytest.mark.slow
def test_the_report_as_text(full):
    done = evaluate(full, "--isa", "no-vnni")
    assert done.returncode == 0, done.stderr
    assert "converted, onednn, no-vnni" in done.stdout.decode()
    assert "override: 0 ran on onednn although" in done.stdout.decode()


@pytest.mark.slow
def test_a_file_through_a_pipe(full):
    arguments = ["evaluate", "-", "--config", str(full[1]), "--isa", "no-vnni", "--json"]
    done = call(arguments, input=full[0].read_bytes())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] == "onednn"


@pytest.mark.slow
def test_protection_can_be_asked_for(full):
    done = evaluate(full, "--isa", "no-vnni", "--engine", "onednn", "--on-mismatch", "fallback", "--json")
    facts = json.loads(done.stdout)
    assert facts["overrides"] == []
    assert "qnnpack" in facts["engines"]


def test_a_wrong_option_is_told_once_with_its_status(full):
    done = evaluate(full, "--isa", "no-vnni", "--set", "data.evaluate.nothing=1")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count("nothing") >= 1


@pytest.mark.slow
def test_a_prepared_file_runs_on_no_engine(full):
    done = evaluate((full[0].with_name("prepared.pt2"), full[1]), "--isa", "no-vnni")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "runs on no engine" in done.stderr


@pytest.mark.skipif(host_facts(environment={}).isa_of("onednn") is Isa.VNNI, reason="asks for what is missing")
def test_vnni_where_there_is_none_ends_with_status_4(full):
    done = evaluate(full, "--isa", "vnni", env=environment(**CAPS))
    assert (done.returncode, done.stdout) == (4, b"")
    assert "onednn finds a CPU of kind no-vnni on this machine" in done.stderr
    assert "avx512_vnni" in done.stderr


@pytest.mark.skipif(host_facts(environment={}).isa_of("onednn") is not Isa.VNNI, reason="needs VNNI")
def test_vnni_is_found_under_caps_that_hide_it(full):
    done = evaluate(full, "--isa", "vnni", "--json", env=environment(**CAPS))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["overrides"] == []


def host(*flags, **caps):
    return HostFacts(
        architecture="x86_64",
        cpu_flags=frozenset(flags),
        caps=tuple(caps.items()),
        torch_version=None,
        engines=None,
    )


@pytest.mark.parametrize("name", ["fbgemm", "x86", "onednn"])
def test_what_a_machine_has(name):
    capped, new = host("avx2", "avx512_vnni", **CAPS), host("avx2", "avx512_vnni")
    check_has(Isa.NO_VNNI, backend(name), capped)
    check_has(Isa.VNNI, backend(name), new)
    check_has(Isa.ANY, backend(name), new)
    with pytest.raises(
        MissingIsaError, match=rf"{name} finds a CPU of kind no-vnni on this machine under FBGEMM_ENABLE"
    ):
        check_has(Isa.VNNI, backend(name), capped)
    with pytest.raises(MissingIsaError, match="finds a CPU of kind vnni on this machine"):
        check_has(Isa.NO_VNNI, backend(name), new)


def test_desktop_cpus_with_avx_vnni_have_it_for_onednn_only():
    check_has(Isa.VNNI, backend("onednn"), host("avx2", "avx_vnni"))
    with pytest.raises(MissingIsaError, match="avx512_vnni"):
        check_has(Isa.VNNI, backend("fbgemm"), host("avx2", "avx_vnni"))


def test_qnnpack_is_the_same_on_every_cpu():
    check_has(Isa.VNNI, backend("qnnpack"), host("avx2"))
    check_has(Isa.NO_VNNI, backend("qnnpack"), host("avx512_vnni"))


def test_environments():
    environ = {"HOME": "/root", "DNNL_MAX_CPU_ISA": "SSE41", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert environment_for(Isa.VNNI, environ) == {"HOME": "/root"}
    assert environment_for(Isa.NO_VNNI, environ) == {"HOME": "/root", **CAPS}
