#!/bin/sh
# Prints how many compilers may run at once: one per processor, but no more than memory carries at
# 1.5 GiB each (the templates of the JSON and command line libraries need that much).
set -eu
jobs=$(nproc 2>/dev/null || echo 2)
memory_kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null || echo)
# A container may have less than the machine.
if [ -r /sys/fs/cgroup/memory.max ] && read -r limit </sys/fs/cgroup/memory.max; then
  case $limit in
    max) ;;
    *) limit_kib=$((limit / 1024))
       if [ -z "$memory_kib" ] || [ "$limit_kib" -lt "$memory_kib" ]; then memory_kib=$limit_kib; fi ;;
  esac
fi
if [ -n "$memory_kib" ]; then
  fit=$((memory_kib / (1536 * 1024)))
  if [ "$fit" -lt "$jobs" ]; then jobs=$fit; fi
fi
if [ "$jobs" -lt 1 ]; then jobs=1; fi
echo "$jobs"
