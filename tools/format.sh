#!/bin/sh
# format.sh [--check]: clang-format (.clang-format) over the sources that git knows.
set -eu
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null 2>&1; then
  echo "clang-format is missing: tools/setup.sh check installs it" >&2
  exit 1
fi
mode=-i
if [ "${1:-}" = --check ]; then mode="--dry-run -Werror"; fi
# shellcheck disable=SC2086  # two words
git ls-files -z 'src/*.h' 'src/*.cc' | xargs -0 clang-format $mode
