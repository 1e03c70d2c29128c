PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)

.PHONY: install quickstart quickstart-full test test-all test-matrix kernels lint types tables docs tutorials tutorials-check \
	benchmarks-smoke wheel ci clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	# torch first, by its pinned version: the newest one brings gigabytes of CUDA
	$(RUN) -m pip install --quiet --constraint constraints.txt torch
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

install: $(VENV)/installed

quickstart: install
	$(RUN) -m benchmarks.quickstart.run $(ARGS)

quickstart-full: install
	$(RUN) -m benchmarks.quickstart.run --full $(ARGS)

test: install
	$(RUN) -m pytest $(ARGS)

test-all: install
	$(RUN) -m pytest -m 'not kernels' $(ARGS)

# without a GPU: Triton's interpreter on CPU, then what the compiled kernels would need; processes of their own, because
# the interpreter is chosen at import
kernels: install
	TRITON_INTERPRET=1 OMP_NUM_THREADS=1 $(RUN) -m pytest -m kernels tests/ops $(ARGS)
	TRITON_DEFAULT_FP_FUSION=1 $(RUN) -m tools.kernel_resources

lint: install
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: install
	$(RUN) -m mypy

tables: install
	$(RUN) -m benchmarks.tables $(ARGS)

# warnings are errors; tutorials are shown as committed
docs: install
	$(RUN) -m sphinx -q -W --keep-going -b html docs build/docs $(ARGS)

# runs the tutorials and keeps their outputs
tutorials: install
	$(RUN) -m tools.run_tutorials $(ARGS)

# runs the tutorials and keeps nothing
tutorials-check: install
	$(RUN) -m pytest -m tutorials tests/test_tutorials.py $(ARGS)

# do all benchmarks start and end? A minute, no numbers kept
benchmarks-smoke: install
	$(RUN) -m benchmarks.transforms.run --quick
	OUT=build/gpu PYTHON=$(RUN) benchmarks/gpu/run.sh --dry
	$(RUN) -m benchmarks.attention.run --quick
	$(RUN) -m benchmarks.bias.run --quick
	$(RUN) -m benchmarks.graph_machine.run --tokens 512 --repeats 1 --dry-run
	$(RUN) -m benchmarks.node_classification.run --smoke --root build/ogb --folder build/node_classification
	$(RUN) -m benchmarks.text_graphs.run --smoke --folder build/text_graphs
	$(RUN) -m benchmarks.graph_writing.run --smoke --folder build/graph_writing
	$(RUN) -m benchmarks.tables --check

# oldest and newest PyG, transformers and peft, with and without extras: four environments, tens of minutes
test-matrix: install
	$(RUN) -m tools.test_matrix $(ARGS)

# does an installed wheel have all it needs?
wheel: install
	$(RUN) -m tools.check_wheel

ci:
	bash .ci/run

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build
