# Every command in the README. `make help` lists them.
# Needs any Python from 3.11 to 3.14 (choose one with PYTHON=…), git and make; demo and test need nothing else.

SHELL  := /bin/bash
PYTHON ?= python3
ARGS   ?=

BIN     := .venv/bin
PY      := $(BIN)/python
READY   := .venv/.kbslurm-ready
SLURM   ?= 22.05,24.11,26.05
FAULTS  ?= test_told or hangs or is_down or slurmd_that_dies or held or from_outside or requeued or memory or \
        judge_that or preempted or folder_that_cant or test_warm_faults
CLUSTER ?= .cluster/interactive
comma   := ,
FLOORS  := unit contract flow chaos golden architecture cluster gvisor
VERSION ?=
# pip refuses any file whose hash isn't in the lock, wherever it comes from.
PIP     := $(PY) -m pip --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help venv demo screenshots test test-fast test-again lint format types bench bench-cluster bench-harness bench-peer wheel-check docs release cluster cluster-shell \
        cluster-trees cluster-down laptop adversarial demo-slurm demo-discord demo-overflow demo-ray test-slurm-matrix test-faults test-gpu test-live test-popcorn test-pyslurm test-torch lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

venv: $(READY)  ## make the virtual environment from the committed lock

$(READY): requirements.lock pyproject.toml hatch_build.py
	@command -v $(PYTHON) >/dev/null || { echo "kbslurm needs Python 3.11 or newer, but $(PYTHON) wasn't found; choose one with make PYTHON=/path/to/python3." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kbslurm needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1); choose another with make PYTHON=/path/to/python3." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) can't make virtual environments; on Debian: apt-get install python3-venv." >&2; exit 2; }
	@if [ -L .venv ] && [ -e .venv/../pyproject.toml ]; then echo ".venv is a link to another checkout's environment, which this would make anew: run make venv there, or remove the link." >&2; exit 2; fi
	@rm -f $(READY)
	@$(PYTHON) .ci/make_venv.py .venv requirements.lock .
	@$(BIN)/python -m compileall -q eval || true  # launches write nothing, and would compile it each time
	@touch $(READY)

demo: $(READY)  ## run a competition on this machine: eight submissions, one leaderboard (ARGS=--once exits when done)
	@$(BIN)/kbslurm demo $(ARGS)

demo-discord: $(READY)  ## show a conversation with the Discord bot in the terminal, without a token (ARGS=--json)
	@$(BIN)/kbslurm demo --discord $(ARGS)

screenshots: $(READY)  ## take the pictures in docs/pictures from the demo's real pages (Chromium; ARGS=--json)
	@$(PY) -m tests.screenshots $(ARGS)

demo-overflow: $(READY)  ## take the only site down mid-competition and let GitHub and Modal stand-ins take its runs (ARGS=--json)
	@$(BIN)/kbslurm demo --overflow $(ARGS)

demo-ray: $(READY) .ray/.ready  ## a competition on a real Ray on loopback: a worker is killed in mid-run, a third joins (ARGS=--once, --json)
	@$(BIN)/kbslurm demo --ray $(ARGS)

test: $(READY)  ## run every test floor; ends with the counts per floor
	$(PY) -m pytest $(addprefix tests/,$(FLOORS)) $(ARGS)

test-fast: $(READY)  ## run the unit, golden and architecture floors in parallel, in about a minute
	@.ci/test-fast $(PY) $(ARGS)

test-again: $(READY)  # only the tests that failed last time
	$(PY) -m pytest --last-failed --last-failed-no-failures=none $(addprefix tests/,$(FLOORS)) $(ARGS)

lint: $(READY)  ## run ruff, its formatter, and the import rules between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)  ## run mypy --strict over service, bot, harness and tests
	$(BIN)/mypy --strict

adversarial: $(READY)  ## run the whole corpus of attacks: every size, every isolation level (ROUNDS=20 SHARD=1/4 ARGS=--races; ARGS=--api: those on the API)
	@$(PY) -m tests.adversarial $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SHARD),--shard $(SHARD)) $(ARGS)

bench: $(READY)  ## measure speed as ratios within one run, as a table and as JSON lines
	$(PY) -m tests.bench $(ARGS)

