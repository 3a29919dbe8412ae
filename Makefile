.DEFAULT_GOAL := help

PY := .venv/bin/python

# Each worker runs whole tests, with a JVM of its own (1 GB); 0 runs them in the process of pytest.
WORKERS := 2
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist worksteal
# For what starts many JVMs.
PYTEST_LONG = $(PYTEST) --share-classes

# Each prepares .venv with the extra it is given. The second also finds Java, and exports its home to
# the command that follows in the same recipe line.
setup = scripts/setup.sh $(1)
setup_java = JAVA_HOME=$$(scripts/setup.sh --java $(1)) && export JAVA_HOME

.PHONY: help install demo test test-more test-all test-core test-lowest test-readers readers-table test-slow test-slow-slice soak lock s3-server dist lint format docs compatibility-table hostile-table migrating-tables snapshots bench bench-scale clean

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  make %-15s %s\n", $$1, $$2 }'

install: ## Set up .venv with everything for development, and find Java 17 or 21
	@$(call setup_java,dev) && echo "ready: .venv/bin/delvec, with Java in $$JAVA_HOME"

demo: ## Run the demonstration (ARGS: its options)
	@$(call setup_java) && .venv/bin/delvec demo $(ARGS)

test: ## Run the tests that find most, of every room, on the real engines (ARGS: options of pytest)
	@$(call setup_java,test) && $(PYTEST) -m "not more and not slow and not readers" $(ARGS)

test-more: ## Run the quick tests that `make test` leaves out (ARGS: options of pytest)
	@$(call setup_java,test) && $(PYTEST_LONG) -m "more and not slow and not readers" $(ARGS)

test-all: ## Run all quick tests: those of `make test` and of `make test-more` (ARGS: options of pytest)
	@$(call setup_java,test) && $(PYTEST_LONG) $(ARGS)

test-core: ## Run the tests that need no JVM (ARGS: options of pytest)
	@$(call setup,test) && $(PYTEST) -m "not spark and not slow" $(ARGS)

# Those that need no JVM, the examples of the README, and the demonstration on Spark.
test-lowest: ## Run a part of the tests with the oldest Python there is and the lowest versions, without pandas
	@$(call setup_java,lowest) && scripts/test_lowest.sh $(WORKERS)

READERS := .venv-readers/bin/python
test-readers: ## Read converted tables with other readers: the table of them in docs/conversion.md is right
	@$(call setup_java,readers) && $(READERS) -m pytest -n 0 -m readers tests/readers $(ARGS)

readers-table: ## Write the table of readers in docs/conversion.md again
	@$(call setup_java,readers) && DELVEC_READERS_TABLE=write $(READERS) -m pytest -n 0 -m readers tests/readers

# pytest exits with 5 when it selected no test, which is no failure here.
test-slow: ## Run the slow tests (SLOW_EXAMPLES=5000 bounds the randomised ones)
	@$(call setup_java,test) && \
	{ $(if $(SLOW_EXAMPLES),DELVEC_SLOW_EXAMPLES=$(SLOW_EXAMPLES)) $(PYTEST_LONG) -m slow $(ARGS) || test $$? -eq 5; }

test-slow-slice: ## Run one slice of the slow tests on Spark (SLICE: other than .ci/slow-slice says)
	@$(call setup_java,test) && $(PYTEST_LONG) -m "slow and spark" --slice $(or $(SLICE),$(shell cat .ci/slow-slice)) $(ARGS)

soak: ## Resolve beside a stream and readers for a while (SECONDS=300), in one test
	@$(call setup_java,test) && DELVEC_SOAK=$(or $(SECONDS),300) $(PY) -m pytest -n 0 -s -m slow \
	tests/iceberg/resolve/test_many.py -k stream $(ARGS)

lock: ## Resolve the dependencies of development again, into requirements.lock
	@$(call setup,dev) && $(PY) scripts/lock.py

# Go compares the module with its public checksum database.
s3-server: ## Build the server that the S3 tests run against, with Go (minutes, once)
	GOBIN=$(CURDIR)/.cache/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

dist: ## Build the wheel and the sdist into dist
	@$(call setup,test) && $(PY) -m hatchling build -d dist

lint: ## Check style, formatting and types
	@$(call setup,dev)
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: ## Format the code, and fix what ruff can fix
	@$(call setup,dev)
	$(PY) -m ruff format
	$(PY) -m ruff check --fix

docs: ## Build the site of the docs in build/site, with the reference of all calls; no link may be broken
	@$(call setup,docs) && $(PY) -m website

compatibility-table: ## Write the table of engines in docs/compatibility.md again
	@$(call setup_java,test) && DELVEC_MATRIX=write $(PY) -m pytest -n 0 -m slow tests/interop/test_matrix.py

hostile-table: ## Attack delta-spark and deltalake as the tests attack delvec, and write docs/hostile-tables.md again (ARGS: --resume tries what was not tried in 11 minutes)
	@$(call setup_java,test) && $(PY) -m tests.hostile.peers $(ARGS)

migrating-tables: ## Write the tables of calls in docs/migrating.md again
	@$(call setup,test) && DELVEC_MIGRATING_TABLES=write $(PY) -m pytest -n 0 tests/docs/test_migrating.py

snapshots: ## Write the snapshots of the command's help and output again
	@$(call setup_java,test) && DELVEC_WRITE_SNAPSHOTS=1 $(PY) -m pytest -n 0 -m "slow or not slow" tests/cli/test_snapshots.py tests/cli/test_spark_snapshots.py tests/cli/test_help.py

bench: ## Run the benchmarks (NAME: one of them; ARGS: options)
	@$(call setup_java,test) && $(PY) -m benchmarks $(NAME) $(ARGS)

bench-scale: ## Measure operations on metadata of up to 10 million files, and write docs/scale.md (ARGS: options)
	@$(call setup_java,test) && $(PY) -m benchmarks.scale $(ARGS)

clean: ## Remove .venv, caches and build output; tables in a warehouse folder stay
	rm -rf .venv .venv-lowest .venv-readers .cache build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache derby.log
	find src tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +
