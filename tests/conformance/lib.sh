# Shared by the suites: a fresh folder, counted cases, a time limit each, the score as last line.
#
# A suite is `suites/NAME.sh DIRECTORY`. It sources this file, then calls:
#   check NAME COMMAND...    one case, judged by the exit status (LIMIT=seconds, 120 by default)
#   skip NAME WHY            a case this machine or file system cannot run, said aloud
#   finish                   removes the folder and prints "N passed, M failed"
#
# QUICK=1 shortens. SUITE_LOG names the file that keeps what the commands said. UVFS_TOOLS is where
# cargo-installed tools lie. Everything else a suite needs comes from Debian packages.

set -u
export LC_ALL=C.UTF-8
suite=$(basename "$0" .sh)
conformance=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { echo "usage: $0 DIRECTORY" >&2; exit 2; }

quick=${QUICK:-}
tools=${UVFS_TOOLS:-$conformance/../../target/tools}
mkdir -p "$tools" 2>/dev/null
tools=$(cd "$tools" 2>/dev/null && pwd || echo /nonexistent)
PATH=$tools/bin:$PATH
python=/usr/bin/python3
log=${SUITE_LOG:-$(mktemp "/tmp/uvfs-$suite-XXXXXX.log")}
passed=0
failed=0
: >"$log"

# pick QUICK FULL: the first with QUICK=1, else the second.
pick() { if [ -n "$quick" ]; then echo "$1"; else echo "$2"; fi; }

pass() { passed=$((passed + 1)); echo "ok $1"; }
fail() { failed=$((failed + 1)); echo "FAILED $1${2:+: $2}"; }
skip() { echo "skipped $1: $2"; }

check() {
  local name=$1 status=0
  shift
  printf '\n== %s: %s\n' "$name" "$*" >>"$log"
  timeout --kill-after=5 "${LIMIT:-120}" "$@" >>"$log" 2>&1 </dev/null || status=$?
  case $status in
    0) pass "$name" ;;
    124 | 137) fail "$name" "not done after ${LIMIT:-120} s" ;;
    *) fail "$name" "$(tail -n 1 "$log" | cut -c 1-160) (exit $status)" ;;
  esac
  return 0
}

finish() {
  cd / || true
  rm -rf "$folder" 2>>"$log"
  if [ -e "$folder" ]; then
    fail remove-everything "$(find "$folder" 2>/dev/null | tail -n 1) is left"
  fi
  if [ "$failed" != 0 ]; then echo "log: $log"; fi
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}

# give_up WHY: the suite cannot run here at all, which is no failure of the file system; but where
# UVFS_MUST_RUN is set (root, /dev/fuse: the gate) it is one of the machine's, and said to be.
give_up() {
  if [ -n "${UVFS_MUST_RUN:-}" ]; then fail "$suite" "$1"; else skip "$suite" "$1"; fi
  finish
}

# absent WHY: a tool is missing. Whoever ran install.sh before knows whether that may be.
absent() {
  if [ -n "${UVFS_INSTALLED:-}" ]; then skip "$suite" "$1"; finish; fi
  give_up "$1"
}

# want COMMAND: whether it is there. By hand, install.sh is run first for all that is missing.
want() {
  if command -v "$1" >/dev/null 2>&1; then return 0; fi
  if [ -z "${UVFS_INSTALLED:-}" ]; then
    UVFS_TOOLS=$tools bash "$conformance/install.sh" >>"$log" 2>&1 </dev/null
    UVFS_INSTALLED=1
  fi
  command -v "$1" >/dev/null 2>&1
}

# debian COMMAND PACKAGE: the same for what the suite cannot do without.
debian() { want "$1" || absent "$1 is missing (Debian package $2)"; }

# crate COMMAND VERSION: the same for a tool from crates.io, kept out of the user's own ~/.cargo/bin.
crate() { want "$1" || absent "$1 $2 of crates.io is missing"; }

root=$(cd "$1" && pwd) || { fail enter "cannot enter $1"; folder=/nonexistent; finish; }
folder=$root/$suite.$$
mkdir "$folder" && chmod 755 "$folder" && cd "$folder" || { fail make-folder "$folder"; finish; }
