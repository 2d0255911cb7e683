# `make demo` and `make test` need nothing but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help demo test check bench pins clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# One stamp per set of extras, so that `make demo` never waits for the test tools.
$(VENV)/.installed-%: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing noisycgd ($*) into $(VENV)"
	@$(INSTALL) '.[$(subst -,$(comma),$*)]'
	@touch $@
comma := ,

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing noisycgd into $(VENV)"
	@$(INSTALL) .
	@touch $@

demo: $(VENV)/.installed  ## train a private classifier on handwritten digits and show what is guaranteed
	@$(BIN)/noisycgd fit digits --epsilon 4 --delta 1e-4 --center-rows

test: $(VENV)/.installed-test  ## run the test suite
	@$(BIN)/python -m pytest

check: $(VENV)/.installed-test-dev  ## lint, format, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.installed-bench  ## measure a training step against the machine's limit and the peers
	@$(BIN)/python -m benchmarks.step --json

pins: $(VENV)/.installed  ## rewrite constraints.txt (no index addresses, no local builds)
	@$(BIN)/python -m pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --upgrade --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--no-header --no-annotate --extra exact --extra bench --extra test --extra dev --extra docs -o constraints.txt pyproject.toml
	@sed -i -e 's/+cpu$$//' -e '1i # Exact versions that every make target installs. Rewritten by `make pins`; Python 3.11 and newer.' constraints.txt

clean:  ## remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
