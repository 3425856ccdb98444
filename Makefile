# One command a habit. Each makes the virtual environment if there is none.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FRAMEWORKS := $(VENV)/.frameworks

.PHONY: run test test-unit test-faults test-long test-frameworks test-browser soak screenshots bench bench-serving docs lint format clean

run: $(READY)  ## the quickstart sweep: from a space file to an exported winner
	$(BIN)/sweeps run search_spaces/quickstart.yaml

UNIT := not integration and not faults and not browser and not long and not frameworks
FIRST := tests/controller/test_run.py tests/test_quickstart.py tests/execution/test_ray_train_adapter.py  # the longest

test: $(READY)  ## half an hour; what starts processes waits much, so two files at a time
	$(BIN)/python -m pytest -m "$(UNIT)" -n 2
	$(BIN)/python -m pytest -m "integration and not long" -n 2 --durations 20 --dist loadfile --no-loadscope-reorder $(FIRST) tests

test-faults: $(READY)  ## kills, full disks, hangs and hostile folders; some ten minutes
	$(BIN)/python -m pytest -m "faults and not long" -n 2 --durations 10 --dist loadfile

test-long: $(READY)  ## clusters, hangs, a pool that is killed, 200 stops on a gang
	$(BIN)/python -m pytest -m long -n 2 --dist loadfile

test-frameworks: $(FRAMEWORKS)  ## LightGBM, Keras, Lightning and Transformers: a documented loop of each; some minutes
	$(BIN)/python -m pytest -m frameworks tests/frameworks

test-browser: $(READY)  ## MLflow's pages of a sweep in a headless Chromium
	$(BIN)/python -m pytest -m browser tests/browser

soak: $(READY)  ## kills at every point where state is written, 20 at random, and damaged input, into reports/crashes.md; half an hour
	$(BIN)/python -m tests.soak

bench: $(READY)  ## every workload, five repeats, into reports/benchmarks.md; hours
	$(BIN)/python -m benchmarks

bench-serving: $(READY)  ## HTTP beside mlflow models serve, files beside a bare loop, into reports/serving.md; some minutes
	$(BIN)/python -m benchmarks.serving

screenshots: $(READY)  ## the pictures of MLflow in docs/
	SWEEPS_SCREENSHOTS=docs $(BIN)/python -m pytest -m browser tests/browser

test-unit: $(READY)  ## what touches no Ray: under a minute
	$(BIN)/python -m pytest -m "$(UNIT)" -n 2

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
