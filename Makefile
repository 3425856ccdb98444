# One command a habit. Each makes the virtual environment if there is none.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test test-unit lint format clean

run: $(READY)  ## the quickstart sweep: from a space file to an exported winner
	$(BIN)/sweeps run search_spaces/quickstart.yaml

test: $(READY)  ## everything; what starts processes waits much, so two files at a time
	$(BIN)/python -m pytest -m "not integration and not faults"
	$(BIN)/python -m pytest -m "integration or faults" -n 2 --dist loadfile --no-loadscope-reorder tests/test_run.py tests

test-unit: $(READY)  ## what touches no Ray: under a minute
	$(BIN)/python -m pytest -m "not integration and not faults"

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

clean:
	rm -rf $(VENV) build *.egg-info
