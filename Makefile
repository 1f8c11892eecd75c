# make demo   sets everything up and finds a thing in the bundled video
# make test   sets everything up and passes the tests
# make check  style and types
# make soak   damages thousands of files, kills processes, fills disks (10 minutes)
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test check soak clean

demo: $(VENV)/.installed
	$(BIN)/lastseen find lastseen/assets/demo_query.jpg lastseen/assets/demo.mp4 \
		--picture demo-answer.jpg --video demo-answer.mp4
	@echo "Look at demo-answer.jpg and demo-answer.mp4."

test: $(VENV)/.developing
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

check: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(VENV)/.developing
	OMP_NUM_THREADS=1 $(BIN)/python -m soak --seed 0 --out soak-report.json --keep soak-failures

clean:
	rm -rf $(VENV) build dist *.egg-info demo-answer.jpg demo-answer.mp4 soak-report.json soak-failures

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("lastseen needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
