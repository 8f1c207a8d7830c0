# Two commands do everything: `make demo` and `make test`. Each target sets up .venv itself on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.widen-ready
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false
export NO_MKDOCS_2_WARNING := 1

.PHONY: setup demo test check test-slow test-gpu bench docs wheel clean

setup: $(STAMP)
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: setup           ## run the main job; leaves a page to look at
	$(BIN)/widen demo

# Two processes with one thread each: on two cores, threads that wait for each other cost more than they bring.
# Files with long tests come first, so that no process waits for the other at the end.
test: setup           ## the default tests: CPU, offline
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
	  tests/head/test_head_triton.py tests/test_docs.py tests/docs tests/hosts tests/train tests

check: setup          ## style, strict types, import layers, docs in step
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

test-slow: setup      ## convergence, recipes at scale, the wheel, ends of the claimed ranges
	$(BIN)/python -m pytest -m slow --timeout 1800

test-gpu: setup       ## needs a CUDA device
	$(BIN)/python -m pytest -m gpu

bench: setup          ## every speed claim of the README, measured here
	left=; for f in benchmarks/bench_*.py; do $(BIN)/python $$f || left="$$left $$f"; done; test -z "$$left" || { echo "without a result:$$left"; exit 1; }

docs: setup           ## the site, under site/
	$(BIN)/mkdocs build --strict --site-dir site

wheel: setup          ## dist/widen-*.whl
	$(BIN)/python -m build --wheel --outdir dist .

clean:
	rm -rf .venv build dist site
