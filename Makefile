# The one place for commands. `make help` lists them. Sizes are variables: make sim SEEDS=1000, make demo KILLS=20.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
JOBS ?= $(shell nproc)
SEEDS ?= 1000
FIRST_SEED ?= 1
KILLS ?= 1
ROWS ?= 336776
MINUTES ?= 2
SEED ?=
KINDS ?=
ROUNDS ?= 1000
FAILOVERS ?= 50
CHANGES ?= 100
STRESS_SECONDS ?= 6
GROUPS ?= 1,4,16
TESTS ?= tests/python tests/e2e tests/spark
# Test files run in so many processes at once; a node waits more than it works.
WORKERS ?= 2
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadfile
# One Spark session serves all of its tests, so they run in one process.
SPARK_TESTS = $(filter tests/spark%,$(TESTS))
OTHER_TESTS = $(filter-out tests/spark%,$(TESTS))
RUN_TESTS = $(if $(OTHER_TESTS),$(PYTEST) $(OTHER_TESTS)) \
	$(if $(and $(OTHER_TESTS),$(SPARK_TESTS)),&&) $(if $(SPARK_TESTS),$(PY) -m pytest $(SPARK_TESTS))

BUILD := build/cmake
CORE := build/core
TSAN := build/tsan
RELEASE := build/release
VENV := build/venv
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)/python
CHAOS = PYTHONPATH=$(CURDIR)/python:$(CURDIR)/tests/e2e $(PY) -m chaos $(if $(SEED),--seed $(SEED))
# The toolchain reads the pinned DuckDB source from a cache outside the tree; see cpp/cmake/fetch_duckdb.py.
DUCKDB = $(shell $(PYTHON) cpp/cmake/fetch_duckdb.py)

.PHONY: help chaos chaos-commits chaos-loss chaos-members chaos-failovers crash configure build oracle spark-matrix stress test test-core test-tsan test-release lint format demo sim tla wheel clean deps

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

deps: build/.deps $(VENV)/.complete ## Install what the machine lacks: system packages, a Python environment

build/.deps: cpp/cmake/system_packages.sh
	@cpp/cmake/system_packages.sh
	@mkdir -p build && touch $@

$(VENV)/.complete: pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(PY) -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

configure: deps
	@cmake -S . -B $(BUILD) -G Ninja -DQUACK_DUCKDB_SOURCE=$(DUCKDB) $(CMAKE_ARGS) >build/configure.log || (cat build/configure.log; false)

build: configure ## Build the loadable extension (host-linked)
	@cmake --build $(BUILD) -j $(JOBS) --target quack_trampoline

test-core: build/.deps ## Layers below DuckDB and the simulator, with ASan and UBSan; no DuckDB needed
	@cmake -S . -B $(CORE) -G Ninja -DQUACK_BUILD_EXTENSION=OFF -DQUACK_SANITIZE=address,undefined >/dev/null
	@cmake --build $(CORE) -j $(JOBS)
	@ctest --test-dir $(CORE) --output-on-failure -j $(JOBS) --repeat until-pass:3

test-tsan: build/.deps ## The same tests with ThreadSanitizer
	@cmake -S . -B $(TSAN) -G Ninja -DQUACK_BUILD_EXTENSION=OFF -DQUACK_SANITIZE=thread >/dev/null
	@cmake --build $(TSAN) -j $(JOBS)
	@ctest --test-dir $(TSAN) --output-on-failure -j $(JOBS)

test: build test-core ## Every test: C++ layers, simulator, extension, real clusters
	@cmake --build $(BUILD) -j $(JOBS) --target quack_catalog_test
	@$(RUN_TESTS)

stress: SEEDS = 40
stress: build ## Random concurrent writers and DDL on three replicas of the catalog: SEEDS=40 FIRST_SEED=1 STRESS_SECONDS=6
	@cmake --build $(BUILD) -j $(JOBS) --target quack_catalog_test >/dev/null
	@$(PY) tests/python/catalog/stress.py --seeds $(SEEDS) --first-seed $(FIRST_SEED) --seconds $(STRESS_SECONDS)

oracle: STATEMENTS = 15000
oracle: build ## Random statements on a plain DuckDB and on replicas, answers and data compared: STATEMENTS=15000 GROUPS=1,4,16 SEED=…
	@cmake --build $(BUILD) -j $(JOBS) --target quack_catalog_test >/dev/null
	@$(PY) tests/python/catalog/oracle.py --statements $(STATEMENTS) --groups $(GROUPS) $(if $(SEED),--seed $(SEED))

