#!/bin/sh
# kv_speed.sh [DOCUMENT]: measures how fast attention and a whole decode step are with every KV codec
# and writes the tables into DOCUMENT (docs/KV_CODECS.md), between the lines that begin with
# "<!-- speed: begin" and "<!-- speed: end"; "-" prints them. Takes about three minutes, on a machine
# that does nothing else. Build first: tools/build.sh release 2.
#
#   BUILD   where the benchmarks are (build/release)
#   ROUNDS  each is measured so many times, in random order; the fastest counts (3)
set -eu
cd "$(dirname "$0")/.."
document=${1:-docs/KV_CODECS.md}
build=${BUILD:-build/release}
rounds=${ROUNDS:-3}
threads=$(nproc)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

measure() { # BENCHMARK FILTER
  "$build/$1" --benchmark_filter="$2" --benchmark_format=csv --benchmark_repetitions="$rounds" \
    --benchmark_enable_random_interleaving=true 2>/dev/null
}
# A row per codec, a column per context.
table() { # attention or step
  awk -F, -v kind="$1" '
    function plain(text) { gsub(/"/, "", text); return text }
    /^name,/ { for (i = 1; i <= NF; ++i) at[plain($i)] = i }
    /real_time",/ {
      split(plain($1), part, "/")
      for (i in part) if (part[i] ~ /^context:/) context = substr(part[i], 9)
      codec = part[1] == "step" ? part[2] : part[5]
      known[codec] = 1
      gbs = $(at["GB/s"]) + 0
      if (gbs > best[codec, context]) { best[codec, context] = gbs; share[codec, context] = $(at["share"]) }
      ms = $(at["best_ms"]) + 0
      if (!((codec, context) in fastest) || ms < fastest[codec, context]) fastest[codec, context] = ms
      flops = $(at["GFLOP/s"]) + 0
      if (flops > most[codec, context] + 0) most[codec, context] = flops
    }
    END {
      print "| codec | 8k tokens | 32k | 128k |"
      print "|---|---|---|---|"
      n = split("f32 f16 bf16 fp8_e4m3 fp8_e5m2 int8 int4 kivi4 kivi2", order, " ")
      for (i = 1; i <= n; ++i) {
        codec = order[i]
        if (!(codec in known)) continue
        line = "| " codec
        for (c = 8192; c <= 131072; c *= 4) {
          cell = kind == "attention" \
            ? sprintf("%.2f x f16, %.1f GB/s, %.0f %%", most[codec, c] / most["f16", c], best[codec, c], 100 * share[codec, c]) \
            : sprintf("%.2f x f16, %.1f ms", fastest["f16", c] / fastest[codec, c], fastest[codec, c])
          line = line " | " cell
        }
        print line " |"
      }
    }'
}

{
  echo "Made by \`tools/kv_speed.sh\` on $(grep -m1 '^model name' /proc/cpuinfo | sed 's/.*: //'), $threads threads;"
  echo "the fastest of $rounds rounds in random order. Llama-3.1-8b's heads: 32 query heads, 8 KV heads of 128"
  echo "channels; one sequence."
  echo
  measure kvstore_bench "^decode/32/8/128/.*/block:32/.*/threads:$threads/" >"$work/attention"
  echo "Attention alone: speed, encoded bytes read, and what share that is of the $(
    grep -m1 "read by $threads threads" "$work/attention" | sed 's/ceiling: //; s/ read.*//') that"
  echo "$threads threads can read."
  echo
  table attention <"$work/attention"
  echo
  echo "A whole decode step without logits, of a made model of four such layers in Q4_0:"
  echo
  measure model_bench '^step/' >"$work/step"
  table step <"$work/step"
} >"$work/tables"

tools/put_tables.sh speed "$work/tables" "$document"
