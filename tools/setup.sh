#!/bin/sh
# setup.sh [GROUP...]: makes sure that the packages of tools/packages.txt are there (group `build`
# unless told otherwise). Quick and silent when they are. On a system without apt it prints what to
# install instead, unless the build already configures.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
list=$root/tools/packages.txt
groups=${*:-build}

# The lines of the groups asked for, without comments: `name` or `name | name | command:name`.
wanted() {
  awk -v groups="$groups" '
    BEGIN { count = split(groups, names, " "); for (i = 1; i <= count; i++) on[names[i]] = 1 }
    { sub(/#.*/, ""); gsub(/[ \t]+$/, "") }
    /^\[.*\]$/ { group = substr($0, 2, length($0) - 2); next }
    NF && (group in on) { print }' "$list"
}

installed() {
  case $1 in
    command:*) command -v "${1#command:}" >/dev/null 2>&1; return ;;
  esac
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints the lines of which no alternative is installed.
missing() {
  wanted | while read -r line; do
    for package in $(echo "$line" | tr '|' ' '); do
      if installed "$package"; then continue 2; fi
    done
    echo "$line"
  done
}

# The first alternative of each line on stdin that this system's archive has.
choose() {
  while read -r line; do
    chosen=
    for package in $(echo "$line" | tr '|' ' '); do
      # `show` also succeeds, saying nothing, for a name that others merely mention.
      if apt-cache show "$package" 2>/dev/null | grep -q '^Package:'; then
        chosen=$package
        break
      fi
    done
    echo "${chosen:-${line%% *}}"
  done
}

explain_other_system() {
  id=unknown
  if [ -r /etc/os-release ]; then id=$(. /etc/os-release && echo "$ID ${ID_LIKE:-}"); fi
  echo "quire: this system has no apt, so its packages cannot be installed for you."
  echo "What is needed, by its Debian name (tools/packages.txt):"
  wanted | sed 's/^/    /'
  echo "The equivalent here, from memory rather than from a test:"
  case $id in
    *fedora* | *rhel*)
      echo "    sudo dnf install gcc-c++ cmake ninja-build pkgconf-pkg-config boost-devel fmt-devel \\"
      echo "      spdlog-devel cli11-devel openssl-devel libicu-devel pcre2-devel xxhash-devel \\"
      echo "      prometheus-cpp-devel \\"
      echo "      gtest-devel gmock-devel google-benchmark-devel" ;;
    *arch*)
      echo "    sudo pacman -S --needed gcc cmake ninja pkgconf boost fmt spdlog cli11 openssl icu \\"
      echo "      pcre2 xxhash prometheus-cpp gtest benchmark" ;;
    *suse*)
      echo "    sudo zypper install gcc-c++ cmake ninja pkgconf libboost_json-devel fmt-devel \\"
      echo "      spdlog-devel cli11-devel libopenssl-devel libicu-devel pcre2-devel xxhash-devel \\"
      echo "      gtest gmock google-benchmark-devel" ;;
    *)
      echo "    a C++20 compiler (g++ 12+), CMake 3.25+, Ninja, pkg-config, and the development files"
      echo "    of Boost 1.81+, fmt, spdlog, CLI11, OpenSSL, ICU, PCRE2, xxHash, prometheus-cpp,"
      echo "    GoogleTest and Google Benchmark" ;;
  esac
  echo "Then run the same command again."
}

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
  mkdir -p "$root/build"
  if cmake -S "$root" -B "$root/build/probe" -G Ninja >"$root/build/probe.log" 2>&1; then exit 0; fi
  explain_other_system >&2
  echo "(What CMake said: build/probe.log)" >&2
  exit 1
fi

lines=$(missing)
if [ -z "$lines" ]; then exit 0; fi

sudo=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "quire: packages are missing, and installing them needs root or sudo. As root, run:" >&2
    echo "    apt-get update && apt-get install -y $(echo "$lines" | choose | tr '\n' ' ')" >&2
    exit 1
  fi
  sudo=sudo
fi

echo "quire: installing missing packages: $(echo "$lines" | sed 's/ |.*//' | tr '\n' ' ')"
$sudo apt-get update -q
packages=$(echo "$lines" | choose)
# shellcheck disable=SC2086  # one word per package
if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages; then
  echo "quire: apt-get could not install the packages above; tools/packages.txt has the whole list" >&2
  echo "with a reason for each. Once they are there, run the same command again." >&2
  exit 1
fi
