#!/bin/bash
# dbench: the calls of a file server's day, replayed by one, four and sixteen clients.
. "$(dirname "$0")/../lib.sh" "$@"

debian dbench dbench
seconds=$(pick 4 10)

# dbench says what went wrong in its output and may still exit with 0.
replay() {
  local out
  out=$(dbench -D "$folder/$1" -t "$seconds" "$1" 2>&1) || { echo "$out"; return 1; }
  echo "$out"
  # Its own start barrier may fail to be made, which is not the file system's doing.
  grep -q '^Throughput' <<<"$out" &&
    ! grep -v 'barrier semaphore' <<<"$out" | grep -iE 'error|failed|expected|unable'
}
export folder seconds
export -f replay

for clients in 1 4 16; do
  mkdir "$clients"
  LIMIT=$((seconds * 8 + 60)) check "clients-$clients" bash -c "replay $clients"
  rm -rf "$clients"
done
grep '^Throughput' "$log" | sed 's/^/note: /'
finish
