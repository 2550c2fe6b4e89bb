# make serve  sets the machine up, builds, and serves the bundled model over HTTP
# make run    the same set-up, and generates text with the bundled model
# make test   the same set-up, builds, and runs every test
# make help   the rest
#
# The build itself is CMake's (CMakePresets.json); this file is the short way there.

PRESET ?= release
PROMPT ?= Once upon a time there was a king who had three sons.
MODEL ?=
CMAKE_FLAGS ?=
JOBS ?= $(shell tools/jobs.sh)
QUIRE_SHARED ?= ../shared
# The bundled model is small: drawing among its likelier tokens keeps it to the point. Other models
# bring their own settings.
RUN_FLAGS ?= $(if $(MODEL),,--temperature 0.7 --top-k 40 --max-tokens 120)
# For example SERVE_FLAGS='--port 8080'.
SERVE_FLAGS ?=

# Prompt and model reach the shell through the environment: quotes and dollars arrive as typed.
export PROMPT MODEL QUIRE_SHARED

.DEFAULT_GOAL := help
.PHONY: help setup build serve run test format format-check tidy clean

help:
	@echo "make serve   set up, build, serve the bundled model over HTTP until Ctrl-C"
	@echo "             MODEL=path another model, SERVE_FLAGS='--port 8080' how"
	@echo "make run     set up, build, generate text with the bundled model"
	@echo "             PROMPT='...' and MODEL=path override what is said and who says it"
	@echo "make test    set up, build, run every test   (PRESET=dev|asan|tsan: another build)"
	@echo "make build   set up and build only"
	@echo "make format  clang-format the sources; format-check only says what it would change"
	@echo "make tidy    clang-tidy over the sources"
	@echo "make clean   remove build/"

setup:
	@tools/setup.sh build $(if $(filter asan tsan,$(PRESET)),check)

build: setup
	@tools/build.sh $(PRESET) $(JOBS) $(CMAKE_FLAGS)

serve: setup
	@TARGET=quire tools/build.sh $(PRESET) $(JOBS) $(CMAKE_FLAGS)
	@exec build/$(PRESET)/quire serve $(SERVE_FLAGS) $${MODEL:+-m "$$MODEL"}

run: setup
	@TARGET=quire tools/build.sh $(PRESET) $(JOBS) $(CMAKE_FLAGS)
	@build/$(PRESET)/quire run $(RUN_FLAGS) $${MODEL:+-m "$$MODEL"} -- "$$PROMPT"

# Without node and npm, or without their registry, all tests but those with real clients run; at
# the end a sentence says so.
test: build
	@tools/setup.sh clients || echo "quire: going on without the tests with real clients" >&2
	@ctest --test-dir build/$(PRESET) -j $(JOBS) --output-on-failure; status=$$?; \
	  cat build/$(PRESET)/clients/skipped 2>/dev/null; exit $$status

format:
	@tools/setup.sh check && tools/format.sh

format-check:
	@tools/setup.sh check && tools/format.sh --check

tidy: build
	@tools/setup.sh check && tools/tidy.sh $(PRESET) $(JOBS)

clean:
	rm -rf build
