#!/bin/sh
# Usage: servers.sh UVFS FOLDER. Installs two S3 servers below FOLDER, starts each on loopback, and uses a bucket of it
# through a mount: what is written is there again after a new mount, and what is removed is gone.
set -e
uvfs=$1 folder=$2
versitygw=github.com/versity/versitygw/cmd/versitygw@v1.0.14
moto='moto[server]==5.1.4'
mkdir -p "$folder/bin"
[ -x "$folder/bin/versitygw" ] || GOBIN=$folder/bin go install "$versitygw"
[ -x "$folder/moto/bin/moto_server" ] || { python3 -m venv "$folder/moto" && "$folder/moto/bin/pip" install -q "$moto"; }

work=$(mktemp -d)
server=
end() {
  status=$?
  "$uvfs" unmount "$work/mount" 2>/dev/null || true
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
  exit "$status"
}
trap end EXIT
export AWS_ACCESS_KEY_ID=night AWS_SECRET_ACCESS_KEY=nightnight AWS_REGION=us-east-1
mkdir "$work/mount" "$work/store"

# Waits until something listens on port $1, or the server ends.
listens() {
  until python3 -c "import socket; socket.create_connection(('127.0.0.1', $1))" 2>/dev/null; do
    kill -0 "$server" || exit 1
    sleep 0.1
  done
}

# The use of a bucket at the endpoint $1.
used() {
  source="s3://night?endpoint=$1"
  "$uvfs" mount "$source" "$work/mount" --daemon
  mkdir -p "$work/mount/a/b"
  for number in $(seq 40); do echo "$number" > "$work/mount/a/b/file$number"; done
  head -c 20000000 /dev/urandom > "$work/large"
  cp "$work/large" "$work/mount/a/large"
  mv "$work/mount/a/b/file1" "$work/mount/a/moved"
  rm "$work/mount/a/b/file2"
  "$uvfs" unmount "$work/mount"
  "$uvfs" mount "$source" "$work/mount" --daemon
  cmp "$work/large" "$work/mount/a/large"
  test "$(cat "$work/mount/a/moved")" = 1
  test "$(ls "$work/mount/a/b" | wc -l)" = 38
  test "$(cat "$work/mount/a/b/file40")" = 40
  rm -r "$work/mount/a"
  test -z "$(ls "$work/mount")"
  "$uvfs" unmount "$work/mount"
  echo "used: $1"
}

mkdir "$work/store/night"
ROOT_ACCESS_KEY=night ROOT_SECRET_KEY=nightnight "$folder/bin/versitygw" --port 127.0.0.1:7461 posix "$work/store" > "$work/log" 2>&1 &
server=$!
listens 7461
used http://127.0.0.1:7461
kill "$server"
wait "$server" 2>/dev/null || true
"$folder/moto/bin/moto_server" --host 127.0.0.1 --port 7462 > "$work/log" 2>&1 &
server=$!
listens 7462
python3 -c "import urllib.request as r; r.urlopen(r.Request('http://127.0.0.1:7462/night', method='PUT'))"
used http://127.0.0.1:7462