OF_PEER = $(if $(PEER),KBSLURM_PEER="$(PEER)" KBSLURM_PEER_SUBMISSION="$(SUBMISSION)" KBSLURM_PEER_CASE='$(CASE)' KBSLURM_TORCH_PYTHON="$(TORCH_PYTHON)" )

bench-harness: $(READY)  ## measure the harness's overhead and accuracy (minutes; ARGS='--scale 0.2' for a shorter run; with PEER=… as for bench-peer its aims, too)
	$(OF_PEER)$(PY) -m tests.bench harness $(ARGS)

bench-peer: $(READY)  ## a ranked run beside KernelBot's own eval (PEER=a problem's folder in a checkout, SUBMISSION=a file, TORCH_PYTHON=a python with torch; CASE='{"size": 2048, "seed": 1}')
	$(OF_PEER)$(PY) -m tests.bench peer $(ARGS)

bench-cluster: $(READY)  ## run the benchmarks on the test cluster (root)
	$(PY) -m tests.bench --cluster $(ARGS)

wheel-check: $(READY)  ## build the wheel, install it in a clean environment elsewhere, run the demo from there
	@PYTHON=$(PYTHON) .ci/wheel-check

docs: $(READY)  ## build the docs site from docs/ into build/docs; fails on broken links
	$(BIN)/properdocs build --strict
	@echo "build/docs/index.html"

release: $(READY)  ## check version, changelog, wheel and sdist; with VERSION=1.2.3 also commit and tag that version
	@$(PY) .ci/release.py $(VERSION)

cluster: $(READY)  ## start a real Slurm with real Apptainer on this machine (root); stays up until make cluster-down
	$(PY) tests/cluster/up.py start --dir $(CLUSTER) $(ARGS)

cluster-trees: $(READY)  ## prebuild the test cluster's file trees (root, minutes; SLURM=24.11,22.05)
	$(foreach slurm,$(subst $(comma), ,$(SLURM)),$(PY) tests/cluster/tree.py build --slurm $(slurm) &&) true

cluster-shell: $(READY)  ## open a shell on that cluster's login node
	$(PY) tests/cluster/up.py shell --dir $(CLUSTER) $(ARGS)

laptop:  ## run the tests in a fresh clone on a bare Debian 13, as an ordinary user (root; ARGS='--suite sid -- make demo')
	@$(PYTHON) -m tests.laptop $(or $(ARGS),-- make test)

cluster-down: $(READY)  ## stop that cluster
	$(PY) tests/cluster/up.py stop --dir $(CLUSTER) $(ARGS)

demo-slurm: $(READY)  ## run the demo on that cluster, from scratch (root)
	@$(BIN)/kbslurm demo --slurm $(ARGS)

test-faults: $(READY)  ## Slurm's faults on the test cluster, in real time at the default pace (root, minutes)
	KBSLURM_TEST_PACE=default $(PY) -m pytest tests/cluster/inside/test_faults.py tests/cluster/inside/test_told.py \
		tests/cluster/inside/test_told_forgetful.py tests/cluster/inside/test_told_memory.py \
		tests/cluster/inside/test_told_rest.py tests/cluster/inside/test_warm_faults.py -v -k "$(FAULTS)" \
		-o faulthandler_timeout=1500 $(ARGS)

test-slurm-matrix: $(READY)  ## run the Slurm contract suite and the faults of warm workers on Slurm 22.05, 24.11 and 26.05 (root)
	KBSLURM_SLURM_MATRIX=$(SLURM) $(PY) -m pytest tests/cluster tests/contract -m matrix $(ARGS)

nvcc: .nvcc/.ready  ## install nvcc from PyPI (130 MB) into .nvcc/, for the tests that compile device code

.nvcc/.ready: tests/nvcc.lock | $(READY)
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then rm -rf .nvcc && \
	$(PIP) install --quiet --no-deps --require-hashes --target .nvcc -r tests/nvcc.lock && touch $@; \
	else echo "nvcc's wheels in tests/nvcc.lock are for Linux on x86_64"; fi

ray: .ray/.ready  ## install Ray from PyPI (390 MB) into .ray/, an environment of its own, for the tests of runs on Ray

