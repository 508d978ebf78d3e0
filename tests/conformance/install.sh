#!/bin/bash
# install.sh: gets what the suites need and this machine lacks, before anything is mounted.
#
# Debian packages as root, two tools from crates.io into $UVFS_TOOLS. Prints a line for each that is still
# missing, and why: `absent NAME: WHY` where the network may be to blame, `broken NAME: WHY` where the
# registry answers and it could not be installed all the same. Always ends with 0 and in bounded time: a
# network that swallows packages once held a suite until its time limit, and the gate called that a failure.
set -u
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive CARGO_NET_RETRY=1 CARGO_HTTP_TIMEOUT=15
tools=${UVFS_TOOLS:?where tools from crates.io go}
mkdir -p "$tools"
log=$tools/install.log
: >"$log"

# COMMAND PACKAGE VERSION-ON-CRATES.IO
packages="rsync rsync
gcc gcc
make make
find findutils
git git
python3 python3
stress-ng stress-ng
dbench dbench
setfacl acl"
crates="pjdfstest 0.2.2
fsx 0.3.2"

have() { [ -x "$tools/bin/$1" ] || command -v "$1" >/dev/null 2>&1; }
bounded() { timeout --kill-after=5 "$@" >>"$log" 2>&1 </dev/null; }

# Whether the last words are about a connection. What looks like the network's fault is none of the tool's.
network_failed() {
  tail -n 20 "$log" | grep -qiE 'network|download|timed? ?out|resolve|connect|dns|curl|tls|ssl|http'
}

apt=""
while read -r command package; do
  have "$command" && continue
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "absent $command: Debian package $package; not root on Debian"
    continue
  fi
  quick=(-o Acquire::Retries=1 -o Acquire::http::Timeout=15 -o DPkg::Lock::Timeout=60)
  if [ -z "$apt" ]; then
    bounded 90 apt-get "${quick[@]}" update
    apt=updated
  fi
  bounded 180 apt-get "${quick[@]}" install -y --no-install-recommends "$package"
  have "$command" || echo "absent $command: Debian package $package cannot be installed: $(tail -n 1 "$log")"
done <<<"$packages"

while read -r crate version; do
  have "$crate" && continue
  # The quickest build: it is the file system that is slow, not these. The tests' own flags stay away.
  build=(env -u RUSTFLAGS "CARGO_TARGET_DIR=$tools/build" cargo install --quiet --locked --debug)
  bounded 420 "${build[@]}" --root "$tools" "$crate" --version "$version"
  status=$?
  have "$crate" && continue
  why=$(tail -n 1 "$log")
  if [ "$status" != 124 ] && bounded 30 cargo info --quiet "$crate@$version" && ! network_failed; then
    echo "broken $crate: $version of crates.io does not install: $why"
  else
    echo "absent $crate: $version of crates.io cannot be had now: $why"
  fi
done <<<"$crates"
rm -rf "$tools/build"
exit 0
