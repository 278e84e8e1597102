# Everything a contributor runs. Needs python3.11 or newer, make and git; .venv is made on first use (tools/venv.sh).
#   PYTHON=/path/to/python   which interpreter          ARGS="-k claim -x"   passed on to pytest, the demo or the bench

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test sim mutate chaos system soak test-lowest check format bench clean

BIN := .venv/bin
ARGS ?=
# Tests wait more than they compute: so many processes run them side by side, a file at a time. With six on two cores, tests of
# recovery times fail for want of CPU. 0: in this one, for a debugger.
SIDE ?= 4
TIMES ?= 1
HOURS ?= 0.5
SEEDS ?= 2000
SAMPLE ?= 300
ENGINE ?= sqlite
# Not the shell's own SECONDS, which may be in the environment.
CHAOS_SECONDS := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),600)
LOWEST := .venv-lowest

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## watch jobs succeed, wait, fail, die with their worker and recover; then try it in the dashboard
	@tools/venv.sh base
	@$(BIN)/drumbeat demo $(ARGS)

# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes.
test: ## run every test, the fast ones first
	@tools/venv.sh test
	@tools/browser.sh
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(SIDE) --dist loadfile --no-loadscope-reorder $(ARGS)

sim: ## a simulated cluster under faults: SEEDS=2000 seeds, and the planted bugs; SEED=7 repeats one, with its trace
	@tools/venv.sh test
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)
	$(if $(SEED),,@$(BIN)/python -m tests.simulation --planted)

# What each test touches is traced first, once: ARGS="--remap" does it again. A mutant that is noticed takes 1 to 3 seconds, a
# survivor half a minute. ARGS="--only ID" repeats one; ARGS="--log FILE --resume" goes on where a run was ended.
mutate: ## plant the known bugs, then SAMPLE=300 by machine, and list those that no test notices; SEED=1 chooses others
	@tools/venv.sh test
	@$(BIN)/python -m tests.mutation --known --processes 2
	@$(BIN)/python -m tests.mutation --sample $(SAMPLE) --seed $(or $(SEED),0) --processes 2 $(ARGS)

chaos: ## real processes under faults for SECONDS=600 on ENGINE=sqlite, postgres or redis; a JSON verdict; SEED=7 repeats its faults
	@tools/venv.sh test
	@$(BIN)/python -m tests.chaos --engine $(ENGINE) --seconds $(CHAOS_SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

system: ## the tests that kill, stop and restart processes, the contract of stores and the browser, at their full length; TIMES=10 again and again
	@tools/venv.sh test
	@for time in $$(seq $(TIMES)); do DRUMBEAT_FULL=1 $(BIN)/python -m pytest -o faulthandler_timeout=1800 \
		tests/contract tests/engines/*/test_dependencies.py tests/simulation tests/chaos tests/system tests/web/browser $(ARGS) || exit 1; done

soak: ## mixed load with restarts for HOURS=0.5 on all engines side by side, or on ENGINE=; memory, descriptors and sizes must be flat
	@tools/venv.sh test
	@$(BIN)/python -m tests.soak --minutes $$($(BIN)/python -c 'print(60 * $(HOURS))') \
		$(if $(filter file,$(origin ENGINE)),,--engine $(ENGINE)) $(ARGS)

# Once in a while, and before a release: it makes an environment of its own, and needs the network for it.
test-lowest: ## tests of unit, contract and worker with the lowest versions that pyproject.toml allows
	@tools/venv.sh test
	@$(BIN)/python -m venv --clear $(LOWEST)
	@$(BIN)/python tools/lowest.py > $(LOWEST)/constraints.txt
	@$(BIN)/python tools/lowest.py --tests > $(LOWEST)/tests.txt
	$(LOWEST)/bin/python -m pip install -q -c $(LOWEST)/constraints.txt -r $(LOWEST)/tests.txt -e ".[all,kafka,nats,otel]"
	$(LOWEST)/bin/python -m pytest tests/unit tests/contract tests/worker $(ARGS)

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
	rm -rf .venv $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
