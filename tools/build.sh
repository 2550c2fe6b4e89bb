#!/bin/sh
# build.sh PRESET JOBS [CMAKE FLAG...]: configures (first time, or when flags are given) and builds
# a preset, quietly unless something is wrong. TARGET=name builds only that target.
set -eu
cd "$(dirname "$0")/.."
preset=$1
jobs=$2
shift 2
directory=build/$preset
if [ ! -f "$directory/build.ninja" ] || [ $# -gt 0 ]; then
  launcher=
  if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
  mkdir -p build
  # shellcheck disable=SC2086  # empty or one word
  if ! cmake --preset "$preset" $launcher "$@" >"build/$preset.log" 2>&1; then
    cat "build/$preset.log" >&2
    exit 1
  fi
fi
# Redirected, ninja would print a line per file; on a terminal it keeps to one.
quiet=
if [ ! -t 1 ]; then quiet=--quiet; fi
# shellcheck disable=SC2086  # empty or one word
exec cmake --build "$directory" -j "$jobs" ${TARGET:+--target "$TARGET"} -- $quiet
