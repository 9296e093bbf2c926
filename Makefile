# Everything here works on a fresh machine that has Python 3.11 to 3.14; the virtual environment sets itself up.
PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
SERVE ?= 1
BIN = $(VENV)/bin

.PHONY: demo test lint bench lock clean

demo: $(VENV)/.base
	DEBUG=1 $(BIN)/python manage.py demo --serve $(SERVE)

test: $(VENV)/.dev
	$(BIN)/python -m tests.matrix $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	DEBUG=1 $(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python -m tests.production_check

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks $(ARGS)

# Rewrites the locked requirements; the only target that needs uv, which it installs itself.
lock: $(VENV)/.dev
	$(BIN)/pip install --quiet uv
	for name in base dev bench; do $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" requirements/$$name.in -o requirements/$$name.txt; done

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/pyvenv.cfg requirements/base.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/base.txt
	touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	touch $@

clean:
	rm -rf $(VENV) var .coverage* .mypy_cache .ruff_cache .pytest_cache
