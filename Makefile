# Two commands do everything, set-up included: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/sh
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
SIDE_BY_SIDE ?= 3
SWEPT ?= --jobs 40 --seeds 2 --chunk-scale 0.1 --most-jobs 100
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

.PHONY: help setup control-plane binaries demo test lint types contracts unit integration examples bench bench-live sweeps mutations chaos fuzz results generate lock clean observability pictures browser screenshots sbom kind-demo docs

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(STAMP)  ## .venv with the commands tranche and tranche-operator

$(STAMP): requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "tranche needs Python 3.11, 3.12 or 3.13 (or: make PYTHON=/path/to/python)" >&2; exit 1; }
	@echo "installing into $(VENV): the packages of requirements/dev.txt (pinned, with hashes; 1 GB, a minute or two) and this checkout"
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt || { \
		echo "the packages could not be installed: is the package index reachable? For a mirror set PIP_INDEX_URL" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

CONTROL_PLANE := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok

control-plane: setup  ## etcd, Kubernetes and kwok, built from Go modules, once (or TRANCHE_ASSETS=folder)
	@$(BIN)/python -m tranche_testcluster build $(CONTROL_PLANE)

binaries: setup  ## the control plane, and helm, kubeconform and kind for the tests
	@$(BIN)/python -m tranche_testcluster build

demo: control-plane  ## real jobs on a real control plane, two to three minutes (KEEP=1: leave it running, SEED=, POLICY=, SLOWER=)
	@$(BIN)/tranche demo $(if $(KEEP),--keep) $(if $(SEED),--seed $(SEED)) $(if $(POLICY),--policy $(POLICY)) $(if $(SLOWER),--slower $(SLOWER))

observability: setup  ## Prometheus and promtool for the tests of dashboards and alerts, from Debian's package, once
	@$(BIN)/python -m tranche_testcluster.binaries.debian_package

test: lint types contracts binaries  ## everything that .ci/run runs (SIDE_BY_SIDE=: modules at a time)
	@$(BIN)/python -m tranche_testcluster.binaries.debian_package || echo "without them the tests that need Prometheus are skipped" >&2
	$(BIN)/python -m pytest --numprocesses $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder

lint: setup  ## Run ruff and the check of the language
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_language.py

types: setup  ## mypy --strict
	$(BIN)/mypy

contracts: setup  ## import-linter: which room may know which
	$(BIN)/lint-imports

unit: setup  ## tests without a control plane
	$(BIN)/python -m pytest tests/unit tests/property

integration: binaries  ## tests on the real control plane
	$(BIN)/python -m pytest tests/integration tests/testcluster

examples: setup  ## PyTorch (5 GB on Linux) and TensorFlow (2 GB) for worker/examples, once
	@PYTHONPATH=tests $(BIN)/python -m support.frameworks

bench: examples  ## the figures of the README
	$(BIN)/python benchmarks/demo_stretches.py
	$(BIN)/python benchmarks/extender_filter.py
	$(BIN)/python benchmarks/simulator_targets.py
	$(BIN)/python benchmarks/simulator_curve.py --picture
	$(BIN)/python benchmarks/policy_bars.py
	$(BIN)/python benchmarks/gang_bars.py
	$(BIN)/python benchmarks/estimate_errors.py
	$(BIN)/python benchmarks/fair_shares.py
	$(BIN)/python benchmarks/planner_speed.py --picture
	$(BIN)/python benchmarks/worker_losses.py --picture
	$(BIN)/python benchmarks/framework_examples.py
	$(BIN)/python benchmarks/report_rate.py
	$(BIN)/python benchmarks/filter_latency.py
	PYTHONPATH=tests $(BIN)/python benchmarks/page_speed.py
	PYTHONPATH=tests $(BIN)/python benchmarks/competitive_ratio.py
	$(BIN)/python benchmarks/sweeps.py $(SWEPT)

sweeps: setup  ## JCT over each parameter of the JSAC setting: tables, and docs/pictures/sweep-*.png (an hour or more; SWEPT=: options)
	$(BIN)/python benchmarks/sweeps.py $(SWEPT) --picture

chaos: binaries  ## rounds of faults on a real control plane, about a minute each (ROUNDS=, SEED=, AT_ONCE=); failed ones leave build/chaos/SEED
	PYTHONPATH=tests $(BIN)/python -m chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(AT_ONCE),--at-once $(AT_ONCE))

fuzz: binaries  ## any request and any object, FUZZ= times as many as in make test (SEED=)
	FUZZ=$(or $(FUZZ),20) SEED=$(or $(SEED),1) $(BIN)/python -m pytest tests/contract/test_any_request.py \
		tests/property/test_any_objects.py tests/integration/whole/test_fuzz.py

mutations: binaries  ## take out what docs/enactment.md promises and see tests turn red (an hour; ONLY=: points or words; LEFT=1: what is not caught yet)
	$(BIN)/python benchmarks/mutations.py --at-once 2 $(if $(ONLY),--only "$(ONLY)") $(if $(LEFT),--left)

bench-live: control-plane  ## completion times on a real control plane, beside those of other schedulers (five minutes)
	$(BIN)/python benchmarks/live_jct.py

browser:  ## Chromium for the tests of the web page (Debian, as root)
	@command -v chromium || (apt-get update --quiet && apt-get install --yes --no-install-recommends chromium)

screenshots: control-plane  ## pictures of the web page in docs/pictures, from a running demo
	PYTHONPATH=tests $(BIN)/python benchmarks/page_pictures.py

results: setup  ## tables and pictures of docs/results.md (hours)
	$(BIN)/python benchmarks/results.py

pictures: control-plane observability  ## docs/pictures/dashboard-*.png, from a run of a minute and a half
	$(BIN)/python benchmarks/dashboard_pictures.py

docs: setup  ## these pages as build/docs/index.html, and whether they hold: links, commands, doctests
	@PYTHONPATH=tests $(BIN)/python -m support.doc_site build/docs
	$(BIN)/python -m pytest --quiet tests/unit/docs

generate: control-plane  ## CRDs, chart files and docs/reference from the models, the API server's own schemas and the code
	$(BIN)/python -m tranche_testcluster run $(BIN)/python -m tranche_codegen.crds
	PYTHONPATH=observability $(BIN)/python -m tranche_observability
	PYTHONPATH=tools $(BIN)/python -m tranche_codegen.reference

sbom: setup  ## what the images hold of Python, as CycloneDX: build/sbom.cdx.json
	@PYTHONPATH=tests $(BIN)/python -m support.image_tools sbom build/sbom.cdx.json

kind-demo:  ## a kind cluster with three sites, the chart on it, and a first job (needs Docker, kind, kubectl and helm)
	@sh manifests/kind/demo.sh

lock: setup  ## new versions into requirements/*.txt
	$(PYTHON) -m venv build/uv && build/uv/bin/pip install --quiet uv
	build/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-header \
		--no-annotate pyproject.toml -o requirements/runtime.txt
	build/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-header \
		--no-annotate --extra report --extra dask --group dev --group examples pyproject.toml -o requirements/dev.txt
	build/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-header \
		--no-annotate --group image -o requirements/image.txt
	build/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-header \
		--no-annotate --group docs -o requirements/docs.txt
	for name in torch tensorflow; do build/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade \
		--python-version 3.11 --no-header --no-annotate --group $$name -o requirements/examples-$$name.txt || exit; done
	echo hatchling | build/uv/bin/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 \
		--no-header --no-annotate - -o requirements/build.txt

clean:  ## remove .venv and caches of this folder (the binaries stay in ~/.cache/tranche)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
