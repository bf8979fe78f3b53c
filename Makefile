# minik8s: `make help` lists what there is. Everything runs from the virtual environment that this file makes.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# compiled files stay, also of tests, which every process would compile again
unexport PYTHONDONTWRITEBYTECODE

PYTHON := /usr/bin/python3
VENV := .venv
BIN := $(VENV)/bin
KUBECTL := /opt/minik8s/bin/kubectl --kubeconfig /etc/minik8s/admin.kubeconfig
PLAYBOOK := ANSIBLE_CONFIG=ansible.cfg $(BIN)/ansible-playbook -i inventory/local
EXAMPLE := examples/hello.yml
PROSE := README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs minik8s_modules library roles playbooks inventory Makefile
PYTEST := $(BIN)/pytest

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(VENV)/runtime.lock ## Make .venv: Ansible, what the playbooks need, and the minik8s command

.PHONY: cluster
cluster: $(VENV)/runtime.lock ## Install and start the cluster here, apply an example, show its pods (again: changed=0)
	$(PLAYBOOK) playbooks/site.yml
	$(KUBECTL) apply -f $(EXAMPLE)
	$(KUBECTL) wait --for=condition=Ready --timeout=120s -f $(EXAMPLE)
	$(KUBECTL) get -f $(EXAMPLE) -o wide

.PHONY: renew
renew: $(VENV)/runtime.lock ## Issue all certificates of the control plane again, with no request failing
	$(PLAYBOOK) playbooks/renew.yml

.PHONY: rotate-ca
rotate-ca: $(VENV)/runtime.lock ## Exchange the cluster's certificate authority, with no request failing; stopped, it is continued
	$(PLAYBOOK) playbooks/rotate_ca.yml

.PHONY: reset
reset: $(VENV)/runtime.lock ## Remove every trace of minik8s; packages, and Docker with other containers, stay
	$(PLAYBOOK) playbooks/reset.yml

.PHONY: test
test: lint suites ## Lint, then all tests but the long ones: unit, integration (root, Docker), end-to-end, machines, molecule

# Tests by several processes, on an installed cluster where some need one. The folder is short: sockets below it may have
# 107 characters.
run_suites = @$(KUBECTL) get --raw /readyz >/dev/null 2>&1 || $(MAKE) cluster; \
	folder=$$(mktemp --directory /tmp/t.XXXX); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTEST) tests --ignore tests/machines/long --dist loadscope --no-loadscope-reorder --basetemp="$$folder" -rR --durations 30 $(1)

.PHONY: suites
suites: $(VENV)/dev.lock ## The tests of `make test`, four at a time; where the time went is told at the end
	$(call run_suites,-m 'not nightly' --numprocesses 4 --max-suite-reruns 4 --junitxml=.cache/junit-all.xml)

.PHONY: ahead
ahead: $(VENV)/dev.lock ## Fetch and make what tests need once (a lab's image, clients of others), while there is time
	$(BIN)/python -m tests.support.ahead

.PHONY: check
check: lint test-unit ## What needs neither root nor servers: lint and unit tests

.PHONY: lint
lint: $(VENV)/dev.lock ## Format, rules, types, layers, prose, YAML, playbooks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PYTHONPATH=extensions/virtual-machines $(BIN)/lint-imports --config extensions/virtual-machines/pyproject.toml
	$(BIN)/yamllint --strict .
	$(BIN)/codespell $(PROSE)
	$(BIN)/python -m tests.support.prose
	ANSIBLE_CONFIG=ansible.cfg PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m tests.support.repository.ansible_lint --offline

.PHONY: docs
docs: $(VENV)/dev.lock ## Build the documentation site into .cache/site; a broken link fails
	$(BIN)/sphinx-build -q -W --keep-going -d .cache/doctrees docs .cache/site
	@echo 'docs: .cache/site/index.html'

.PHONY: test-unit
test-unit: $(VENV)/dev.lock ## Unit tests
	$(PYTEST) tests/unit --junitxml=.cache/junit-unit.xml

.PHONY: test-integration
test-integration: $(VENV)/dev.lock ## Tests on real etcd, Docker and nft; needs root and a Docker that answers
	$(PYTEST) tests/integration --junitxml=.cache/junit-integration.xml

