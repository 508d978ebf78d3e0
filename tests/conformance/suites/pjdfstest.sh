#!/bin/bash
# pjdfstest: some four hundred POSIX cases of names, modes, owners, links and times. Needs root.
. "$(dirname "$0")/../lib.sh" "$@"

[ "$(id -u)" = 0 ] || give_up "acts as several users, so it needs root"
crate pjdfstest 0.2.2

# Two users without rights: nobody, and a second one that no other suite uses, nor this one beside itself
# on another backend. One that was there before stays.
second=uvfs-$(basename "$root" | tr -cd 'a-z0-9-' | cut -c 1-24)
for _ in 1 2 3 4 5; do
  id "$second" >/dev/null 2>&1 && break
  # Refused while another one writes the list of users.
  if useradd --system --no-create-home --shell /usr/sbin/nologin "$second" >>"$log" 2>&1; then
    trap 'userdel "$second" >>"$log" 2>&1 || { sleep 1; userdel "$second" >>"$log" 2>&1; }' EXIT
    trap 'exit 1' INT TERM HUP
  else
    sleep 1
  fi
done
id "$second" >>"$log" 2>&1 || give_up "cannot make the user $second"

# Renames across file systems need another one: the first place that is not this one.
other=
for place in ${OTHER_FILE_SYSTEM:-} /dev/shm /tmp /var/tmp "$tools"; do
  [ -w "$place" ] && [ "$(stat -c %d "$place")" != "$(stat -c %d "$folder")" ] || continue
  other=$(mktemp -d "$place/uvfs-other-XXXXXX") && break
done
[ -n "$other" ] || give_up "found no second file system"
chmod 755 "$other"

settings=$(mktemp)
cat >"$settings" <<END
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["$second", "$(id -gn "$second")"]]
END

# It binds sockets by their whole path, and their address ends at 108 bytes: so the folder is shown
# under a short name, in a mount namespace that goes when the command does.
run() {
  RUST_BACKTRACE=0 timeout --kill-after=5 "$(pick 150 400)" \
    "$@" pjdfstest --configuration-file "$settings" --path "$seen" --secondary-fs "$other"
}
short=$(mktemp -d /tmp/XXXXXX)
renamed='mount --bind "$0" "$1" && shift && exec "$@"'
if unshare --mount sh -c "$renamed" "$folder" "$short" true 2>/dev/null; then
  seen=$short
  run unshare --mount sh -c "$renamed" "$folder" "$short" >"$log" 2>&1 </dev/null
else
  seen=$folder
  run >"$log" 2>&1 </dev/null
fi
status=$?
rm -rf "$settings" "$other"
rmdir "$short"

# "Summary: 0 failed, 13 skipped, 385 passed, 0 filtered" in some order; a case ends in FAILED.
summary=$(grep -a '^Summary:' "$log" | tail -n 1)
count() { sed -nE "s/.*[^0-9]([0-9]+) $1.*/\1/p" <<<"$summary"; }
if [ -z "$summary" ]; then
  fail pjdfstest "ended without a summary (exit $status): $(tail -n 1 "$log" | cut -c 1-160)"
  finish
fi
grep -aE '[[:space:]]FAILED$' "$log" | awk '{ print "FAILED " $1 }'
echo "$summary"
passed=$(count passed)
failed=$(count failed)
finish