lint: configure ## clang-format, clang-tidy, ruff, mypy and the project's own rules
	@$(PY) tests/lint/tidy.py
	@git ls-files 'cpp/*.cpp' 'cpp/*.hpp' 'tests/*.cpp' 'tests/*.hpp' | xargs -r $(VENV)/bin/clang-format --dry-run --Werror
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(PY) tests/lint/clang_tidy.py --build $(BUILD) --jobs $(JOBS)

format: deps ## Rewrite the sources in the project's format
	@git ls-files 'cpp/*.cpp' 'cpp/*.hpp' 'tests/*.cpp' 'tests/*.hpp' | xargs -r $(VENV)/bin/clang-format -i
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

demo: build ## Three voters, real data, a killed leader: KILLS=1 ROWS=336776
	@$(PY) tests/e2e/demo.py --kills $(KILLS) --rows $(ROWS)

sim: build/.deps ## Deterministic simulation of the consensus core, its log, its snapshots, and of groups: SEEDS=1000 FIRST_SEED=1
	@cmake -S . -B build/sim -G Ninja -DQUACK_BUILD_EXTENSION=OFF >/dev/null
	@cmake --build build/sim -j $(JOBS) --target quack_sim quack_group_sim >/dev/null
	@build/sim/tests/sim/quack_group_sim --seeds $(SEEDS) --first-seed $(FIRST_SEED) --canaries
	@build/sim/tests/sim/quack_sim --seeds $(SEEDS) --first-seed $(FIRST_SEED) --canaries

tla: SIZE = small
tla: deps ## The TLA+ models of cpp/GROUPS.md and their mutants, checked by TLC: SIZE=small|large WORKERS=2
	@$(PY) tests/tla/check.py --size $(SIZE) --workers $(WORKERS)

chaos: build ## Real nodes under drawn faults, judged by checkers: MINUTES=2 SEED=… KINDS=kill,pause,…
	@$(CHAOS) soak --minutes $(MINUTES) $(if $(KINDS),--kinds $(KINDS))

chaos-commits: build ## Kill or pause the leader inside COMMIT: ROUNDS=1000 SEED=…
	@$(CHAOS) commits --rounds $(ROUNDS)

chaos-loss: ROWS = 100000
chaos-loss: build ## Forwarded inserts while a fifth of all packets is lost: ROWS=100000 SEED=…
	@$(CHAOS) loss --rows $(ROWS)

chaos-members: build ## The voter set changes under load, 3 to 5 and back: CHANGES=100 SEED=…
	@$(CHAOS) members --rounds $(CHANGES)

chaos-failovers: build ## Time from SIGKILL of the leader to the next accepted write: FAILOVERS=50 SEED=…
	@$(CHAOS) failovers --failovers $(FAILOVERS)

spark-matrix: ROUNDS = 5
spark-matrix: build ## Spark jobs against task retries, killed workers, drivers and leaders: ROUNDS=5 SEED=1
	@QUACK_SPARK_ROUNDS=$(ROUNDS) QUACK_SPARK_SEED=$(or $(SEED),1) $(PY) -m pytest tests/spark/test_faults.py tests/spark/test_stream.py tests/spark/test_changes.py tests/spark/test_pipeline_kills.py

crash: LOOPS = 200
crash: build ## End nodes at drawn changes of their files, lose what was not synced, kill whole clusters: LOOPS=200 SEED=…
	@PYTHONPATH=$(CURDIR)/python:$(CURDIR)/tests/e2e $(PY) -m crash --loops $(LOOPS) $(if $(SEED),--seed $(SEED))

wheel: deps ## Self-contained extension (DuckDB linked in, built once into the cache) and a wheel in wheels/
	@$(PY) -m pip install --quiet --disable-pip-version-check --group wheel
	@$(PY) cpp/cmake/build_wheel.py --jobs $(JOBS)

test-release: deps ## The tests of `make test` that load the extension, against a self-contained one: TESTS=…
	@$(PY) cpp/cmake/build_wheel.py --jobs $(JOBS) --only-duckdb
	@cmake -S . -B $(RELEASE) -G Ninja -DQUACK_DUCKDB_SOURCE=$(DUCKDB) -DQUACK_SELF_CONTAINED=ON \
		-DQUACK_DUCKDB_STATIC=$$($(PY) cpp/cmake/build_wheel.py --print-archive) -DQUACK_NATIVE_DIR=$(CURDIR)/$(RELEASE)/native >/dev/null
	@cmake --build $(RELEASE) -j $(JOBS) --target quack_impl quack_catalog_test
	@export QUACK_EXTENSION=$(CURDIR)/$(RELEASE)/native/quack.duckdb_extension; \
		export QUACK_CATALOG_TEST_EXTENSION=$(CURDIR)/$(RELEASE)/catalog_test/quack.duckdb_extension; \
		$(RUN_TESTS)

clean: ## Remove everything that was built in the tree
	@rm -rf build python/quack/_native
