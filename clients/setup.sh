#!/bin/sh
# setup.sh FOLDER: copies the tests there and, where package-lock.json has changed since, installs
# the packages they use (npm ci). Nothing is installed anywhere else. Exit code 77: it cannot, for
# a reason outside this repository; one sentence says which, also in FOLDER/skipped.
set -eu
source=$(cd "$(dirname "$0")" && pwd)
node_min=18
mkdir -p "$1"
folder=$(cd "$1" && pwd)
rm -f "$folder/skipped"

skip() {
  echo "SKIPPED: the tests with real clients (clients/): $1" | tee "$folder/skipped"
  exit 77
}

# Where a package came from is each machine's own affair; its hash is what counts.
if grep -q '"resolved"' "$source/package-lock.json"; then
  echo "clients/package-lock.json has 'resolved' fields: in clients/, npm install" \
    "--package-lock-only writes it without them" >&2
  exit 1
fi

command -v node >/dev/null 2>&1 || skip "node is missing; tools/setup.sh clients installs it"
command -v npm >/dev/null 2>&1 || skip "npm is missing; tools/setup.sh clients installs it"
command -v curl >/dev/null 2>&1 || skip "curl is missing; tools/setup.sh clients installs it"
version=$(node --version)
major=${version#v}
major=${major%%.*}
if [ "$major" -lt "$node_min" ]; then
  skip "node is $version, and they need $node_min or newer"
fi

rm -f "$folder"/*.mjs
cp "$source"/*.mjs "$source"/*.jinja "$source"/package.json "$source"/package-lock.json \
  "$source"/.npmrc "$folder"
cd "$folder"
if cmp -s package-lock.json installed.json; then exit 0; fi
rm -f installed.json
if ! npm ci --prefer-offline --fetch-retries=1 --fetch-retry-mintimeout=1000 >npm.log 2>&1; then
  # Whatever else npm complains of is ours to mend, such as a lock that lags behind package.json.
  code=$(sed -n 's/^npm [a-zA-Z!]* code //p' npm.log | head -n 1)
  case $code in
    ENOTFOUND | EAI_AGAIN | ECONN* | E*TIMEDOUT | E*UNREACH | E[45][0-9][0-9] | *TIMEOUT | *CERT*)
      skip "npm cannot reach its registry ($code)" ;;
  esac
  cat npm.log >&2
  exit 1
fi
cp package-lock.json installed.json
