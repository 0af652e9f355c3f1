# `make demo` and `make test` do everything, including the set-up. `make help` lists all targets.
SHELL := /bin/sh
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
SIDE_BY_SIDE ?= 6
# If it is set, each process that runs tests compiles all of them.
export PYTHONDONTWRITEBYTECODE :=
SWEPT ?= --jobs 40 --seeds 2 --chunk-scale 0.1 --most-jobs 100
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

.PHONY: help setup control-plane binaries demo compiled native test compatibility walkthroughs test-fast test-programs lint types contracts unit integration examples bench bench-live bench-scale bench-peers sweeps systems mutations chaos fuzz repeats results generate lock clean e2e observability pictures browser screenshots images image-tools containers sbom kind-demo docs

help:  ## Print this list
	@echo 'usage: make TARGET [VARIABLE=VALUE ...]'; echo
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(STAMP)  ## Create .venv with all packages and the commands tranche, tranche-operator, kubectl-tranche

$(STAMP): requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "tranche needs Python 3.11, 3.12 or 3.13 (or: make PYTHON=/path/to/python)" >&2; exit 1; }
	@echo "installing into $(VENV): the packages of requirements/dev.txt (pinned, with hashes; 1 GB, a minute or two) and this checkout"
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt || { \
		echo "the packages could not be installed: is the package index reachable? For a mirror set PIP_INDEX_URL" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

CONTROL_PLANE := etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok

control-plane: setup  ## Build etcd, Kubernetes and kwok once (TRANCHE_ASSETS=folder: use these binaries instead)
	@$(BIN)/python -m tranche_testcluster build $(CONTROL_PLANE)

binaries: setup  ## Build the control plane and, for the tests, helm, kubeconform and kind
	@$(BIN)/python -m tranche_testcluster build

demo: control-plane  ## Run the jobs of a log on a real control plane, 3 minutes (KEEP=1: keep it running; SEED=, POLICY=, SLOWER=)
	@$(BIN)/tranche demo $(if $(KEEP),--keep) $(if $(SEED),--seed $(SEED)) $(if $(POLICY),--policy $(POLICY)) $(if $(SLOWER),--slower $(SLOWER))

observability: setup  ## Install Prometheus and promtool from the Debian package, for the tests of dashboards and alerts
	@$(BIN)/python -m tranche_testcluster.binaries.debian_package

test: setup  ## Run the checks and the tests but those of make walkthroughs and make e2e, in 15 to 30 minutes on two cores, by their speed (SIDE_BY_SIDE=: number of modules at a time)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types lint contracts compiled binaries test-programs
	$(BIN)/python -m pytest --numprocesses $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder -m "not walkthrough"

compatibility: setup compiled  ## Run the tests of make test that use a control plane on an older Kubernetes (KUBERNETES=1.34, 1.35 or 1.36; built once, in ten minutes)
	@TRANCHE_KUBERNETES=$(KUBERNETES) $(BIN)/python -m tranche_testcluster build
	TRANCHE_KUBERNETES=$(KUBERNETES) $(BIN)/python -m pytest --numprocesses $(SIDE_BY_SIDE) --dist loadfile --no-loadscope-reorder \
		-m "not walkthrough" tests/integration tests/testcluster tests/chaos

walkthroughs: binaries compiled  ## Type the commands of tutorial, installation and pilot, upgrade releases, and compare rights and requests (5 to 10 minutes)
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder -m walkthrough tests/integration

native: setup  ## Compile planner and simulation engine to native code in build/native, for long simulations (a few minutes; needs a C compiler)
	@$(BIN)/python tools/native_package.py

compiled: setup  ## Compile the code and the tests once, before several processes import them
	@$(BIN)/python -m compileall -q scheduler operator worker testcluster
	@$(BIN)/python -m pytest --quiet --collect-only >/dev/null 2>&1 || true # a module with an error fails when the tests run

test-fast: setup  ## Run the unit and property tests without the slow ones and without a control plane, in under 3 minutes
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not slow" \
		tests/unit tests/property tests/contract

test-programs: setup  ## Install Prometheus and Chromium for the tests, if this user may; else print what is missing
	@$(BIN)/python -m tranche_testcluster.binaries.debian_package || echo "make test: without Prometheus its tests are skipped" >&2
	@command -v chromium >/dev/null || $(MAKE) --silent browser >/dev/null 2>&1 || \
		echo "make test: without Chromium the tests of the web page are skipped (Debian, as root: make browser)" >&2

lint: setup  ## Check the code with ruff, and the language of docs and comments
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_language.py

types: setup  ## Check the types with mypy --strict
	$(BIN)/mypy

contracts: setup  ## Check with import-linter which package imports which
	$(BIN)/lint-imports

unit: setup  ## Run the unit and property tests, which need no control plane
	$(BIN)/python -m pytest tests/unit tests/property

integration: binaries  ## Run the tests on the real control plane
	$(BIN)/python -m pytest tests/integration tests/testcluster

e2e: control-plane  ## Run the tests on real nodes: kubelet, containerd, the chart in containers (Linux as root, Debian; else skipped)
	@$(MAKE) --silent image-tools >/dev/null 2>&1 || true
	@skipped="$$($(BIN)/python -m tranche_testcluster.node)"; if [ -n "$$skipped" ]; then echo "make e2e: skipped: $$skipped"; \
		else $(BIN)/python -m tranche_testcluster build kubelet coredns helm && PYTHONPATH=tests $(BIN)/python -m support.product_images && \
		$(BIN)/python -m pytest tests/e2e; fi

containers: control-plane image-tools  ## Start three real nodes with tranche and keep them until Ctrl-C (Debian, as root)
	@$(BIN)/python -m tranche_testcluster build kubelet coredns helm
	@PYTHONPATH=tests $(BIN)/python -m support.product_images >/dev/null
	@PYTHONPATH=tests:worker/examples $(BIN)/python tools/keep_real_nodes.py

image-tools:  ## Install buildah and debootstrap, which build images without Docker (Debian, as root)
	@command -v buildah >/dev/null && command -v debootstrap >/dev/null || { apt-get update --quiet && \
		apt-get install --yes --no-install-recommends buildah debootstrap; }

images: setup image-tools  ## Build the images from the Dockerfile without Docker, as archives (Debian, as root)
	@PYTHONPATH=tests $(BIN)/python -m support.product_images

examples: setup  ## Install PyTorch (5 GB) and TensorFlow (2 GB) once, for worker/examples
	@PYTHONPATH=tests $(BIN)/python -m support.frameworks

bench: examples  ## Measure the figures of the README and check them against their limits (an hour or more)
	@$(BIN)/python tools/run_in_turn.py \
		"benchmarks/demo_stretches.py" \
		"benchmarks/extender_filter.py" \
		"benchmarks/simulator_targets.py" \
		"benchmarks/simulator_speed.py" \
		"benchmarks/simulator_curve.py --picture" \
		"benchmarks/policy_bars.py" \
		"benchmarks/gang_bars.py" \
		"benchmarks/estimate_errors.py" \
		"benchmarks/explanations.py --processes 2" \
		"benchmarks/fair_shares.py" \
		"benchmarks/planner_speed.py --picture" \
		"benchmarks/worker_losses.py --picture" \
		"benchmarks/framework_examples.py" \
		"benchmarks/gang_attack.py" \
		"benchmarks/report_rate.py" \
		"benchmarks/event_costs.py" \
		"benchmarks/filter_latency.py" \
		"benchmarks/rejected_statuses.py" \
		"benchmarks/failover.py" \
		"benchmarks/real_nodes.py" \
		"benchmarks/image_start.py" \
		"-m pytest tests/e2e/test_frameworks.py" \
		"benchmarks/page_speed.py" \
		"benchmarks/competitive_ratio.py" \
		"benchmarks/sweeps.py $(SWEPT)"

sweeps: setup  ## Measure the JCT over each parameter of the JSAC setting and draw docs/pictures/sweep-*.png (an hour; SWEPT=: options)
	$(BIN)/python benchmarks/sweeps.py $(SWEPT) --picture

systems: setup  ## Measure each published system beside its comparators: docs/reference/systems (hours)
	@$(BIN)/python tools/run_in_turn.py \
		"-m tranche compare --preset edge-cloud --arrivals data/traces/elasticflow_cluster06.csv --jobs 40 --chunk-scale 0.1 --policies chunk,chunk-faithful,consolidate,dally-like,dorm,drf,fifo,fifo-skip,first-fit,gittins,las,least-loaded,lwf,no-wait,oasis,optimus,pd-ors-like,random,round-robin,rrh,selector,sjf,srpt-pool,srsf,srtf,themis,tiresias --loads 0.9 --seeds 2" \
		"benchmarks/network_policies.py" \
		"benchmarks/network_policies.py --logs elasticflow_cluster01 elasticflow_cluster02 helios_venus_vcvGl" \
		"benchmarks/network_policies.py --logs elasticflow_cluster06 elasticflow_cluster02 helios_venus_vcvGl --policies dally-like chunk" \
		"benchmarks/network_cost.py" \
		"benchmarks/selector_choice.py" \
		"benchmarks/lwf_study.py" \
		"benchmarks/network_policies.py --logs elasticflow_cluster06 elasticflow_cluster02 --policies lwf lwf:kappa=inf lwf:placement=random first-fit srsf" \
		"benchmarks/utility_policies.py utility --jobs 15 30 45 --seeds 2" \
		"benchmarks/utility_policies.py utility --jobs 100 --seeds 5 --jobs-per-node 7.5" \
		"benchmarks/utility_policies.py utility --jobs 200 --seeds 5 --jobs-per-node 7.5" \
		"benchmarks/utility_policies.py utility --jobs 400 --seeds 5 --jobs-per-node 7.5" \
		"benchmarks/utility_policies.py lateness --jobs 200 --jobs-per-node 7.5" \
		"benchmarks/utility_policies.py table --jobs 100 --jobs-per-node 7.5" \
		"benchmarks/utility_optimum.py" \
		"benchmarks/utility_policies.py arrival --jobs 100" \
		"benchmarks/utility_policies.py scale --jobs 30 --seeds 2" \
		"benchmarks/utility_policies.py bandwidth --jobs 30 --seeds 2" \
		"benchmarks/throughput_prediction.py --pairs" \
		"benchmarks/throughput_prediction.py --floors --pairs" \
		"benchmarks/interval_calibration.py" \
		"benchmarks/interval_calibration.py --policy chunk:declared=1" \
		"benchmarks/worker_network.py" \
		"benchmarks/worker_rounds.py" \
		"benchmarks/batch_service.py" \
		"benchmarks/related_options.py"

chaos: binaries  ## Inject faults into a real control plane, a minute per round (ROUNDS=, SEED=, AT_ONCE=, ONLY= one fault, POLICY=; a failure leaves build/chaos/SEED)
	PYTHONPATH=tests $(BIN)/python -m chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(AT_ONCE),--at-once $(AT_ONCE)) $(if $(ONLY),--only "$(ONLY)") $(if $(POLICY),--policy $(POLICY))

