#!/bin/sh
# eviction_quality.sh [DOCUMENT]: measures what giving tokens up costs in quality and writes the tables
# into DOCUMENT (docs/EVICTION.md), between the lines that begin with "<!-- eviction: begin" and
# "<!-- eviction: end"; "-" prints them. Build first: tools/build.sh release 2. On two idle cores it
# takes about 6 minutes.
#
#   QUIRE          the program (build/release/quire)
#   QUIRE_SHARED   where texts lie that are too large for the repository (../shared)
#   EVICTION_BYTES evaluate the first so many bytes of the text, in windows (24000)
#   STREAM_TOKENS  length of a stream (100000; models/val.txt has 39670)
#   STREAM_SAMPLE  tokens of it that are also computed afresh (500)
#   SECTIONS       which tables to make ("budget codec recall stream")
set -eu
cd "$(dirname "$0")/.."
document=${1:-docs/EVICTION.md}
quire=${QUIRE:-build/release/quire}
shared=${QUIRE_SHARED:-../shared}/data
bytes=${EVICTION_BYTES:-24000}
stream_tokens=${STREAM_TOKENS:-100000}
stream_sample=${STREAM_SAMPLE:-500}
probe=models/probe/probe-f16.gguf
cases=models/probe/cases.jsonl
text=models/val.txt
policies=streaming,h2o,snapkv,tova
tables=$(mktemp)
trap 'rm -f "$tables"' EXIT

say() { printf '%s\n' "$@"; }
# The command's tables are of the run's own speed too; what is compared here is quality.
without_speed() { awk '/^\|/ { sub(/\|[^|]*\|$/, "|") } { print }'; }
# A table's rows.
body() { awk '/^\|/ && ++line > 2 { print } !/^\|/ && line > 0 { exit }'; }
perplexity() { # CONTEXT PROMPT FLAG...
  context=$1
  prompt=$2
  shift 2
  "$quire" eval perplexity "$text" --max-bytes "$bytes" --context "$context" --prompt "$prompt" \
    --kv-eviction "$policies" "$@" | without_speed
}
recall() { "$quire" eval recall -m "$probe" --cases "$cases" "$@"; }
# Sealed codecs give tokens up by the residual group: the smallest comes closest to the budget.
sealed="--kv-cache-dtype int4,kivi2 --kv-residual 32"

budget_section() {
  budgets=0.05,0.1,0.2,0.5
  say "### Perplexity against budget" "" \
    "The bundled model on held-out prose, \`$text\`, f16: prompts of 320 tokens, then 192 tokens" \
    "scored one by one. The rise is over the full cache, with its standard error." ""
  perplexity 512 320 --kv-budget $budgets
  say "" "Prompts of 640 tokens, then 384. So far back this model finds nothing of use: its full cache" \
    "predicts worse than one of 256 tokens (models/MODEL.md has its losses by position), and rises" \
    "may be negative." ""
  perplexity 1024 640 --kv-budget $budgets
}

# A fifth of 320 is 64: all codecs can keep as many exactly.
codec_section() {
  say "### A fifth of the prompt, with every codec" "" \
    "Prompts of 320 tokens at a budget of 20 %. int4 and kivi2 have residual groups of 32 tokens here," \
    "so they hold up to 31 tokens more; the rise is over the full cache of the same codec." ""
  perplexity 512 320 --kv-cache-dtype f16,int8 --kv-budget 0.2 | sed '/^$/,$d'
  # shellcheck disable=SC2086  # several words
  perplexity 512 320 $sealed --kv-budget 0.2 | body
}

recall_section() {
  say "### Recall" "" \
    "The probe model (models/README.md) at a budget of 20 % of contexts of 250, 500 and 1000 tokens," \
    "all questions. A question comes after the tokens are given up; int4 and kivi2 as above." ""
  f16=$(recall --kv-cache-dtype f16,int8 --kv-eviction "$policies" --kv-budget 0.2)
  say "$f16" | sed '/^$/,$d'
  # shellcheck disable=SC2086
  recall $sealed --kv-eviction "$policies" --kv-budget 0.2 | body
  say "" "With f16, by length of the context and depth of the fact:" ""
  say "$f16" | sed '1,/^Right answers/d' | grep -e '^| codec' -e '^|--' -e '^| f16'
}

stream() { # FILE SINKS
  "$quire" eval streaming "$1" --tokens "$stream_tokens" --kv-budget 256 --kv-sinks "$2" \
    --recomputed "$stream_sample"
}
stream_section() {
  say "### A stream" "" \
    "The bundled model, whose context is 1024, reads a text as one sequence that keeps 256 tokens." \
    "*Afresh* is a server without eviction: each token after computing the newest 256 again." ""
  long=$shared/text/wikitext2-test.txt
  if [ -f "$long" ]; then
    say "WikiText-2's test text, of which this model understands little:" ""
    stream "$long" 0,4
    say ""
  else
    say "(WikiText-2 was not there.)" ""
  fi
  say "\`$text\`, prose such as it was trained on:" ""
  stream "$text" 0,1,4
}

{
  say "Made by \`tools/eviction_quality.sh\` ($("$quire" --version))." ""
  for section in ${SECTIONS:-budget codec recall stream}; do
    "${section}_section"
    say ""
  done
} >"$tables"

tools/put_tables.sh eviction "$tables" "$document"
