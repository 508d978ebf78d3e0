#!/bin/bash
# fsx: random reads, writes, maps, truncates, holes and copies, each checked against a model in RAM.
. "$(dirname "$0")/../lib.sh" "$@"

crate fsx 0.3.2
settings=$(mktemp -d)
trap 'rm -rf "$settings"' EXIT

# A mode of fallocate that is missing must show as one failure, not as random ones of every seed.
allocate=2
punch=2
head -c 65536 /dev/zero >probe
fallocate --offset 0 --length 131072 probe 2>>"$log" || allocate=0
fallocate --punch-hole --offset 4096 --length 8192 probe 2>>"$log" || punch=0
check allocates test $allocate = 2
check punches-holes test $punch = 2
rm -f probe

# profile NAME LENGTH LARGEST-OPERATION WEIGHT-OF-MAPS WEIGHT-OF-TRUNCATES
profile() {
  cat >"$settings/$1.toml" <<END
flen = $2
[opsize]
min = 1
max = $3
[weights]
read = 8
write = 12
mapread = $4
mapwrite = $4
truncate = $5
close_open = 1
invalidate = 1
fsync = 1
fdatasync = 1
posix_fadvise = 1
sendfile = 2
copy_file_range = 2
posix_fallocate = $allocate
punch_hole = $punch
END
}
profile page 8192 512 6 6
profile plain 262144 65536 4 4
profile maps 524288 32768 30 3
profile resize 1048576 131072 4 20
profile large 33554432 2097152 2 2

exercise() {
  RUST_BACKTRACE=0 fsx -q -f "$settings/$1.toml" -S "$2" -N "$3" -P "$settings" "$folder/$1-$2"
}
# at_once COUNT OPERATIONS: so many files exercised at the same time.
at_once() {
  local seed jobs=() bad=0
  for seed in $(seq 1 "$1"); do
    exercise plain $((1000 + seed)) "$2" &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do wait "$job" || bad=1; done
  return $bad
}
export settings folder
export -f exercise at_once

for seed in $(pick "11" "11 12 13 14"); do
  for name in page plain maps resize large; do
    operations=$(pick 1500 6000)
    [ $name = large ] && operations=$((operations / 6))
    check "$name-$seed" bash -c "exercise $name $seed $operations"
    rm -f "$folder/$name-$seed"
  done
done
check several-at-once bash -c "at_once $(pick 3 6) $(pick 800 4000)"
finish
