#!/bin/sh
# kv_quality.sh [DOCUMENT]: measures what every KV codec costs in quality and writes the tables into
# DOCUMENT (docs/KV_CODECS.md), between the lines that begin with "<!-- quality: begin" and
# "<!-- quality: end"; "-" prints them. Build first: tools/build.sh release 2.
#
#   QUIRE         the program (build/release/quire)
#   QUIRE_SHARED  where texts and models lie that are too large for the repository (../shared); what
#                 is absent there is left out of the tables, and the tables say so
#   CODECS        what to compare with f32; by default every codec that the program knows
#   QUALITY_BYTES evaluate the first so many bytes of each text (100000)
set -eu
cd "$(dirname "$0")/.."
document=${1:-docs/KV_CODECS.md}
quire=${QUIRE:-build/release/quire}
shared=${QUIRE_SHARED:-../shared}/data
bytes=${QUALITY_BYTES:-100000}
draft=models/draft
probe=models/probe/probe-f16.gguf
cases=models/probe/cases.jsonl
text=models/val.txt
tables=$(mktemp)
trap 'rm -f "$tables"' EXIT

knows() { # CODECS [FLAG...]: the program can run with them
  codecs=$1
  shift
  "$quire" eval longgen "$text" -m "$draft" --prompts 1 --prompt-len 2 --tokens 1 \
    --kv-cache-dtype "$codecs" "$@" >/dev/null 2>&1
}
known() { # those of a list, separated by spaces, that the program knows: separated by commas
  list=
  for codec in "$@"; do
    if knows "$codec"; then list=${list:+$list,}$codec; fi
  done
  echo "$list"
}
has_flag() { "$quire" eval perplexity --help | grep -q -e "$1"; }
# Each token is computed once and scored with 256 tokens before it: llama.cpp's windows at -c 512.
perplexity() {
  "$quire" eval perplexity --max-bytes "$bytes" "$@"
}
windows="--context 512 --stride 512 --min-context 256"
say() { printf '%s\n' "$@"; }
# The rows of the first table that a command prints, f32's left out, with a name of their own.
rows() { # SUFFIX COMMAND...
  suffix=$1
  shift
  "$@" | awk -v suffix="$suffix" '
    /^\|/ && ++line > 2 && $2 != "f32" { sub(/^\| [^ ]+/, "&" suffix); print }
    !/^\|/ && line > 0 { exit }'
}
header() { "$@" | head -2; }

codecs=${CODECS:-$(known f16 bf16 fp8_e4m3 fp8_e5m2 int8 int4 k=int8,v=int4 kivi4 kivi2)}
# Below 8 bits: the ones that the ablations are about.
coarse=$(known int4 kivi4 kivi2)
sealed=$(known kivi4 kivi2)

perplexity_section() {
  say "### Perplexity" "" \
    "Rise over f32 in the same windows, with its standard error; KL divergence from f32's" \
    "distribution, mean and 99th percentile, in nats; how often the most likely token is f32's." ""
  say "The bundled model (Q8_0 weights) on held-out prose, \`$text\`. Its activations are rounded" \
    "to 8 bits, so any change, however small, flips some roundings: f16's row is what that alone" \
    "amounts to." ""
  # shellcheck disable=SC2086  # several words
  perplexity "$text" $windows --kv-cache-dtype "$codecs"
  say "" "The draft model, whose weights are f32, on the same text:" ""
  # shellcheck disable=SC2086
  perplexity "$text" -m "$draft" $windows --kv-cache-dtype "$codecs"
  wikitext=$shared/text/wikitext2-test.txt
  if [ -f "$wikitext" ]; then
    say "" "The bundled model on the first $bytes bytes of WikiText-2's test text:" ""
    # shellcheck disable=SC2086
    perplexity "$wikitext" $windows --kv-cache-dtype "$codecs"
  else
    say "" "(WikiText-2 was not there.)"
  fi
  stories=$shared/models/stories260K.gguf
  if [ -f "$stories" ]; then
    residual=
    if has_flag --kv-residual; then residual="--kv-residual 32"; fi
    for stories_text in "$text" "$wikitext"; do
      [ -f "$stories_text" ] || continue
      say "" "stories260K (context 128, heads of 8 channels) on $(basename "$stories_text"):" ""
      stories_windows="--context 128 --stride 128 --min-context 64"
      # shellcheck disable=SC2086
      perplexity "$stories_text" -m "$stories" $stories_windows --kv-cache-dtype "$codecs" |
        sed '/^$/,$d'
      # With the default residual nothing of a window of 128 is ever sealed.
      if [ -n "$residual" ] && [ -n "$sealed" ]; then
        # shellcheck disable=SC2086
        rows ", residual 32" perplexity "$stories_text" -m "$stories" $stories_windows $residual \
          --kv-cache-dtype "$sealed"
      fi
    done
  else
    say "" "(stories260K was not there.)"
  fi
}

