"""Who may import whom, and that the lower half runs without torch."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
TORCH_FREE = next(c["source_modules"] for c in CONTRACTS if c["type"] == "forbidden")

IMPORT_ALL_OF_A_PACKAGE = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
    importlib.import_module(module.name)
    if "torch" in sys.modules:
        sys.exit(module.name + " imports torch")
sys.exit("torch is imported" if "torch" in sys.modules else 0)
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_imports_go_down_the_layers_only():
    lint = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    done = run(sys.executable, "-c", lint)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Contracts: 2 kept, 0 broken." in done.stdout


@pytest.mark.parametrize("package", TORCH_FREE)
def test_importing_a_torch_free_package_leaves_torch_out(package):
    done = run(sys.executable, "-c", IMPORT_ALL_OF_A_PACKAGE, package)
    assert done.returncode == 0, done.stderr


def test_the_check_for_torch_sees_torch():
    done = run(sys.executable, "-c", IMPORT_ALL_OF_A_PACKAGE, "qtool.data")
    assert done.returncode == 1
    assert "imports torch" in done.stderr


def test_packages_hold_no_names_of_their_own():
    inits = [file for file in (ROOT / "qtool").rglob("__init__.py") if file.parent != ROOT / "qtool"]
    assert inits
    for file in inits:
        assert len(file.read_text().splitlines()) <= 1, f"{file}: import names from their modules"
