#!/bin/sh
# tidy.sh PRESET JOBS [FILE...]: clang-tidy (.clang-tidy) over the files given, or all of src/.
# The preset must have been configured: it says how each file is compiled.
set -eu
cd "$(dirname "$0")/.."
preset=$1
jobs=$2
shift 2
if ! command -v clang-tidy >/dev/null 2>&1; then
  echo "clang-tidy is missing: tools/setup.sh check installs it" >&2
  exit 1
fi
if [ $# -eq 0 ]; then
  # shellcheck disable=SC2046  # no path of ours has a space
  set -- $(git ls-files 'src/*.cc')
fi
printf '%s\0' "$@" | xargs -0 -n 1 -P "$jobs" clang-tidy -p "build/$preset" --quiet
