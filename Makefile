# `make help` lists the commands. Any Python from 3.11 on will do: make test PYTHON=python3.12

PYTHON ?= python3
# notebooks, tests and trainings that run at once: as many as there are cores
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

# Always called as `python -m ...`, so that nothing outside .venv is found first.
VENV := .venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The arrays are small: a second thread costs more than it brings.
export OMP_NUM_THREADS := 1

# Notebooks run with the kernel of .venv, whatever kernels and settings the user has elsewhere.
export JUPYTER_PREFER_ENV_PATH := 1
export JUPYTER_NO_CONFIG := 1
export IPYTHONDIR := $(CURDIR)/.venv/ipython
unexport JUPYTER_PATH PYTHONPATH PYTHONHOME
# Dozens of processes load the package: each would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test book train data measure lint format clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# .venv/.stamp is written last. Its first line says for which Python and folder .venv was made, its second
# line what is in it. Without a stamp, or with another first line, .venv is made anew; with another second
# line it is updated.
setup: ## create .venv, install the locked versions, compile the kernels; done once
	@set -e; \
	version=$$("$(PYTHON)" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])') || { \
		echo 'Python 3.11 or newer is needed, and "$(PYTHON)" does not run; try: make PYTHON=/path/to/python' >&2; \
		exit 1; }; \
	case $$version in 2.*|3.[0-9].*|3.10.*) \
		echo "Python 3.11 or newer is needed, and \"$(PYTHON)\" is $$version; try: make PYTHON=python3.11" >&2; \
		exit 1;; \
	esac; \
	made_for="$${version%.*} $$(pwd)"; \
	content=$$(cat requirements.lock pyproject.toml helpers/engine/kernels.py | cksum); \
	was_for=; had=; \
	if [ -x $(VENV) ] && [ -f .venv/.stamp ]; then { IFS= read -r was_for; read -r had; } < .venv/.stamp || true; fi; \
	if [ "$$was_for" = "$$made_for" ] && [ "$$had" = "$$content" ]; then exit 0; fi; \
	rm -f .venv/.stamp; \
	echo "Setting up .venv with Python $$version: some minutes the first time"; \
	if [ "$$was_for" != "$$made_for" ]; then "$(PYTHON)" -m venv --clear .venv; fi; \
	$(VENV) -m pip install --quiet -r requirements.lock; \
	$(VENV) -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	$(VENV) -m helpers.experiments.compilation; \
	printf '%s\n%s\n' "$$made_for" "$$content" > .venv/.stamp

reproduce: setup ## run every notebook from top to bottom, in place, and renew the README's tables
	@$(VENV) -m helpers.experiments.notebooks run --jobs $(JOBS)
	@$(VENV) -m helpers readme

test: setup ## run the unit tests, then every notebook against its stored output
	$(VENV) -m pytest -p no:nbval -n $(JOBS) --dist loadgroup tests
	@$(VENV) -m helpers.experiments.notebooks test --jobs $(JOBS)

book: setup ## build the book from README, notebooks and docstrings: book/_build/html/index.html
	@rm -rf book/_build
	$(VENV) -m sphinx -q -W --keep-going -c book -d book/_build/doctrees . book/_build/html

train: setup ## train every run again
	$(VENV) -m helpers train --retrain --jobs $(JOBS)

data: setup ## compare the shipped statistics of real data with the raw files in L2G_RAW or data/raw
	$(VENV) -m helpers data

measure: setup ## measure the times and the memory that a table shows; nothing else should be running
	$(VENV) -m helpers measure

lint: setup ## check code with ruff, and the form of the notebooks
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -m helpers.experiments.notebooks check

format: setup ## let ruff repair and format code and notebooks
	$(VENV) -m ruff check --fix-only .
	$(VENV) -m ruff format .

clean: ## remove .venv, caches and build output; results, figures and checkpoints stay
	rm -rf .venv book/_build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
