#!/bin/bash
# Whole trees: copied by tar, cp and rsync and compared with all their attributes; built by make and
# cargo; many names, odd names, deep folders, holes, hard links.
. "$(dirname "$0")/../lib.sh" "$@"

debian rsync rsync
debian gcc gcc
debian make make
debian find findutils

# make_tree: a tree with everything a copy must carry.
make_tree() {
  "$python" - <<'P'
import os, random
source = random.Random(5)
os.mkdir("original")
os.chdir("original")
for number in range(int(os.environ["files"])):
    folder = "d%d/e%d" % (number % 13, number % 5)
    os.makedirs(folder, exist_ok=True)
    name = "%s/f%d" % (folder, number)
    with open(name, "wb") as out:
        out.write(source.randbytes(source.choice([0, 1, 100, 4096, 5000, 70000])))
    os.chmod(name, source.choice([0o644, 0o600, 0o755, 0o400, 0o2755]))
    when = source.randrange(10**18, 17 * 10**17)
    os.utime(name, ns=(when, when + 123456789))
    if number % 10 == 0:
        os.link(name, name + ".hard")
    if number % 7 == 0:
        os.symlink("../e%d/f%d" % (number % 5, number), name + ".soft")
os.symlink("nowhere", "dangling")
os.mkfifo("pipe", 0o640)
with open("holes", "wb") as out:
    out.truncate(8 << 20)
    os.pwrite(out.fileno(), b"middle", 4 << 20)
os.mkdir("empty", 0o1770)
if os.geteuid() == 0:
    os.chown("d1/e1", 1234, 2345)
    os.chown("dangling", 1234, 2345, follow_symlinks=False)
for folder, folders, files in os.walk(".", topdown=False):
    special = [name for name in files if not os.path.isfile(os.path.join(folder, name)) or os.path.islink(os.path.join(folder, name))]
    for name in folders + special:
        when = source.randrange(10**18, 17 * 10**17)
        os.utime(os.path.join(folder, name), ns=(when, when), follow_symlinks=False)
P
}
# compare ONE TWO: the same names, types, modes, owners, times, sizes, links and bytes.
compare() {
  "$python" - "$1" "$2" <<'P'
import os, stat, sys
def describe(root):
    found, links = {}, {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, root)
            seen = os.lstat(path)
            what = [oct(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_mtime_ns]
            if not stat.S_ISDIR(seen.st_mode):
                what += [seen.st_size, seen.st_nlink]
                links.setdefault(seen.st_ino, []).append(key)
            if stat.S_ISLNK(seen.st_mode):
                what.append(os.readlink(path))
            if stat.S_ISREG(seen.st_mode):
                what.append(hash(open(path, "rb").read()))
            found[key] = what
    return found, sorted(sorted(keys) for keys in links.values())
(one, links_one), (two, links_two) = describe(sys.argv[1]), describe(sys.argv[2])
different = [key for key in sorted(one.keys() | two.keys()) if one.get(key) != two.get(key)]
for key in different[:10]:
    print(key, one.get(key), two.get(key))
if links_one != links_two:
    print("hard links differ")
sys.exit(bool(different) or links_one != links_two)
P
}
with_tar() { mkdir tarred && tar -C original --format=posix --sparse -cf - . | tar -C tarred -xpf - ; }
tar_compares() { tar --format=posix -cf tree.tar original && tar -df tree.tar; }
with_rsync() { rsync -aHS original/ synced/; }
rsync_again() { [ -z "$(rsync -aH --itemize-changes --checksum original/ synced/ | grep -v '^\.d')" ]; }
packed() { gzip -k tree.tar && gzip -dc tree.tar.gz | cmp - tree.tar; }
hard_links() {
  echo text >link0
  for number in $(seq 1 60); do ln link0 "link$number" || return 1; done
  [ "$(stat -c %h link30)" = 61 ] || return 1
  for number in $(seq 0 59); do rm "link$number" || return 1; done
  [ "$(stat -c %h link60)" = 1 ] && grep -q text link60
}
sparse() {
  truncate -s 2G sparse && printf tail | dd of=sparse bs=1 seek=2147483644 conv=notrunc status=none
  [ "$(stat -c %s sparse)" = 2147483648 ] && [ "$(du -k sparse | cut -f 1)" -lt 1024 ] || return 1
  cp --sparse=always sparse sparse2 && [ "$(tail -c 4 sparse2)" = tail ] || return 1
  [ "$(du -k sparse2 | cut -f 1)" -lt 1024 ] && cmp -n 1000000 sparse sparse2
}
many_names() {
  mkdir many && cd many || return 1
  seq -f 'a-rather-long-name-of-number-%06g' "$many" | xargs touch
  [ "$(ls -A | wc -l)" = "$many" ] && [ -z "$(ls -A | sort | uniq -d)" ] || return 1
  find . -type f -name '*3' -delete
  [ "$(ls -A | wc -l)" = "$((many * 9 / 10))" ] || return 1
  cd .. && rm -r many && [ ! -e many ]
}
deep() {
  local level
  mkdir deep && cd deep || return 1
  for level in $(seq 150); do mkdir "level-$level" && cd "level-$level" || return 1; done
  echo bottom >file && cd "$folder" || return 1
  [ "$(find deep -type d | wc -l)" = 151 ] && [ "$(find deep -name file -exec cat {} +)" = bottom ] || return 1
  mv deep deeper && [ "$(find deeper -type f | wc -l)" = 1 ] && rm -r deeper
}
odd_names() {
  mkdir odd && cd odd || return 1
  touch -- $'line\nbreak' ' blank' '*' '-rf' '?' 'ünïcödé' $'\x01\xff\xfe' '\' '...' "'" '"' '$(x)'
  [ "$(find . -mindepth 1 -printf x | wc -c)" = 12 ] || return 1
  [ -e $'\x01\xff\xfe' ] && [ -e $'line\nbreak' ] && cp -a . ../odd2 && cd .. && rm -r odd odd2
}
c_project() {
  "$python" - <<'P'
import os
os.mkdir("c")
count = 40
with open("c/all.h", "w") as header:
    for number in range(count):
        header.write("int part%d(int);\n" % number)
        with open("c/part%d.c" % number, "w") as part:
            part.write('#include "all.h"\nint part%d(int x) { return x + %d; }\n' % (number, number))
with open("c/main.c", "w") as main:
    main.write('#include "all.h"\n#include <stdio.h>\nint main(void) { int sum = 0;\n')
    for number in range(count):
        main.write("sum += part%d(1);\n" % number)
    main.write('printf("%d\\n", sum); return 0; }\n')
objects = " ".join("part%d.o" % number for number in range(count))
with open("c/Makefile", "w") as rules:
    rules.write("sum: main.o libparts.a\n\tcc -o $@ main.o libparts.a\n")
    rules.write("libparts.a: %s\n\trm -f $@\n\tar rcs $@ $^\n" % objects)
    rules.write("%.o: %.c all.h\n\tcc -O1 -g -c -o $@ $<\n")
P
  make -s -C c -j 4
}
make_again() {
  make -q -C c && sleep 1.1 && touch c/part7.c && ! make -q -C c && make -s -C c && make -q -C c
}
rust_project() {
  mkdir -p rust/src rust/tests && cd rust || return 1
  printf '[package]\nname = "built"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' >Cargo.toml
  echo 'pub fn two() -> u32 { 2 }' >src/lib.rs
  echo 'fn main() { println!("{}", built::two()); }' >src/main.rs
  echo '#[test] fn two() { assert_eq!(built::two(), 2); }' >tests/two.rs
  cargo test --quiet --offline && [ "$(target/debug/built)" = 2 ] || return 1
  cargo build --offline --verbose 2>&1 | grep -q Compiling && return 1
  sleep 1.1 && echo 'pub fn two() -> u32 { 2 + 0 }' >src/lib.rs
  cargo build --offline --verbose 2>&1 | grep -q 'Compiling\|Dirty'
}
files=$(pick 300 3000)
many=$(pick 4000 20000)
export files many python folder CARGO_TARGET_DIR=$folder/rust/target
export -f make_tree compare with_tar tar_compares with_rsync rsync_again packed hard_links sparse \
  many_names deep odd_names c_project make_again rust_project

check make-tree bash -c make_tree
check tar bash -c with_tar
check tar-same bash -c "compare original tarred"
check cp cp -a original copied
check cp-same bash -c "compare original copied"
check rsync bash -c with_rsync
check rsync-same bash -c "compare original synced"
check rsync-again bash -c rsync_again
check tar-compares bash -c tar_compares
check gzip bash -c packed
check rename-tree bash -c "mv copied moved && compare original moved"
check remove-tree bash -c "rm -rf moved && [ ! -e moved ]"
check hard-links bash -c hard_links
check sparse bash -c sparse
check many-names bash -c many_names
check deep bash -c deep
check odd-names bash -c odd_names
check make bash -c c_project
check make-runs bash -c '[ "$(c/sum)" = 820 ]'
check make-again bash -c make_again
if command -v cargo >/dev/null; then
  LIMIT=240 check cargo bash -c rust_project
else
  skip cargo "cargo is not installed"
fi
finish
