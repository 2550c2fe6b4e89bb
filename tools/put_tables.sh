#!/bin/sh
# put_tables.sh NAME TABLES DOCUMENT: puts the file TABLES into DOCUMENT, between the lines that begin
# with "<!-- NAME: begin" and "<!-- NAME: end"; DOCUMENT "-" prints it.
set -eu
name=$1
tables=$2
document=$3
if [ "$document" = - ]; then
  cat "$tables"
  exit
fi
if ! grep -q "^<!-- $name: begin" "$document" || ! grep -q "^<!-- $name: end" "$document"; then
  echo "$document lacks the lines <!-- $name: begin --> and <!-- $name: end -->" >&2
  exit 1
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
awk -v name="$name" -v tables="$tables" '
  index($0, "<!-- " name ": end") == 1 { inside = 0 }
  !inside { print }
  index($0, "<!-- " name ": begin") == 1 {
    inside = 1
    while ((getline line < tables) > 0) print line
  }
' "$document" >"$new"
cat "$new" >"$document"
