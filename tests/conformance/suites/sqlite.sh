#!/bin/bash
# SQLite in every journal mode: several writers, readers during writes, memory maps, writers killed.
. "$(dirname "$0")/../lib.sh" "$@"

"$python" -c 'import sqlite3' 2>>"$log" || debian "$python" python3
"$python" -c 'import sqlite3' 2>>"$log" || give_up "this python3 has no sqlite3"
for mode in delete truncate persist wal; do
  for kind in writers readers killed bulk; do
    check "$kind-$mode" "$python" "$conformance/sqlite.py" "$kind" "$mode" "$folder"
  done
done
for mode in delete wal; do
  check "maps-$mode" "$python" "$conformance/sqlite.py" maps "$mode" "$folder"
done
check across-modes "$python" "$conformance/sqlite.py" switch wal "$folder"
finish
