#!/bin/bash
# stress-ng, its stressors of names, metadata and locks, each verifying what it sees.
. "$(dirname "$0")/../lib.sh" "$@"

debian stress-ng stress-ng
every="access chmod chown dentry dir dirdeep dirmany filename flock getdent link lockf lockofd locka
  mknod open rename symlink touch utime fstat dup inotify"
some="chmod dentry dir dirdeep flock getdent link lockf lockofd mknod open rename symlink utime inotify"
seconds=$(pick 1 3)

for stressor in $(pick "$some" "$every"); do
  mkdir -m 777 "$stressor"
  LIMIT=$((seconds * 10 + 30)) check "$stressor" stress-ng --temp-path "$folder/$stressor" \
    --timeout "${seconds}s" --verify --abort "--$stressor" 2
  rm -rf "$stressor" 2>>"$log" || fail "$stressor-clean" "cannot remove what it left"
done
finish
