# One command a habit. Each makes the virtual environment if there is none.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FRAMEWORKS := $(VENV)/.frameworks

.PHONY: run test test-unit test-slow test-extended test-faults test-long test-all test-frameworks test-frameworks-all test-gpu test-browser
.PHONY: soak screenshots bench bench-serving docs lint format clean

run: $(READY)  ## the quickstart sweep: from a space file to an exported winner
	$(BIN)/sweeps run search_spaces/quickstart.yaml

# The times are those of a machine with two cores.
OTHER := not faults and not browser and not long and not gpu and not frameworks and not frameworks_all and not extended
QUICK := not slow and $(OTHER)
UNIT := not integration and $(OTHER)
# Two test files at a time. tests/conftest.py puts the files that take longest first, so that no core idles at the end.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY)  ## what a change should pass: the unit tests and the quick integration tests; eight minutes
	$(BIN)/python -m pytest -m "$(QUICK)" $(BY_FILE) --durations 20

test-slow: $(READY)  ## the other integration tests: whole sweeps; four minutes
	$(BIN)/python -m pytest -m "slow and $(OTHER)" $(BY_FILE) --durations 10

test-unit: $(READY)  ## tests that start no Ray and no other processes; four minutes
	$(BIN)/python -m pytest -m "$(UNIT)" -n 2

test-extended: $(READY)  ## integration tests of rare combinations; not in CI; a quarter of an hour
	$(BIN)/python -m pytest -m "extended and not long" $(BY_FILE) --durations 10

test-faults: $(READY)  ## kills, full disks, hangs and hostile folders; four minutes
	$(BIN)/python -m pytest -m "faults and not long" $(BY_FILE) --durations 10

test-long: $(READY)  ## clusters, hangs, a pool that is killed, 200 stops on a gang; not in CI; half an hour
	$(BIN)/python -m pytest -m long $(BY_FILE)

test-all: test test-slow test-extended test-faults test-frameworks test-browser  ## the tests that CI runs, and test-extended

test-frameworks: $(FRAMEWORKS)  ## one sweep for each trainer by name, and a loop for each framework; seven minutes
	$(BIN)/python -m pytest -m frameworks $(BY_FILE) --durations 10 tests/frameworks

test-frameworks-all: $(FRAMEWORKS)  ## every trainer by every task, on one and two workers, resumed and refitted; not in CI
	$(BIN)/python -m pytest -m "frameworks or frameworks_all" tests/frameworks tests/trainers

test-gpu: $(READY)  ## sweeps on the GPUs of this machine; skipped where there is none
	$(BIN)/python -m pytest -m gpu -rs --durations 10 tests/gpu

test-browser: $(READY)  ## MLflow's pages of a sweep in a headless Chromium
	$(BIN)/python -m pytest -m browser $(BY_FILE) tests/browser

soak: $(READY)  ## kills at every point where state is written, 20 at random, and damaged input, into reports/crashes.md; half an hour
	$(BIN)/python -m tests.soak

mutants: $(READY)  ## change 200 lines of twenty modules, and count the changes that tests notice, into reports/mutants.md; two hours
	$(BIN)/python -m tests.mutants -o reports/mutants.md

bench: $(READY)  ## every workload, five repeats, into reports/benchmarks.md; hours
	$(BIN)/python -m benchmarks

bench-serving: $(READY)  ## HTTP beside mlflow models serve, files beside a bare loop, into reports/serving.md; some minutes
	$(BIN)/python -m benchmarks.serving

screenshots: $(READY)  ## the pictures of the page in docs/
	SWEEPS_SCREENSHOTS=docs $(BIN)/python -m pytest -m browser tests/browser

docs: $(READY)  ## the documentation site, into site/; open site/index.html
	$(BIN)/python -m docs.generate.import_graph
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch first and alone: with it there, nothing else brings another build of it
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

$(FRAMEWORKS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[frameworks]"
	touch $(FRAMEWORKS)

clean:
	rm -rf $(VENV) build site *.egg-info
