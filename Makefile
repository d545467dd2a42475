# Each target sets up what it needs and does nothing twice. `make help` lists them.
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Any Python 3.11 or newer that has venv; name another with `make PYTHON=…`.
PYTHON ?= $(shell requirements/environment.sh find 3.11)
PYTHON310 ?= $(shell requirements/environment.sh find 3.10 python3.10 $(wildcard $(HOME)/.pyenv/versions/3.10.*/bin/python3))
# More options for every run of pytest, as CI gives them.
PYTEST_FLAGS ?=
# Of `test-rest`: property tests, which run a quarter of their examples in `test`, run all of them here; not in CI.
REST_FLAGS ?= --all-examples
PYTEST = .venv/bin/python -m pytest $(PYTEST_FLAGS)
# On two cores: many tests wait for processes, so others compute meanwhile.
WORKERS ?= 4

# Our tools and uv then trust what the machine trusts, also where a network ends TLS itself.
export UV_SYSTEM_CERTS ?= 1

BOOTSTRAP := .venvs/bootstrap/.made
READY := .venv/.made
ADK213 := .venvs/adk-2.13/.made
ADK110 := .venvs/adk-1.10/.made
AGENTS_CLI := .venvs/agents-cli/.made
PEERS := .venvs/peers/.made
A2A := .venvs/a2a/.made
TYPESCRIPT := .venvs/typescript/.made

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-24s %s\n", $$1, $$2}'

.PHONY: demo
demo: setup ## set up and run the main job on examples/dice
	cd examples/dice && ../../.venv/bin/agent-eval run

# What is blocked exits 1, so that is what this target wants to see.
WORSE := build/dice-made-worse
.PHONY: demo-regression
demo-regression: setup ## the same agent with one changed instruction: blocked (this fails if it is not)
	@rm -rf $(WORSE) && mkdir -p $(WORSE)
	@tar -C examples/dice --exclude=./.agent-eval/cache --exclude=./.agent-eval/out -cf - . | tar -C $(WORSE) -xf -
	cd $(WORSE) && git apply regression/answer-from-memory.patch
	cd $(WORSE) && ../../.venv/bin/agent-eval run; test $$? -eq 1

.PHONY: test
test: setup setup-oracles ## unit, format, golden, parity, integration and contract tests
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not adk110 and not container and not exhaustive"

.PHONY: test-all
test-all: test test-remaining ## test, then what it leaves out

# Side by side: the container tests mostly wait for their engine.
.PHONY: test-remaining
test-remaining: setup setup-oracles ## test-rest and test-container side by side
	@$(MAKE) --no-print-directory --keep-going --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) \
		test-rest test-container

.PHONY: test-rest
test-rest: setup setup-oracles setup-peers ## what test leaves out: slow tests, variants and examples, google-adk 1.10
	$(PYTEST) -n $(WORKERS) --dist worksteal $(REST_FLAGS) -m "adk110 or exhaustive"

.PHONY: test-adk110
test-adk110: setup setup-oracles ## what runs on google-adk 1.10
	$(PYTEST) -n $(WORKERS) -m adk110

# Two processes, a file's tests in one of them: they share a checkout, and both an engine and an image.
.PHONY: test-container
test-container: setup ## build the image and start it as GitHub's runner does (skipped aloud where no engine runs)
	$(PYTEST) -n 2 --dist loadfile tests/e2e -m "container"

