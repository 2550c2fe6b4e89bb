#!/bin/sh
# fuzz.sh JOBS SECONDS [NAME...]: builds the libFuzzer targets (src/*/NAME_fuzz.cc) in the asan
# preset and runs each for so many seconds. What one finds stays in build/asan/found/.
set -eu
cd "$(dirname "$0")/.."
jobs=$1
seconds=$2
shift 2
names=$(git ls-files 'src/*_fuzz.cc' | sed 's|.*/||; s|\.cc$||')
if [ $# -gt 0 ]; then names=$*; fi
if [ -z "$names" ]; then
  echo "no fuzzers in src/"
  exit 0
fi
if ! command -v clang++ >/dev/null 2>&1; then
  echo "fuzzers need clang++ and its libFuzzer runtime: tools/setup.sh check installs them" >&2
  exit 1
fi
TARGET=fuzzers tools/build.sh asan "$jobs"

mkdir -p build/asan/found
for name in $names; do
  mkdir -p "build/asan/corpus/$name"
  # Seeds that lie beside the fuzzer, if it has any: src/FOLDER/NAME_seeds/.
  seeds=$(git ls-files "src/*/${name}_seeds/*" | sed 's|/[^/]*$||' | sort -u)
  echo "$name: $seconds s"
  # shellcheck disable=SC2086  # at most one folder
  if ! "build/asan/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
      -print_final_stats=1 -artifact_prefix="build/asan/found/$name-" \
      "build/asan/corpus/$name" $seeds >"build/asan/$name.log" 2>&1; then
    tail -n 60 "build/asan/$name.log" >&2
    echo "$name failed; the input is build/asan/found/$name-*" >&2
    exit 1
  fi
  grep -E "number_of_executed_units|peak_rss_mb" "build/asan/$name.log" | sed 's/^/    /'
done
