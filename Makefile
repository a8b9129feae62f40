# Two commands do all the set-up: `make demo` searches a plan, explains it and trains under it on 8 simulated CPU devices,
# `make test` passes the tests.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SOURCES := *.py backends commands dsl planner tests
# Tests say what they do in their names; their bodies are checked all the same.
TESTS_ARE := --explicit-package-bases --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls \
	--allow-any-generics --check-untyped-defs --no-strict-optional --implicit-reexport --no-warn-return-any \
	--no-warn-unreachable --no-warn-unused-ignores --follow-imports=silent --disable-error-code=arg-type --disable-error-code=call-overload

.PHONY: demo test bytecode solver lint types copies types-of-code types-of-tests bench clean

demo: $(VENV)/demo.stamp bytecode
	$(BIN)/meshwright search plans/partial/gshard-tiny.yaml --time-limit 40 -o demo-plan.yaml
	$(BIN)/meshwright explain demo-plan.yaml --time-limit 20
	$(BIN)/meshwright run demo-plan.yaml --steps 100

test: solver
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Where programs may not write bytecode, each process, and each worker that it starts, would compile all that it imports.
bytecode: | $(BIN)/python
	$(BIN)/python -m compileall -q -j 0 $(SOURCES)

# What the solver compiles at its first use is compiled before searches with time limits are tested.
solver: $(VENV)/test.stamp bytecode
	$(BIN)/python -c "from meshwright.planner.solver.prepare import prepare; prepare()"

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: types-of-code types-of-tests

# Type checkers do not follow an editable install of folders at the root, so a plain copy is checked.
copies: $(VENV)/test.stamp
	rm -rf $(VENV)/typed build && $(BIN)/pip install --quiet --no-deps --target $(VENV)/typed .
	rm -rf $(VENV)/typed_tests build && cp -r tests $(VENV)/typed_tests

types-of-code: copies
	cd $(VENV)/typed && ../bin/mypy --config-file ../../pyproject.toml -p meshwright

types-of-tests: copies
	cd $(VENV)/typed_tests && MYPYPATH=../typed ../bin/mypy --config-file ../../pyproject.toml $(TESTS_ARE) .

bench: $(VENV)/test.stamp
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	for b in benchmarks/*.py; do $(BIN)/python $$b || exit 1; done

clean:
	rm -rf $(VENV) build *.egg-info demo-plan.yaml

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[data]'
	touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[data,tpu,dev]'
	touch $@ $(VENV)/demo.stamp