ACTIONS := action.yml host/action.yml
WORKFLOWS := $(wildcard .github/workflows/*.yml examples/*/.github/workflows/*.yml)
.PHONY: lint
lint: setup ## ruff, mypy, import-linter, hadolint, schemas of action and workflows, zizmor
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/hadolint Dockerfile
	.venv/bin/check-jsonschema --builtin-schema vendor.github-actions $(ACTIONS)
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	.venv/bin/zizmor --offline --no-progress --pedantic $(ACTIONS) $(WORKFLOWS)

.PHONY: generate
generate: setup ## schemas, inputs of the actions and tables of the docs, from the code
	.venv/bin/python -m tools.generate

.PHONY: format
format: setup ## let ruff fix and format
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

.PHONY: bench
bench: setup setup-oracles ## the measurements: against `adk eval`, and rescoring 10,000 cases
	.venv/bin/python -m benchmarks

.PHONY: screenshots
screenshots: setup ## docs/images/*.png anew: the golden comments as GitHub shows them (needs a Chromium)
	PYTHONPATH=tests .venv/bin/python -m support.screenshots

.PHONY: wheel
wheel: $(BOOTSTRAP) ## dist/*.whl, the same bytes from the same commit
	@rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venvs/bootstrap/bin/python -m hatchling build -t wheel -d dist

# Changed files are compiled here: where Python may not write bytecode, each start of the command would do it.
.PHONY: setup
setup: $(READY) ## .venv with the tool and what develops it
	@.venv/bin/python -m compileall -q src

.PHONY: setup-oracles
setup-oracles: $(ADK213) $(ADK110) $(AGENTS_CLI) ## google-adk 2.13 and 1.10 and agents-cli, each in an environment of its own

.PHONY: setup-peers
setup-peers: $(PEERS) $(A2A) $(TYPESCRIPT) ## LangGraph, OpenAI Agents, Pydantic AI and CrewAI, in one environment; google-adk with a2a-sdk 0.3; ADK for TypeScript

$(BOOTSTRAP): requirements/bootstrap.txt
	requirements/environment.sh bootstrap .venvs/bootstrap "$(PYTHON)"
	@touch $@

$(READY): requirements/dev.txt pyproject.toml $(BOOTSTRAP)
	requirements/environment.sh sync .venv $< "$(PYTHON)"
	.venvs/bootstrap/bin/uv pip install --quiet --python .venv --no-deps --no-build-isolation --editable .
	@touch $@

$(ADK213): requirements/adk-2.13.txt $(BOOTSTRAP)
	requirements/environment.sh sync .venvs/adk-2.13 $< "$(PYTHON)"
	@touch $@

$(AGENTS_CLI): requirements/agents-cli.txt $(BOOTSTRAP)
	requirements/environment.sh sync .venvs/agents-cli $< "$(PYTHON)"
	@touch $@

$(PEERS): requirements/peers.txt $(BOOTSTRAP)
	requirements/environment.sh sync .venvs/peers $< "$(PYTHON)"
	@touch $@

$(A2A): requirements/a2a.txt $(BOOTSTRAP)
	requirements/environment.sh sync .venvs/a2a $< "$(PYTHON)"
	@touch $@

# Without Node.js its tests are skipped, and say so.
$(TYPESCRIPT): requirements/typescript/package.json requirements/typescript/package-lock.json
	@mkdir -p $(@D) && cp $^ $(@D)
	if command -v npm >/dev/null; then cd $(@D) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; fi
	@touch $@

$(ADK110): requirements/adk-1.10.txt $(BOOTSTRAP)
	requirements/environment.sh sync .venvs/adk-1.10 $< "$(PYTHON310)"
	@touch $@

# Versions in the locks are kept where they still fit; `make lock UPGRADE=--upgrade` takes the newest.
COMPILE = UV_CUSTOM_COMPILE_COMMAND='make lock' .venvs/bootstrap/bin/uv pip compile --quiet $(UPGRADE) \
	--universal --generate-hashes --no-strip-extras

.PHONY: lock
lock: $(BOOTSTRAP) ## compile requirements/*.txt again from pyproject.toml and requirements/*.in
	$(COMPILE) --python-version 3.11 requirements/bootstrap.in -o requirements/bootstrap.txt
	$(COMPILE) --python-version 3.11 pyproject.toml --all-extras -o requirements/tool.txt
	$(COMPILE) --python-version 3.11 pyproject.toml --all-extras --group dev -c requirements/tool.txt -c requirements/bootstrap.txt -o requirements/dev.txt
	$(COMPILE) --python-version 3.11 requirements/a2a.in -o requirements/a2a.txt
	$(COMPILE) --python-version 3.11 requirements/adk-2.13.in -o requirements/adk-2.13.txt
	$(COMPILE) --python-version 3.11 requirements/agents-cli.in -o requirements/agents-cli.txt
	$(COMPILE) --python-version 3.11 $(addprefix --no-emit-package ,kubernetes lancedb onnxruntime pyarrow) requirements/peers.in -o requirements/peers.txt
	$(COMPILE) --python-version 3.10 requirements/adk-1.10.in -o requirements/adk-1.10.txt
