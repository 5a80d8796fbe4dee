# make demo: a whole campaign on this machine. make test: what CI runs. make lab: a campaign on two
# machines over ssh, in namespaces of this one (root). make demo-vllm: one with vLLM's build for CPUs
# (CPython 3.11, x86_64; 2.5 GB), which make vllm installs. make demo-sglang: one with SGLang on the
# processor (the same; 3.4 GB), which make sglang installs. make demo-clients: one case with the load
# clients of vLLM, SGLang and NVIDIA (make aiperf, 0.8 GB). All set up what is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES ?= all
PYTEST ?= pytest

.PHONY: demo demo-vllm demo-sglang demo-clients vllm sglang aiperf lab test lint bench clean

$(VENV)/.base: requirements/base.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/base.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt
	touch $@

# Only missing files are written, so a patched copy of the embedded server stays as it is.
.demo/tiny.gguf: $(VENV)/.base
	$(BIN)/servemap embedded .demo
	touch $@

demo: .demo/tiny.gguf
	$(BIN)/snakemake --cores $(CORES) --quiet all
	$(BIN)/servemap table demo

# Environments apart, from requirements/NAME.txt, made to work by requirements/fit_NAME.py if that is there.
.%/.installed: requirements/%.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "$* is locked for Python 3.11: make PYTHON=python3.11 $*")'
	test -x .$*/venv/bin/python || $(PYTHON) -m venv .$*/venv
	.$*/venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	$(if $(wildcard requirements/fit_$*.py),.$*/venv/bin/python requirements/fit_$*.py)
	touch $@

.vllm/.installed: requirements/fit_vllm.py
.sglang/.installed: requirements/fit_sglang.py

vllm: .vllm/.installed
sglang: .sglang/.installed
aiperf: .aiperf/.installed

.vllm/model .sglang/model: $(VENV)/.base
	$(BIN)/python -m servemap.engines.embedded.tiny_hf $@
	touch $@

demo-vllm: .vllm/.installed .vllm/model
	$(BIN)/snakemake --cores $(CORES) --quiet all --configfile config/vllm.yaml
	$(BIN)/servemap table vllm

demo-sglang: .sglang/.installed .sglang/model
	$(BIN)/snakemake --cores $(CORES) --quiet all --configfile config/sglang.yaml
	$(BIN)/servemap table sglang

demo-clients: .demo/tiny.gguf .vllm/.installed .vllm/model .sglang/.installed .aiperf/.installed
	$(BIN)/snakemake --cores $(CORES) --quiet all --configfile config/clients.yaml
	$(BIN)/servemap table clients

# The tests' own harness makes the machines, so pytest and its like are needed.
lab: $(VENV)/.dev
	$(BIN)/python -m tests.lab .lab

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakemake --lint

test: $(VENV)/.dev
	$(MAKE) lint
	$(BIN)/python -m $(PYTEST) -n 2 --dist loadfile $(PYTEST_ARGS)

bench: $(VENV)/.base
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .demo .lab .vllm .sglang .aiperf .snakemake
