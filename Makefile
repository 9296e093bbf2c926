# Everything here works on a fresh machine that has Python 3.11 to 3.14; the virtual environment sets itself up.
PYTHON ?= python3
# One environment per interpreter: .venv for the usual one, .venv-3.13 for PYTHON=python3.13.
ifndef VENV
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null))
endif
SERVE ?= 1
PORT ?= 8000
BIN = $(VENV)/bin
# What SQL Server needs is installed where its tests are wanted.
MSSQL = $(if $(KWIT_TEST_MSSQL_URL),$(VENV)/.mssql)
PIP = $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check --no-input

.PHONY: demo test lint bench messages pictures lock clean

demo: $(VENV)/.base
	@DEBUG=1 $(BIN)/python manage.py demo --serve $(SERVE) --port $(PORT)

test: $(VENV)/.dev $(MSSQL)
	@$(BIN)/python -m tests.matrix $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	DEBUG=1 $(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python -m tests.production_check

bench: $(VENV)/.dev $(VENV)-bench/.bench $(MSSQL)
	$(BIN)/python -m benchmarks $(ARGS)

# Takes the pictures of the README anew; needs a Chromium (apt-get install chromium).
pictures: $(VENV)/.dev
	$(BIN)/python -m tests.browser.pictures

# Brings each locale/ up to date with templates and code: new texts into each django.po, and django.mo from it.
messages: $(VENV)/.dev
	$(BIN)/python -m tests.catalogs

# Rewrites the locked requirements; the only target that needs uv, which it installs itself.
lock: $(VENV)/.dev
	$(PIP) install uv
	for name in base accounts metrics production audit dev bench mssql; do $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" requirements/$$name.in -o requirements/$$name.txt; done

# A half-made environment (Debian without python3-venv) must not be taken for a whole one the next time.
$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' 2>/dev/null || { \
		echo "Kwit needs Python 3.11 to 3.14, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 || true)" >&2; \
		echo "Name another interpreter, for example: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The virtual environment could not be made; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.base: $(VENV)/pyvenv.cfg requirements/base.txt
	@echo "Installing what Kwit needs into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/base.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	@echo "Installing what the tests need into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

# The queues that Kwit is measured against live in an environment of their own.
$(VENV)-bench/.bench: requirements/bench.txt
	@$(PYTHON) -m venv $(VENV)-bench
	@$(VENV)-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@
$(VENV)/.mssql: $(VENV)/.dev requirements/mssql.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/mssql.txt
	touch $@

clean:
	rm -rf $(VENV) var .coverage* .mypy_cache .ruff_cache .pytest_cache
