# `make help` lists the targets. Everything runs in .venv, which the first target that needs it
# creates. To use an existing environment (a Neuron instance): make test VENV=/path/to/venv
# With TORCH=cpu the environment has PyTorch without CUDA, which saves 5 GB: make book TORCH=cpu

VENV ?= .venv
UV_VERSION := 0.13.8
WORKERS ?= logical
N ?= 10000
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 300 --nbval-kernel-startup-timeout 600 \
  --nbval-sanitize-with tools/nbval.ini
# Notebooks that `make test ALL=1` executes: those that the book has not executed as they are now.
# What it has executed, tests/test_notebook_pairs.py compares with what is stored.
NOTEBOOKS ?= $$($(PY) tools/notebooks.py --not-built)
# Those of `make test`, in one dialect.
QUICK := $(foreach name,add avgpool giou rmsnorm,notebooks/$(name)_torch.ipynb notebooks/$(name)_jax.ipynb)
FIRST ?= 0
# A test that hangs ends the run, with the stacks of all threads and its name: a worker that takes
# the place of an ended one would be given the same test. The longest takes 30 s.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true --max-worker-restart=0

PY := $(VENV)/bin/python
READY := $(VENV)/.nki-book-ready

# Notebooks print the same text every time, and run on this environment's kernel.
export PYTHONHASHSEED := 0
export TORCH
export JUPYTER_PREFER_ENV_PATH := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export IPYTHONDIR := $(CURDIR)/tools/.ipython

.DEFAULT_GOAL := help
.PHONY: help env book page test results test-neuron neuron-report fuzz mutations lint format notebooks lab bench browse doctor shots lock clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(READY) ## create or update .venv from requirements.txt

ifeq ($(VENV),.venv)
# The stamp holds the path it was made in: a moved or copied checkout installs itself again.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif
$(READY): requirements.txt pyproject.toml tools/bootstrap.sh
	@tools/bootstrap.sh $(VENV) $(UV_VERSION)
	@echo '$(CURDIR)' > $@
else
# Not ours: check it, change nothing in it.
.PHONY: $(READY)
$(READY):
	@cd tools && $(abspath $(PY)) -c 'import kernels, nkibook, nkisim' || { \
	  echo "error: $(PY) cannot import this checkout; run: $(PY) -m pip install --no-deps -e ." >&2; \
	  exit 1; }
endif

book: $(READY) ## build and check the book: _build/html/index.html (CLEAN=1: from nothing)
	@$(PY) tools/build_book.py $(if $(CLEAN),--clean)

page: $(READY) ## build one page: make page P=notebooks/add_torch
	@$(PY) tools/build_book.py --page $(or $(P),notebooks/add_torch)

test: $(READY) ## test operators, simulator and eight notebooks in 5 minutes (ALL=1: all; T=tests/kernels: these)
ifdef T
	$(PY) -m pytest $(T) $(if $(filter %.ipynb,$(T)),$(NBVAL)) $(PYTEST_ARGS)
else ifdef ALL
	notebooks="$(NOTEBOOKS)" && \
	$(PY) -m pytest -n $(WORKERS) $(HANGS) tests $(NBVAL) $$notebooks $(PYTEST_ARGS)
else
	$(PY) -m pytest -n $(WORKERS) $(HANGS) --quick tests $(NBVAL) $(QUICK) $(PYTEST_ARGS)
	@echo "Left out: the other notebooks, the exercises' solutions, the stand-in of an instance, C++, the judge,"
	@echo "the bridges to the frameworks, commands and the build of the book. All of it: make test ALL=1"
endif

results: $(READY) ## compare what the notebooks of the built book print with what is stored
	@$(PY) tools/notebooks.py --built

test-neuron: $(READY) ## on a Neuron instance: the tests for a device, and every notebook
	$(PY) tools/neuron_tests.py

fuzz: $(READY) ## random kernels against a reference interpreter (N=10000, from seed FIRST=0)
	$(PY) tests/fuzz $(N) $(FIRST)

mutations: $(READY) ## faults in lines that matter, which tests must see (M="races guards": of these modules)
	$(PY) tests/mutations $(M)

neuron-report: $(READY) ## on a Neuron instance: ask it all, write report.zip to send to us
	@$(PY) -m nkibook.instance -o report.zip

lint: $(READY) ## check style, formatting, types and layers
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

format: $(READY) ## fix style and formatting in place
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

notebooks: $(READY) ## execute notebooks/*.md and rewrite the .ipynb beside each (P=notebooks/add_torch: this)
	@$(PY) tools/notebooks.py $(P)

lab: $(READY) ## open JupyterLab: the pages of the book as notebooks
	JUPYTER_CONFIG_PATH='$(CURDIR)/tools/lab' $(PY) -m jupyter lab \
	  --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/book/intro.md

bench: $(READY) ## time the simulator against NumPy, and profiles, on this machine
	$(PY) -m nkibook.bench
	$(PY) -m nkibook.validation.bench_profile

doctor: $(READY) ## say what this machine has and what will be used
	@$(PY) -m nkibook.doctor

browse: $(READY) ## open every built page in Chromium and use it: errors, widths, search, moving pictures
	@$(PY) tools/check_browser.py

shots: $(READY) ## photograph every built page with Chromium, phone and desktop, light and dark
	@$(PY) tools/screenshots.py

lock: $(READY) ## resolve pyproject.toml anew into requirements.txt
	@$(PY) tools/lock.py

clean: ## remove what was built, keep .venv
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf .venv