fuzz: binaries  ## Send random requests, objects and events, FUZZ= times as many as make test (SEED=)
	FUZZ=$(or $(FUZZ),20) SEED=$(or $(SEED),1) $(BIN)/python -m pytest --hypothesis-seed=$(or $(SEED),1) tests/contract/test_any_request.py \
		tests/property/test_any_objects.py tests/property/test_planner_fuzz.py tests/property/test_gang_fuzz.py \
		tests/integration/whole/test_fuzz.py

repeats: binaries  ## Run each module that uses a control plane 10 times beside 3 busy loops (hours; AT_ONCE=; ONLY=: part of a path; PAUSE=: stop random processes for up to so many seconds; LEFT=1: continue)
	$(BIN)/python tools/repeat_tests.py $(ONLY) $(if $(AT_ONCE),--at-once $(AT_ONCE)) $(if $(PAUSE),--pause $(PAUSE)) $(if $(LEFT),--left)

mutations: binaries  ## Remove code listed in docs/explanation/enactment.md and check that a test fails (an hour; ONLY=: group or word; LEFT=1: rows not caught)
	$(BIN)/python benchmarks/mutations.py --at-once 2 $(if $(ONLY),--only "$(ONLY)") $(if $(LEFT),--left)

bench-live: control-plane  ## Measure completion times on a real control plane, to compare with other schedulers (five minutes)
	$(BIN)/python benchmarks/live_jct.py

