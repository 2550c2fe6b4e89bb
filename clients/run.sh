#!/bin/sh
# run.sh FOLDER NAME: runs NAME.test.mjs in the folder that setup.sh has made. QUIRE_BINARY names
# the program under test.
set -eu
folder=$1
if [ -f "$folder/skipped" ]; then
  cat "$folder/skipped"
  exit 77
fi
QUIRE_SOURCE=$(cd "$(dirname "$0")/.." && pwd)
export QUIRE_SOURCE
cd "$folder"
exec node "$2.test.mjs"