recall_section() {
  say "" "### Recall" "" \
    "The probe model (models/README.md) is asked for facts hidden in contexts of 250, 500 and 1000" \
    "tokens: the first five questions of each context, then all of them." ""
  "$quire" eval recall -m "$probe" --cases "$cases" --questions 5 --kv-cache-dtype "$codecs" |
    sed '/^$/,$d'
  say ""
  "$quire" eval recall -m "$probe" --cases "$cases" --kv-cache-dtype "$codecs"
}

longgen_section() {
  say "" "### Long generation" "" \
    "Greedy continuations: tokens equal to f32's before the first that differs, and agreement. By" \
    "the bundled model, then by the draft model." ""
  "$quire" eval longgen "$text" --kv-cache-dtype "$codecs" | sed '/^$/,$d'
  say ""
  "$quire" eval longgen "$text" -m "$draft" --kv-cache-dtype "$codecs"
}

# One row per setting in a table of perplexity, then in one of recall.
ablation() { # TITLE, then lines "SUFFIX|CODECS|FLAGS" on stdin
  settings=$(cat)
  say "" "$1" ""
  for measure in perplexity recall; do
    if [ $measure = perplexity ]; then
      # shellcheck disable=SC2086,SC2317  # several words; called by way of rows
      measure_with() { perplexity "$text" -m "$draft" $windows "$@"; }
    else
      say ""
      # shellcheck disable=SC2317
      measure_with() { "$quire" eval recall -m "$probe" --cases "$cases" "$@"; }
    fi
    first=yes
    say "$settings" | while IFS='|' read -r suffix list flags; do
      # shellcheck disable=SC2086
      knows "$list" $flags || continue
      if [ $first = yes ]; then
        if [ $measure = perplexity ]; then
          header perplexity "$text" -m "$draft" --max-bytes 4000
        else
          header "$quire" eval recall -m "$probe" --cases "$cases" --questions 1
        fi
        first=no
      fi
      # shellcheck disable=SC2086
      rows "$suffix" measure_with --kv-cache-dtype "$list" $flags
    done
  done
}

ablation_section() {
  [ -n "$coarse" ] || return 0
  say "" "### Ablations" "" \
    "On the draft model's text (f32 weights) and the probe model's cases, all questions."
  if has_flag --kv-residual; then
    for residual in 0 32 128; do
      say ", residual $residual|$coarse|--kv-residual $residual"
    done | ablation "Newest tokens in f16 (\`--kv-residual\`):"
  fi
  if has_flag --kv-sink-tokens; then
    for sinks in 0 4; do
      say ", $sinks sinks|$coarse|--kv-sink-tokens $sinks"
    done | ablation "First tokens in f16 (\`--kv-sink-tokens\`):"
  fi
  if has_flag --kv-rotation; then
    for planes in both keys values none; do
      say ", $planes rotated|int4|--kv-residual 0 --kv-rotation $planes"
    done | ablation "Hadamard rotation (\`--kv-rotation\`), every token encoded at once:"
  fi
  { say "|kivi4|"; say "|k=int4,v=kivi4|--kv-residual 128"; say "|k=kivi4,v=int4|"; } |
    ablation "Keys per channel (kivi4) or per token and rotated (int4), and the same for values:"
}

{
  say "Made by \`tools/kv_quality.sh\` ($("$quire" --version))." ""
  perplexity_section
  recall_section
  longgen_section
  ablation_section
} >"$tables"

tools/put_tables.sh quality "$tables" "$document"
