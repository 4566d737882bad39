# `make help` lists the targets. Everything runs in .venv, which the first target that needs it
# creates: half a GB to render the book, and what executes pages when a target does.
# To use an existing environment (a Neuron instance): make test VENV=/path/to/venv
# With TORCH=cpu the environment has PyTorch without CUDA, which saves 5 GB: make test TORCH=cpu

VENV ?= .venv
UV_VERSION := 0.13.8
WORKERS ?= logical
N ?= 10000
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 300 --nbval-kernel-startup-timeout 600 \
  --nbval-sanitize-with tools/nbval.ini
# Notebooks that `make test ALL=1` executes. The gate leaves them to `make book CLEAN=1`, which
# executes the same cells and compares their pictures, too.
NOTEBOOKS ?= notebooks
# Those of `make test`, in one dialect.
QUICK := $(foreach name,add avgpool giou rmsnorm,notebooks/nki/$(name)_torch.ipynb notebooks/nki/$(name)_jax.ipynb)
FIRST ?= 0
# A test that hangs ends the run, with the stacks of all threads and its name: a worker that takes
# the place of an ended one would be given the same test. The longest takes 30 s.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true --max-worker-restart=0

PY := $(VENV)/bin/python
READER := $(VENV)/.nki-book-reader
READY := $(VENV)/.nki-book-ready

# Notebooks print the same text every time, and run on this environment's kernel.
export PYTHONHASHSEED := 0
export TORCH
export JUPYTER_PREFER_ENV_PATH := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export IPYTHONDIR := $(CURDIR)/tools/.ipython

.DEFAULT_GOAL := help
.PHONY: help env book page test test-neuron neuron-report fuzz mutations lint format notebooks lab bench browse doctor shots lock clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(READY) ## create or update .venv from requirements.txt: frameworks, JupyterLab, tests

ifeq ($(VENV),.venv)
# The stamp holds the path it was made in: a moved or copied checkout installs itself again.
ifneq ($(shell cat $(READER) 2>/dev/null),$(CURDIR))
.PHONY: $(READER)
endif
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif
$(READER): requirements-book.txt pyproject.toml tools/bootstrap.sh
	@tools/bootstrap.sh $(VENV) $(UV_VERSION) book
	@echo '$(CURDIR)' > $@
# Where it replaces the environment, by one with an older Python, the other stamp has gone with it.
$(READY): requirements.txt pyproject.toml tools/bootstrap.sh | $(READER)
	@tools/bootstrap.sh $(VENV) $(UV_VERSION) all
	@echo '$(CURDIR)' > $(READER)
	@echo '$(CURDIR)' > $@
else
# Not ours: check it, change nothing in it.
.PHONY: $(READER) $(READY)
$(READER) $(READY):
	@cd tools && $(abspath $(PY)) -c 'import kernels, nkibook, nkisim' || { \
	  echo "error: $(PY) cannot import this checkout; run: $(PY) -m pip install --no-deps -e ." >&2; \
	  exit 1; }
endif

# Pages are rendered from stored results; with CLEAN=1 all are executed, which needs the frameworks,
# as a page does whose code has changed.
book: $(if $(CLEAN),$(READY),$(READER)) ## build and check the book: _build/html/index.html (CLEAN=1: execute every page)
	@$(call frameworks_for,)
	@$(PY) tools/build_book.py $(if $(CLEAN),--clean)

page: $(if $(CLEAN),$(READY),$(READER)) ## build one page: make page P=notebooks/add_torch (CLEAN=1: execute it)
	@$(call frameworks_for,--page $(or $(P),notebooks/add_torch))
	@$(PY) tools/build_book.py --page $(or $(P),notebooks/add_torch) $(if $(CLEAN),--clean)

define frameworks_for
changed=$$($(PY) tools/build_book.py --changed $(1)) || exit; [ -z "$$changed" ] || { \
  [ -e $(READY) ] || echo "==> changed since executed, so PyTorch and JAX are needed: $$changed"; \
  $(MAKE) --no-print-directory env; }
endef

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

notebooks: $(READY) ## execute pages that changed, store results and notebooks (P=notebooks/add_torch: this; CLEAN=1: all)
	@$(PY) tools/notebooks.py $(P) $(if $(CLEAN),--clean)

lab: $(READY) ## open JupyterLab with the notebooks of your dialect (DIALECT=nki or DIALECT=neuronxcc)
	@$(PY) tools/lab.py $(DIALECT)

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
