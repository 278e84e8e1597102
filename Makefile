# Everything a contributor runs. Needs python3.11 or newer, make and git; .venv is made on first use (tools/venv.sh).
#   PYTHON=/path/to/python   which interpreter          ARGS="-k claim -x"   passed on to pytest, the demo or the bench

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test chaos soak check format bench clean

BIN := .venv/bin
ARGS ?=
# Tests wait more than they compute: so many processes run them side by side, a file at a time. 0: in this one, for a debugger.
SIDE ?= 4
TIMES ?= 10

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## watch jobs succeed, wait, fail, die with their worker and recover; then try it in the dashboard
	@tools/venv.sh base
	@$(BIN)/drumbeat demo $(ARGS)

# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes.
test: ## run every test, the fast ones first
	@tools/venv.sh test
	@tools/browser.sh
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(SIDE) --dist loadfile --no-loadscope-reorder $(ARGS)

chaos: ## the tests that kill, stop and restart processes, and the contract of stores, at their full length
	@tools/venv.sh test
	@DRUMBEAT_FULL=1 $(BIN)/python -m pytest tests/contract tests/system $(ARGS)

soak: ## make chaos again and again, TIMES=10 times or until a test fails
	@for time in $$(seq $(TIMES)); do echo "soak: $$time of $(TIMES)"; $(MAKE) --no-print-directory chaos ARGS="-x -q $(ARGS)" || exit 1; done

check: ## ruff, mypy --strict, import contracts
	@tools/venv.sh test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: ## let ruff format and sort imports
	@tools/venv.sh test
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

bench: ## Drumbeat and its peers, side by side in one run
	@tools/venv.sh bench
	@$(BIN)/python -m bench $(ARGS)

clean: ## remove .venv, caches and build output
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