.PHONY: test-e2e
test-e2e: $(VENV)/dev.lock ## Tests on the installed cluster
	$(PYTEST) tests/e2e --junitxml=.cache/junit-e2e.xml

.PHONY: test-machines
test-machines: $(VENV)/dev.lock ## Tests on clusters of several machines in the lab: installing, joining, losing machines, networks
	$(PYTEST) tests/machines --ignore tests/machines/long --junitxml=.cache/junit-machines.xml

.PHONY: test-nightly
test-nightly: $(VENV)/dev.lock ## What make test leaves out but for hours: fuzzing, Helm and stern, waves of pods, IPVS on UML, more installations and upgrades of lab machines, the lab, second runs on several machines, molecule for single roles
	$(call run_suites,-m nightly --numprocesses 3 --max-suite-reruns 6 --junitxml=.cache/junit-nightly.xml)

.PHONY: test-long
test-long: $(VENV)/dev.lock ## What takes hours, or many installations: 1,000 pods, an hour without a control plane, growth to three machines, CNI and Weave, volumes on a real NFS server, 20,000 requests against a model of rights, operators of others
	$(PYTEST) tests/machines/long -s
	MINIK8S_WAVES=20 MINIK8S_WAVE_PODS=50 $(PYTEST) tests/integration/reconcile/test_waves.py -s
	MINIK8S_RIGHTS_CASES=20000 MINIK8S_RIGHTS_SEED=$$RANDOM $(PYTEST) tests/attacks/test_no_answer_outside_ones_rights.py -s
	MINIK8S_SERVING_S=3600 $(PYTEST) tests/machines/resilience/test_static_stability.py -s
	MINIK8S_PLAN_SCENARIOS=500 $(PYTEST) tests/unit/apiserver/nodes/test_random_plans.py tests/unit/reconcile/planning/test_random_rollouts.py tests/unit/reconcile/planning/test_random_nodes.py
	MINIK8S_FUZZ_TEXTS=20000 MINIK8S_FUZZ_SHAPES=10000 $(PYTEST) tests/unit/parsing
	$(MAKE) operators

.PHONY: operators
operators: $(VENV)/dev.lock ## Build operators of others from Go's module proxy, once (an hour), and run them unmodified, some in pods of the installed cluster
	MINIK8S_BUILD_OPERATORS=1 $(PYTEST) tests/e2e/operators tests/integration/reconcile/test_upstream_nodes.py

.PHONY: skips
skips: $(VENV)/dev.lock ## Fail when the last `make test` skipped a test that tests/SKIPS.md does not list
	$(BIN)/python -m tests.support.repository.skips .cache/junit-all.xml

.PHONY: molecule
molecule: $(VENV)/dev.lock ## Scenarios of tests/molecule for most roles, on lab machines (`make test` runs `default`); SCENARIO=etcd: one
	$(PYTEST) --numprocesses 3 --dist loadscope --durations 0 'tests/molecule/test_scenarios.py$(if $(SCENARIO),::test_scenario[$(SCENARIO)])'

.PHONY: cis
cis: $(VENV)/dev.lock ## Ask the installed cluster about each hardening control of tests/cis; ONLY="1.2.1 4.2.13": these
	$(BIN)/python -m tests.cis $(ONLY)

.PHONY: bench
bench: $(VENV)/dev.lock ## Measure the installed cluster and lab machines, and write BENCHMARKS.md of this commit; ONLY="joining overlay": these groups
	$(BIN)/python -m tests.benchmarks $(ONLY)

.PHONY: scale
scale: $(VENV)/dev.lock ## Thousands of simulated nodes and Pods on a control plane of their own (an hour): NODES="1000" PODS="20000" ROLLOUT="5000"
	$(BIN)/python -m tests.benchmarks.scale --nodes $(or $(NODES),1000) --pods $(or $(PODS),20000) --rollout $(or $(ROLLOUT),5000) --rest 300

.PHONY: bench-quick
bench-quick: $(VENV)/dev.lock ## Before each release: measure for some minutes what needs no lab, and say what has become slower since BENCHMARKS.md
	$(BIN)/python -m tests.benchmarks --quick $(ONLY)

.PHONY: profile
profile: $(VENV)/dev.lock ## Sample an API server under load into .cache/profile-WHAT.txt; WHAT=create, get or pod
	$(BIN)/python -m tests.benchmarks.profile $(or $(WHAT),create)

# What stands in build/ from before would be packed, too.
.PHONY: dist
dist: $(VENV)/runtime.lock ## Build the wheel, which carries playbooks and roles, and the Ansible collection, into dist/
	rm -rf build dist/minik8s-*
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	rm -rf build minik8s.egg-info
	$(BIN)/python extensions/collection/build.py dist
	@ls dist/*.whl

.PHONY: bundle
bundle: dist ## Pack all that an installation without any network needs, into one archive in dist/; FAMILIES='["debian-12"]': for fewer releases
	$(PLAYBOOK) playbooks/bundle.yml $(if $(FAMILIES),-e '{"bundle_families": $(FAMILIES)}')

.PHONY: lock
lock: ## Write requirements.txt and requirements-dev.txt again from pyproject.toml
	$(PYTHON) -m venv --clear .cache/lock
	.cache/lock/bin/pip install --quiet --upgrade .
	.cache/lock/bin/pip freeze --exclude minik8s >.cache/lock/freeze
	.cache/lock/bin/python -m tests.support.repository.lock 'what the control plane runs' <.cache/lock/freeze >requirements.txt
	.cache/lock/bin/pip install --quiet '.[dev]' --constraint requirements.txt
	.cache/lock/bin/pip freeze --exclude minik8s >.cache/lock/freeze
	.cache/lock/bin/python -m tests.support.repository.lock 'what tests and linters run' <.cache/lock/freeze >requirements-dev.txt
	rm -rf .cache/lock build

# The virtual environments: the stamp is a copy of the lock it was made from. The runtime lock is part of the dev lock.
# minik8s.pth lets modules that run on this machine (minik8s_object) import the client from this checkout.
# Two pips at once break each other's packages (`make lint` beside `make suites`): one waits and then finds all there.
pip_install = mkdir -p .cache && flock .cache/pip.flock $(BIN)/pip install --quiet --requirement $(1)

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(f"Python 3.11 or newer is needed, $(PYTHON) is {sys.version.split()[0]}" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/runtime.lock: requirements.txt | $(VENV)/bin/pip
	$(call pip_install,requirements.txt)
	@echo '$(CURDIR)' > $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/minik8s.pth
	@printf '#!/bin/sh\nexec "%s" -m minik8s_modules.cli.main "$$@"\n' '$(CURDIR)/$(BIN)/python' >$(BIN)/minik8s && chmod +x $(BIN)/minik8s
	@cp requirements.txt $@

$(VENV)/dev.lock: requirements-dev.txt | $(VENV)/runtime.lock
	$(call pip_install,requirements-dev.txt)
	@cp requirements-dev.txt $@

# The lab: machines with real kernels on this host, see docs/how-to/lab.md. LAB names it (several may run); KERNEL, see `-m tests.lab up -h`.
LAB ?= lab
N ?= 3
KIND ?= uml
NODE ?= node1
KERNEL ?=
RELEASE ?= bookworm
LAB_RUN := $(BIN)/python -m tests.lab --lab $(LAB)

.PHONY: lab-up
lab-up: $(VENV)/dev.lock ## Start N lab nodes of KIND (uml or native) with RELEASE (bookworm or trixie) and write inventory/lab/hosts.yml
	$(LAB_RUN) up $(N) --kind $(KIND) --kernel "$(KERNEL)" --release $(RELEASE)

.PHONY: lab-down
lab-down: $(VENV)/dev.lock ## Remove the lab; nothing is left of it but the cache
	$(LAB_RUN) down

.PHONY: lab-status
lab-status: $(VENV)/dev.lock ## Show the lab's nodes
	@$(LAB_RUN) status

.PHONY: lab-ssh
lab-ssh: $(VENV)/dev.lock ## Log in to the lab's NODE
	@$(LAB_RUN) ssh $(NODE)

.PHONY: lab-test
lab-test: $(VENV)/dev.lock ## Print what the nodes of each kind can do, in labs of their own
	@$(LAB_RUN) test --kernel "$(KERNEL)"
