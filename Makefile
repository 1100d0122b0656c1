# Everything a contributor runs; `.ci/run` runs the same targets.
PYTHON ?= python

.PHONY: setup test lint types pyz docs bench

setup:  ## this project and its tools into the environment of $(PYTHON)
	$(PYTHON) -m pip install -q -e '.[dev]'
	$(PYTHON) -m compileall -q doctor checks fixes  # as pip does: the first run then writes nothing

test:  ## all tests, with coverage
	$(PYTHON) -m coverage run -m pytest
	$(PYTHON) -m coverage report --skip-covered --show-missing

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

# Type checkers do not see setuptools' mapping of doctor/, checks/ and fixes/: give them links.
types:
	rm -rf build/types && mkdir -p build/types/infer_doctor
	ln -s $(CURDIR)/doctor/* $(CURDIR)/checks $(CURDIR)/fixes build/types/infer_doctor/
	MYPYPATH=build/types $(PYTHON) -m mypy -p infer_doctor

pyz:  ## build/infer-doctor.pyz: the doctor in one file
	$(PYTHON) scripts/make_pyz.py

docs:  ## build/site: a page for each check, the recipes, the report; fails on a warning
	$(PYTHON) scripts/make_docs.py

bench:  ## the figures of bench/, each beside its rival; no timed tests
	for script in version check gpus snapshot memory hangs preflight launch model_files; do \
		$(PYTHON) bench/$$script.py || exit 1; \
	done