bench-scale: control-plane  ## Measure the start rate of 1,600 jobs at once and of a gang of 512 pods, beside Kueue (builds it once)
	$(BIN)/python benchmarks/scale.py

bench-peers: control-plane  ## Measure completion times under other schedulers and under tranche (half an hour; builds them once)
	$(BIN)/python benchmarks/peer_jct.py

browser:  ## Install Chromium for the tests of the web page (Debian, as root)
	@command -v chromium || (apt-get update --quiet && apt-get install --yes --no-install-recommends chromium)

screenshots: control-plane  ## Take the pictures of the web page in docs/pictures, from a running demo
	$(BIN)/python benchmarks/page_pictures.py

results: setup  ## Measure the tables and draw the pictures of docs/reference/results (hours)
	$(BIN)/python benchmarks/results.py

pictures: control-plane observability  ## Draw docs/pictures/dashboard-*.png from a run of 90 seconds
	$(BIN)/python benchmarks/dashboard_pictures.py

docs: setup  ## Build the documentation in build/docs and check its links, commands and examples
	@PYTHONPATH=tests $(BIN)/python -m support.doc_site build/docs
	$(BIN)/python -m pytest --quiet tests/unit/docs

generate: control-plane  ## Generate CRDs, chart files, dashboards and docs/reference from the code
	PYTHONPATH=tools $(BIN)/python -m tranche_testcluster run $(BIN)/python -m tranche_codegen.crds
	PYTHONPATH=tools:observability $(BIN)/python -m tranche_observability
	PYTHONPATH=tools $(BIN)/python -m tranche_codegen.reference

sbom: setup  ## List the Python packages of the images as CycloneDX in build/sbom.cdx.json
	@PYTHONPATH=tests $(BIN)/python -m support.image_tools sbom build/sbom.cdx.json

kind-demo:  ## Create a kind cluster with three sites, install the chart and run a job (needs Docker, kind, kubectl, helm)
	@sh manifests/kind/demo.sh

lock: setup  ## Update the pinned versions in requirements/*.txt
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

clean:  ## Remove .venv, build and caches of this folder (binaries stay in ~/.cache/tranche)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
