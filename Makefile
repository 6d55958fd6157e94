# A thin face over CMake and Ninja; `make help` lists the targets.
BUILD := build
# What `make test-all` emulates (scripts/run-tests, MACHINES).
MACHINES := $(if $(filter x86_64,$(shell uname -m)),x86-64 aarch64)
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja $(STRICT) >$(BUILD)/configure.log || { cat $(BUILD)/configure.log; exit 1; }

# Warnings are errors from the first test of a build folder on: who only builds or runs is not stopped by what a
# newer compiler warns of. A compiler that is known to warn of nothing has them from the first build on, so that the
# tests need not compile all of it again.
STRICT = $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DCOTAN_WERROR=KNOWN)
test: STRICT := -DCOTAN_WERROR=ON

.DEFAULT_GOAL := build
.PHONY: run test test-all test-sanitize check format build bench parity fuzz docs clean help

run: ## install what is missing, build, train a small GPT on this project's own text, sample from it
	@scripts/setup run
	@mkdir -p $(BUILD) && $(CONFIGURE)
	@cmake --build $(BUILD) --target program
	@scripts/run

test: ## install what is missing, build, run every test; closes with `N passed, N failed, N skipped`
	@scripts/setup test
	@scripts/venv
	@mkdir -p $(BUILD) && $(CONFIGURE)
	@cmake --build $(BUILD)
	@scripts/run-tests --build $(BUILD) --checks $(EMULATED:%=--machine %) $(DEVICE:%=--device %) $(ONLY)

test-all: ## the same, with Go and Rust programs, every call of a save, and units and ops on x86-64 without AVX and on aarch64, emulated
	@scripts/setup test-all
	@for machine in $(filter-out x86-64,$(MACHINES)); do \
	    cmake -S . -B build-$$machine -G Ninja --toolchain cmake/$$machine.cmake -DCMAKE_BUILD_TYPE=Release \
	        -DCOTAN_WERROR=ON >/dev/null && \
	    cmake --build build-$$machine --target machine_tests || exit 1; done
	@COTAN_TEST_ALL=1 $(MAKE) --no-print-directory test EMULATED="$(MACHINES)" DEVICE=opencl

test-sanitize: ## the tests with the address and undefined-behaviour sanitizers, in build-sanitize; TSAN=1: of threads, in build-tsan
ifdef TSAN
	@scripts/setup test-tsan
	@scripts/venv
	@cmake -S . -B build-tsan -G Ninja -DCOTAN_TSAN=ON -DCOTAN_WERROR=ON -DCMAKE_C_COMPILER=clang \
	    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" >/dev/null
	@cmake --build build-tsan --target $$(scripts/run-tests --build build-tsan --targets $(ONLY))
	@scripts/run-tests --build build-tsan --timeout 2400 $(ONLY)
else
	@scripts/setup test
	@scripts/venv
	@cmake -S . -B build-sanitize -G Ninja -DCOTAN_SANITIZE=ON -DCOTAN_WERROR=ON -DCMAKE_BUILD_TYPE=Debug \
	    -DCMAKE_C_FLAGS_DEBUG="-O1 -g" >/dev/null
	@cmake --build build-sanitize
	@scripts/run-tests --build build-sanitize --timeout 1200 $(ONLY)
endif

fuzz: ## random graphs with new seeds, libFuzzer on the readers of files: TIME=60 seconds each; ONLY=graphs, ONLY=npy
	@scripts/setup test
	@mkdir -p $(BUILD) && $(CONFIGURE)
	@cmake --build $(BUILD) --target tests_fuzz_test_random_graphs_slow
	@scripts/fuzz $(or $(TIME),60) $(ONLY)

check: ## layers, format, derived pages and a compilation with clang; no tests
	@scripts/check-layers
	@scripts/check-format
	@scripts/check-docs
	@scripts/check-clang

format: ## lay out every C file with clang-format
	@scripts/check-format --fix

build: ## compile the library, the program, the examples and the tests into build/
	@scripts/setup run
	@mkdir -p $(BUILD) && $(CONFIGURE)
	@cmake --build $(BUILD)
	@sed -n 's/^-- The tests are not built/The tests are not built/p' $(BUILD)/configure.log

bench: build ## ours and other libraries in turns: ROWS="matmul softmax" (all), PAIRS=10, THREADS=2, ARGS="--cases 256x"; into bench/results, untracked
	@scripts/setup bench
	@scripts/bench $(BUILD) $(ROWS) $(PAIRS:%=--pairs %) $(THREADS:%=--threads %) $(ARGS)

parity: build ## compare with PyTorch (Debian's python3-torch will do)
	@scripts/setup parity
	@scripts/parity $(BUILD)

docs: ## write the pages that are derived from the sources
	@scripts/make-docs

clean: ## remove everything built (.venv stays)
	rm -rf build build-clang build-sanitize build-tsan build-fuzz build-aarch64

help: ## this list
	@echo "Cotan: deep learning in C. The targets of make:"
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' Makefile | \
	    while IFS='|' read -r name text; do printf '    %-14s %s\n' "$$name" "$$text"; done
	@echo "ONLY=word runs only the tests whose path contains the word: make test ONLY=base"
	@echo "To install what is built: cmake --install build --prefix DIR (DESTDIR=... is obeyed)"
