# warpgauge: make help says what there is. Use another interpreter and install nothing with
#   make X VENV= PYTHON=python3
PYTHON ?= python3
VENV ?= .venv
PY := $(if $(VENV),$(VENV)/bin/python,$(PYTHON))
RUN ?= latest
PROFILE ?= standard
PROCESSES ?= 1
NAME ?=
JOBS ?= 2
SIMULATE := NUMBA_ENABLE_CUDASIM=1 $(PY) -m
# Work-stealing leaves tests that share a fixture or a compiled kernel with one worker.
PYTEST := pytest -q -n $(JOBS) --dist worksteal

# $(call need,variables,example): one line and exit code 3 where one of them is empty.
SPACE := $(subst ,, )
need = @$(foreach v,$(1),test -n "$($(v))" &&) true || \
  { echo "warpgauge: set $(subst $(SPACE), and ,$(1)): $(2)" >&2; exit 3; }

.PHONY: help setup bench test report compare verdict baseline profile sanitize lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

ifneq ($(VENV),)
SETUP := $(VENV)/.installed
$(SETUP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(not (3, 11) <= v < (3, 14))' || \
	  { echo "warpgauge: $(PYTHON) is not Python 3.11 to 3.13; name one: make setup PYTHON=python3.12" >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet -e '.[cu13,test]'
	@touch $@
endif

setup: $(SETUP) ## .venv and dependencies

bench: $(SETUP) ## measure on GPU 0, store the run, print the summary, write the report
	@$(PY) -m bench device > /dev/null; status=$$?; \
	if [ $$status -eq 0 ]; then \
	  $(PY) -m bench run --profile "$(PROFILE)" --processes "$(PROCESSES)"; status=$$?; \
	  [ $$status -eq 0 ] || [ $$status -eq 2 ] || exit $$status; \
	  $(PY) -m analysis table latest; $(PY) -m analysis report latest || exit; \
	  exit $$status; \
	elif [ $$status -ne 3 ]; then \
	  exit $$status; \
	else \
	  echo "No timing is recorded. Every kernel is checked in the simulator instead, and the"; \
	  echo "report is built from the recorded H200 run."; \
	  $(SIMULATE) bench check --brief && $(PY) -m analysis report nvidia-h200 || exit; \
	  echo "No GPU here: kernels were checked in the simulator (above), and nothing was timed."; \
	  echo "The recorded H200 run's report is at report/index.html."; \
	fi

test: $(SETUP) ## every test that this machine can run
	$(PY) -m $(PYTEST) -m 'not gpu and not simulator and not thorough'
	$(SIMULATE) $(PYTEST) -m 'simulator and not thorough' tests/bench tests/kernels tests/test_*.py
	$(PY) -m pytest -q -m gpu tests/bench tests/kernels

report: $(SETUP) ## the report of RUN (a folder, a file, a baseline's name, or latest)
	$(PY) -m analysis report "$(RUN)"

compare: $(SETUP) ## A and B beside each other, as absolute, share of peak and per clock
	$(call need,A B,make compare A=nvidia-h200 B=latest)
	$(PY) -m analysis compare "$(A)" "$(B)"

verdict: $(SETUP) ## did NEW get slower than BASE?
	$(call need,BASE NEW,make verdict BASE=nvidia-h200 NEW=latest)
	$(PY) -m analysis verdict "$(BASE)" "$(NEW)"

baseline: $(SETUP) ## record five processes as results/baseline/NAME
	$(call need,NAME,make baseline NAME=my-gpu)
	@case "$(NAME)" in *[!A-Za-z0-9_.-]*|.*) echo "warpgauge: NAME may hold letters, digits, _, . and -" >&2; exit 3;; esac
	$(PY) -m bench run --profile standard --processes 5 --output "results/baseline/$(NAME)"

sanitize: $(SETUP) ## compute-sanitizer over every kernel, and over planted faults that it must report
	$(PY) -m bench.sanitize

profile: $(SETUP) ## hardware counters of RUN's cases, by Nsight Compute
	$(PY) -m bench profile --profile "$(PROFILE)" --run "$(RUN)"

lint: $(SETUP) ## ruff, mypy and the import law
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	PYTHONPATH=. $(PY) -c 'import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())'

clean: ## what can be made again; runs stay
	rm -rf report .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .benchmarks
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