.ray/.ready: tests/ray.lock | $(READY)
	@if [ "$$(uname -sm)" = "Linux x86_64" ]; then rm -rf .ray && $(PY) -m venv .ray && \
	.ray/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-deps --require-hashes -r tests/ray.lock && touch $@; \
	else echo "Ray is tested on Linux on x86_64"; fi

test-ray: $(READY) .ray/.ready  ## run the Ray backend's tests, and all its faults, on a real Ray (minutes)
	KBSLURM_TEST_PACE=default $(PY) -m pytest tests/contract/test_backend_ray.py tests/contract/test_ray_containers.py \
	tests/contract/test_ray_faults.py tests/chaos/test_demo_ray.py -v $(ARGS)

test-problems: $(READY)  ## test a whole repository of problems on the CPU (KBSLURM_PROBLEM_REPO=DIR TORCH_PYTHON=/path/to/a/python that has torch, for those that need it)
	@KBSLURM_TORCH_PYTHON="$(TORCH_PYTHON)" $(PY) -m tests.problem_repository $(ARGS)

test-gpu: $(READY)  ## run the tests that need a real GPU
	KBSLURM_TEST_GPU=1 $(PY) -m pytest tests -m gpu $(ARGS)

test-live: $(READY)  ## run the tests that need real accounts
	KBSLURM_TEST_LIVE=1 $(PY) -m pytest tests -m live $(ARGS)

test-popcorn: $(READY)  ## test the service with our strict client, then with a real popcorn-cli (CLI=PATH)
	$(PY) -m pytest tests/flow/test_popcorn.py $(ARGS)
	$(if $(CLI),KBSLURM_POPCORN_CLI="$(CLI)" $(PY) -m pytest tests/popcorn/binary.py $(ARGS),@echo "To test a real popcorn-cli too, pass CLI=PATH.")

test-torch: $(READY)  ## run the tests that need torch and Triton, on the CPU (TORCH_PYTHON=/path/to/a/python that has both)
	@"$(or $(TORCH_PYTHON),$(PYTHON))" -c 'import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, ("torch", "triton"))))' || { echo "$(or $(TORCH_PYTHON),$(PYTHON)) doesn't have torch and triton; choose a Python that has them with make test-torch TORCH_PYTHON=/path/to/python." >&2; exit 2; }
	KBSLURM_TORCH_PYTHON="$(or $(TORCH_PYTHON),$(PYTHON))" $(PY) -m pytest tests -m torch $(ARGS)

test-pyslurm: $(READY)  ## test the fleet reader with a real pyslurm (PYSLURM_PYTHON=/path/to/python that has it)
	@"$(or $(PYSLURM_PYTHON),$(PYTHON))" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("pyslurm") is None)' || { echo "$(or $(PYSLURM_PYTHON),$(PYTHON)) doesn't have pyslurm, which is built for one release of Slurm; choose a Python that has it with make test-pyslurm PYSLURM_PYTHON=/path/to/python, on a login node of that Slurm." >&2; exit 2; }
	KBSLURM_PYSLURM_PYTHON="$(or $(PYSLURM_PYTHON),$(PYTHON))" $(PY) -m pytest tests -m pyslurm $(ARGS)

lock:  ## resolve the dependencies again for Python 3.11 to 3.14 on every platform; writes requirements.lock
	@$(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	.venv-lock/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url --no-config --upgrade --quiet --output-file requirements.lock
	@rm -rf .venv-lock

ray-lock:  # the same for tests/ray.lock: what the extra `ray` names
	@$(PYTHON) -m venv .ray-lock && .ray-lock/bin/pip install --quiet uv
	@sed -nE 's/^ray = \["(.*)"\]$$/\1/p' pyproject.toml >.ray-lock/ray.in
	.ray-lock/bin/uv pip compile .ray-lock/ray.in --universal --python-version 3.11 --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url --no-config --upgrade --quiet --output-file .ray-lock/lock
	@{ sed -n '/^[^#]/q;p' tests/ray.lock; cat .ray-lock/lock; } >.ray-lock/new && cp .ray-lock/new tests/ray.lock
	@rm -rf .ray-lock

clean:  ## remove everything that make created here
	rm -rf .venv .venv-lock .nvcc .ray .ray-lock .kbslurm/demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
