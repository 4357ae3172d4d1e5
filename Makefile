# Every command of the project. `make` alone lists them; CONTRIBUTING.md says more.

VENV := .venv
PYTHON_BIN := $(VENV)/bin/python
# The locks are complete, and what is never imported need not be compiled.
PIP_INSTALL := $(PYTHON_BIN) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --no-compile
UV_COMPILE := $(PYTHON_BIN) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links pyproject.toml

# More words for the program that a command starts: make run ARGS="--port 9000"
ARGS ?=
# How many test processes run side by side; 0 runs them in this one.
CARILLON_TEST_WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help run demo test check proof-long bench screens lock

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf 'make %-12s %s\n' "$$name" "$$text"; done

# The program brings its database up to date before it serves.
run: $(VENV)/runtime.stamp ## install, migrate, start web and worker at http://127.0.0.1:8000
	@$(PYTHON_BIN) app.py $(ARGS)

# The demo has a database of its own, so that it never touches real schedules.
demo: export CARILLON_DATABASE_URL := $(or $(CARILLON_DEMO_DATABASE_URL),sqlite:///instance/demo.db)
demo: $(VENV)/runtime.stamp ## as run, with a sample network and a sample node at work
	@$(PYTHON_BIN) app.py --demo $(ARGS)

# The house rules are read by `make check`, once.
test: $(VENV)/dev.stamp ## every test but the house rules, on SQLite and PostgreSQL, in a real browser; installs what it needs
	@scripts/test-needs.sh $(PYTHON_BIN)
	@$(PYTHON_BIN) -m pytest -n $(CARILLON_TEST_WORKERS) --dist worksteal --ignore=tests/architecture $(ARGS)

check: $(VENV)/dev.stamp ## format, lint, strict types, house rules
	@$(PYTHON_BIN) -m ruff format --check .
	@$(PYTHON_BIN) -m ruff check .
	@$(PYTHON_BIN) -m mypy
	@$(PYTHON_BIN) -m pytest -q tests/architecture

# One after the other, and with what they print: figures, seeds, tables.
proof-long: export CARILLON_PROOF_LONG := 1
proof-long: $(VENV)/dev.stamp ## the proof at full length: hours of storms, every mutant, every zone; ARGS="-k storm" picks
	@scripts/test-needs.sh $(PYTHON_BIN)
	@$(PYTHON_BIN) -m pytest -n 0 -s --durations=0 tests/proof tests/e2e/test_every_view.py tests/e2e/test_live.py $(ARGS)

bench: $(VENV)/dev.stamp ## the benchmarks; JSON to bench/results/, curves to docs/curves/
	@scripts/test-needs.sh $(PYTHON_BIN)
	@mkdir -p bench/results
	@for benchmark in $(filter-out bench/curves.py,$(wildcard bench/[a-z]*.py)); do \
		$(PYTHON_BIN) "$$benchmark" $(ARGS) || exit 1; done
	@$(PYTHON_BIN) bench/curves.py

screens: $(VENV)/dev.stamp ## the pictures in docs/screens/, of every main page, light, dark and on a phone
	@scripts/test-needs.sh $(PYTHON_BIN)
	@mkdir -p docs/screens
	@CARILLON_SCREENS="$(CURDIR)/docs/screens" $(PYTHON_BIN) -m pytest -q -n0 tests/e2e/screens.py $(ARGS)

lock: $(VENV)/dev.stamp ## write both lock files again from pyproject.toml (LOCK_ARGS=--upgrade for newer versions)
	@$(PYTHON_BIN) -m uv --version >/dev/null 2>&1 || $(PYTHON_BIN) -m pip install --quiet --disable-pip-version-check uv
	@$(UV_COMPILE) $(LOCK_ARGS) --output-file requirements.lock
	@$(UV_COMPILE) $(LOCK_ARGS) --group dev --group bench --output-file requirements-dev.lock

# Where the Python it was made from is gone, this is a broken link, which counts as missing.
$(PYTHON_BIN):
	@python="$$(scripts/find-python.sh)" && "$$python" -m venv --clear $(VENV)

$(VENV)/runtime.stamp: requirements.lock $(PYTHON_BIN)
	@echo "Installing what Carillon needs into $(VENV)."
	@$(PIP_INSTALL) -r requirements.lock
	@touch $@

# The development lock holds the other one whole.
$(VENV)/dev.stamp: requirements-dev.lock requirements.lock $(PYTHON_BIN)
	@echo "Installing what Carillon and its development need into $(VENV)."
	@$(PIP_INSTALL) -r requirements-dev.lock
	@touch $(VENV)/runtime.stamp $@
