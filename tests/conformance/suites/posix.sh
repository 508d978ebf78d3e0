#!/bin/bash
# Our own POSIX cases, which the public suites miss: see ../posix/__main__.py.
. "$(dirname "$0")/../lib.sh" "$@"

want setfacl # without it, only the cases of acl.py are skipped
debian "$python" python3
# As they come, so that a run cut off keeps its score; tee would outlive us in the mount.
PYTHONDONTWRITEBYTECODE=1 "$python" "$conformance/posix" "$folder" ${CASES:-} 2>"$log" </dev/null |
  tee "$log.cases"
passed=$(grep -c '^ok ' "$log.cases")
failed=$(grep -c '^FAILED ' "$log.cases")
if [ $((passed + failed)) = 0 ]; then fail posix "$(tail -n 1 "$log")"; fi
rm -f "$log.cases"
finish
