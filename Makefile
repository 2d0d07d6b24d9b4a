# make demo   sets up .venv if needed and runs the demo
# make test   sets up .venv if needed and runs the tests
.DEFAULT_GOAL := test
.PHONY: demo test lint slow torture old-code peers docs notebooks gallery walks check fmt \
    release-check types pythons clients versions golden golden-check bench clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# visdom has no wheel, and its build imports what setuptools 81 has dropped; pip 25.3 renamed this,
# and before pip 23.1 only a build by PEP 517 is one with a setuptools of its own
OLD_BUILD := PIP_CONSTRAINT=build-constraints.txt PIP_BUILD_CONSTRAINT=build-constraints.txt

# torch first and alone: beside it, a pin of an old setuptools would make pip take an older torch;
# mmcv-lite and mmengine without an OpenCV that needs libGL: the stand-in reads their files;
# trackio without a Pillow before 13: its client imports gradio_client alone
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -c constraints.txt torch
	$(BIN)/pip install -c constraints.txt -e '.[dev]'
	$(BIN)/pip install -c constraints.txt addict gradio_client opencv-python-headless termcolor yapf
	$(BIN)/pip install -c constraints.txt --no-deps mmcv-lite mmengine trackio
	$(OLD_BUILD) $(BIN)/pip wheel --use-pep517 --no-deps -w build/visdom -c constraints.txt visdom
	$(BIN)/pip install -c constraints.txt build/visdom/visdom-*.whl
	touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py $(ARGS)

# three processes on two cores: a test often waits for a process, a server or a disk, and one process
# more costs half a minute of imports; worksteal gives each whole files, whose fixtures are made once
test: $(INSTALLED)
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow $(ARGS)

# 200 kills, broken disks, bad input: docs/torture.md
torture: $(INSTALLED)
	OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES="" PYTHONPATH=.:tests $(BIN)/python -m support.torture $(ARGS)

# hooks of real packages of the mmcv 1.x era and of its sister libraries, downloaded from PyPI
old-code: $(INSTALLED) .oracle/recipe
	$(BIN)/python -m pytest -m slow tests/old_code tests/sister_code $(ARGS)

# what the documentation states about other libraries, beside them, in the benches' environment
peers: .oracle/recipe
	benchmarks/peers.sh
	.bench/bin/python -m pytest -c tests/peers/pytest.ini --rootdir . tests/peers $(ARGS)

# the pages of docs/ into docs/build/index.html, all anew (else the search forgets words of the rest);
# a warning is an error. While writing, QUICK=1 builds the pages that have changed
docs: $(INSTALLED)
	$(BIN)/python -m sphinx -q -j 2 $(if $(QUICK),,-E) -W --keep-going -b html docs docs/build

# runs the notebooks, or those of ARGS, anew and keeps their outputs
notebooks: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python tests/project/test_notebooks.py $(ARGS)

# draws the pictures of docs/gallery.md anew
gallery: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python tests/project/test_gallery.py

# which files of the package a log line, a checkpoint, a config ... visits, in order
walks: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python -m support.walks $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

check: lint test

fmt: $(INSTALLED)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# builds the wheel and tests it elsewhere, without extras, with the newest Lightning and the oldest;
# the fast part here with all releases of `versions`; and a zip of the pages for people without a
# network, apart from dist/, which is what is uploaded
release-check: versions docs
	PYTHON=$(PYTHON) .ci/release-check $(ARGS)
	$(BIN)/python -m zipfile -c build/release/lightning_hooks-docs.zip docs/build/*

# a user's script in the strict modes of mypy and pyright, which takes its program from npm
types: $(INSTALLED)
	$(PYTHON) -m venv build/types
	build/types/bin/pip install -q pyright
	PATH="$$PWD/build/types/bin:$$PATH" $(BIN)/python -m pytest -m "" tests/project/test_types.py $(ARGS)

# the suite of the wheel with Python 3.10 to 3.14, or PYTHONS: 6 GB, one after the other
pythons:
	.ci/pythons $(ARGS)

# the trackers' tests with the oldest clients that the extras allow and the newest, or CLIENTS
clients: $(INSTALLED)
	VENV=$(VENV) .ci/clients $(ARGS)

# what other packages' releases concern, with the oldest, the pinned and the newest, or VERSIONS, and
# the README's script with older pins; writes the table of docs/install.md
versions: $(INSTALLED)
	VENV=$(VENV) .ci/versions $(ARGS)

# real mmcv 1.7.2 in .oracle: record its numbers into tests/golden/*.json
golden:
	tests/golden/oracle.sh

# our hooks and mmcv's side by side, bit for bit; the oracle is built if it is missing
golden-check: .oracle/recipe .oracle/lite/mmengine
	CUDA_VISIBLE_DEVICES="" PYTHONPATH=.:tests:tests/golden .oracle/bin/python -m pytest -c /dev/null \
	    --rootdir . -p no:cacheprovider --disable-warnings tests/golden_check $(ARGS)

# apart: beside mmcv itself, mmcv-lite would overwrite its files
.oracle/lite/mmengine: .oracle/recipe
	.oracle/bin/pip install -c constraints.txt --no-deps --target .oracle/lite mmcv-lite mmengine
	.oracle/bin/pip install -c constraints.txt --target .oracle/lite rich termcolor

.oracle/recipe:
	tests/golden/oracle.sh traces

# ours beside their peers: tables, and docs/results/ with figures, goals and a picture
bench: $(INSTALLED) .oracle/recipe
	benchmarks/peers.sh
	.bench/bin/python -m benchmarks $(ARGS)

clean:
	rm -rf .venv .oracle .bench .old_code build docs/build *.egg-info demo_output
