# Everything is in tools/bootstrap.py; this only finds a Python to run it with.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell command -v $(name))))

.PHONY: help up setup test
help:
	@echo "make up     set up what is missing, start the site, print its address (Ctrl-C stops it)"
	@echo "make setup  only set up: .venv, Python packages, demo models, browser libraries"
	@echo "make test   set up what the tests need, then linters, types, import contracts and the tests"

up setup test:
	@test -n "$(PYTHON)" || { echo "Parley needs Python 3.11 or newer, and there is no python3 here." >&2; exit 1; }
	@exec "$(PYTHON)" -I tools/bootstrap.py $@
