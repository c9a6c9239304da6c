# Everything runs in .venv, which the first command that needs it makes (tools/venv.sh).
#   make train ARGS="-e network=resnet20 -e num_epochs=5"    more knobs: group_vars/all.yml
#   make train PYTHON=/path/to/python3.11                    when none is found by itself
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help train venv venv-dev bundle lint unit fast molecule test gpu shuffled soak docs bench clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Ansible refuses to start in a locale that is not UTF-8, as a bare container's is.
export LC_ALL := C.UTF-8
# Containers often set this variable. Each of the tests' hundred ansible-playbook runs would then
# compile the package again, for half a second.
unexport PYTHONDONTWRITEBYTECODE
# Many of these wait for something. A file's tests share what they have made.
FAST := pytest -q -n 3 --dist loadfile tests/unit tests/contract tests/inventories tests/docs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

train: venv ## make this machine a cluster of four nodes and train on it with dist_gsync
	ansible-playbook provision.yml
	ansible-playbook train.yml -e kv=dist_gsync $(ARGS)

venv: ## the controller's environment in .venv; CORE=2.19 for another line of ansible-core than 2.16
	@PYTHON='$(PYTHON)' BUNDLE='$(BUNDLE)' CORE='$(CORE)' tools/venv.sh controller

bundle: venv ## mxcluster-bundle.tar for a site without a network; there: make venv BUNDLE=mxcluster-bundle.tar
	python tools/bundle.py make mxcluster-bundle.tar $(ARGS)

venv-dev:
	@PYTHON='$(PYTHON)' CORE='$(CORE)' tools/venv.sh dev

lint: venv-dev ## ruff, import-linter, mypy, codespell, yamllint, ansible-lint
	ruff check .
	ruff format --check --quiet .
	lint-imports --no-cache
	mypy --no-error-summary
	python tools/figures.py --check
	codespell
	yamllint --strict .
	ansible-lint --strict

unit: venv-dev ## the fast tests: a minute
	$(FAST) -m 'not slow and not soak'

molecule: venv-dev ## the scenarios in docker containers; SCENARIO=name for one
	tools/molecule.sh $(SCENARIO)

test: ## everything: lint, fast tests, playbooks and real trainings, clusters in docker; FROM=part goes on; PLAN=1 only names the parts
	@tools/needs.sh
	@$(MAKE) --no-print-directory venv-dev
	@python3 tools/suite.py $(if $(FROM),--from $(FROM)) $(if $(PLAN),--plan)

# Its status is 77 if nothing passed on a GPU. For make every other status than 0 is a failure.
gpu: ## try everything that needs a GPU on this machine's; a table to send back: docs/gpu-rows.md
	@PYTHONPATH=python python3 -m tests.gpu.any_gpu
	@$(MAKE) --no-print-directory venv-dev
	pytest -q -rN tests/gpu $(ARGS)

fast: venv-dev
	$(FAST)

shuffled: venv-dev ## fast tests, playbooks and trainings in random order; SEED=7 for that of another run
	pytest -o addopts= --import-mode=importlib -m 'not soak' -q -n 2 --dist worksteal $(if $(SEED),--randomly-seed=$(SEED)) \
	    tests/unit tests/contract tests/inventories tests/docs tests/playbooks tests/training

soak: venv-dev ## 50 healthy jobs, every fault with every scheme, jobs that go on, 50 jobs with random faults (most of an hour)
	pytest -q -s tests/soak
	pytest -q -n 2 --dist loadfile -m soak tests/unit tests/playbooks tests/training
	PYTEST_ADDOPTS='-m soak' tools/molecule.sh
	pytest -q -m soak tests/fresh

docs: venv-dev ## what is generated of the variables: docs/knobs.md, tables in READMEs, defaults and specs of train_job
	python tools/docs.py

bench: venv-dev ## the figures of docs/benchmarks.md
	python -m bench $(ARGS)

clean: ## remove .venv, .state and every cache, but no run
	rm -rf .venv .state .ansible .hypothesis .mypy_cache .pytest_cache .ruff_cache python/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
