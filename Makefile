# make demo | test | lint | docs | bench | clean.  Needs python3 >= 3.11 and make; the network only the first time.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

# Idle OpenMP threads that spin instead of sleeping slow everything down on a busy machine.
export OMP_WAIT_POLICY := passive
# Neither pip nor pyright asks the network whether it is the newest version.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# mkdocs-material prints a long notice about MkDocs 2 otherwise; we use 1.6.
export NO_MKDOCS_2_WARNING := 1

.PHONY: notebooks reproduce-quick bench-rules help install demo test test-gpu mutants lint format docs bench bench-replay map clean

help:
	@echo "make demo    train on the embedded data and print scores (about a minute)"
	@echo "make test    lint, build the docs, run the tests"
	@echo "make test-gpu   run the tests that need a CUDA device, and record how they ended"
	@echo "make mutants    change the code that decides, place by place, and see whether a test fails (an hour)"
	@echo "make lint    ruff, pyright, import-linter"
	@echo "make format  let ruff rewrite the code"
	@echo "make docs    build the documentation into site/"
	@echo "make notebooks  run the tutorials' notebooks, and write their outputs into them (some minutes)"
	@echo "make reproduce-quick   the paper's experiments on little data (FORETELL_DATA: the folder of the data sets)"
	@echo "make bench   run the speed benchmark (bench-replay: that of the database)"
	@echo "make map     count the files that a command enters, and the hops between them"
	@echo "make clean   remove what the other targets made, .venv included"

install: $(READY)

# Runs only when the stamp is missing or older than what it was made from: a repeated make never calls pip.
# The build tools are installed from the constraints too, so that the build downloads nothing by itself.
$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "foretell needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one with: make PYTHON=python3.12 <target>" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --constraint constraints.txt torch hatchling editables
	$(BIN)/python -m pip install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/foretell demo

test: lint docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

test-gpu: $(READY)
	$(BIN)/python benchmarks/gpu_tests.py

mutants: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation --out benchmarks/results/mutants.json

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet --site-dir site

# The build renders the outputs that are in the notebooks; this makes them anew.
notebooks: $(READY)
	$(BIN)/python docs/build_hooks/notebooks.py docs/tutorial/*.ipynb

# Every experiment of the paper whose data are there, on little of it: shows that all of them run.
reproduce-quick: $(READY)
	$(BIN)/foretell reproduce all --quick --jobs $(WORKERS) $(if $(FORETELL_DATA),--data $(FORETELL_DATA))

bench: $(READY)
	$(BIN)/python benchmarks/anhp.py

bench-rules: $(READY)
	$(BIN)/python benchmarks/andtt.py

bench-replay: $(READY)
	$(BIN)/python benchmarks/replay.py $(if $(FORETELL_DATA),--data $(FORETELL_DATA))

map: $(READY)
	$(BIN)/python benchmarks/map.py

clean:
	rm -rf $(VENV) site build dist demo-run reproduced/quick .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
