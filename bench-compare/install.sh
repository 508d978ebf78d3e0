#!/bin/sh
# Gets the systems that uvfs-bench compares with: bindfs, rclone and vmtouch from Debian; libfuse's own passthrough
# examples, compiled from the copies that Debian ships with libfuse3-dev; Linux's XArray, compiled
# from Debian's package of the kernel's source (see xarray/README.md); and the Rust crates.
#
# Their sources are not part of this repository: they have licences of their own. The bench works
# without them and says what it leaves out.
#
# usage: bench-compare/install.sh      needs root for apt-get where something is missing; writes
#                                      bench-compare/target, and the XArray's cache folder
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
target=$here/target
examples=/usr/share/doc/libfuse3-dev/examples

if ! command -v bindfs >/dev/null || ! [ -d "$examples" ] ||
    ! command -v rclone >/dev/null || ! command -v vmtouch >/dev/null ||
    ! command -v gcc >/dev/null || ! command -v pkg-config >/dev/null ||
    ! command -v objcopy >/dev/null || ! command -v xz >/dev/null; then
    if ! command -v apt-get >/dev/null; then
        echo "install.sh: no apt-get; install bindfs, binutils, gcc, pkg-config, libfuse3, rclone, vmtouch and xz yourself" >&2
        exit 1
    fi
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt-get update -q
    apt-get install -y -q --no-install-recommends \
        bindfs binutils gcc libc6-dev libfuse3-dev pkg-config rclone vmtouch xz-utils
fi

if ! "$here/xarray/build.sh"; then
    echo "install.sh: without the XArray" >&2
fi

# mimalloc compiles C too.
if command -v cargo >/dev/null; then
    # Where the benches look for it, whatever the environment says.
    cargo build --release --locked --manifest-path "$here/Cargo.toml" --target-dir "$target"
    echo "crates: $target/release/bench-compare"
else
    echo "install.sh: no cargo; then: cargo build --release --manifest-path bench-compare/Cargo.toml" >&2
fi

mkdir -p "$target"
compile() {
    source=$examples/$1.c
    if [ -e "$source.gz" ]; then
        # Some releases compress their examples.
        gunzip -c "$source.gz" >"$target/$1.c"
        source=$target/$1.c
    fi
    if ! [ -e "$source" ]; then
        echo "install.sh: $source is missing: is /usr/share/doc dropped? see /etc/dpkg/dpkg.cfg.d" >&2
        exit 1
    fi
    # shellcheck disable=SC2046  # the flags are words
    gcc -O2 -Wall -DHAVE_UTIMENSAT -DHAVE_SETXATTR -o "$target/$1" -I "$examples" "$source" $(pkg-config fuse3 --cflags --libs)
}
compile passthrough_ll
compile passthrough_fh

echo "bindfs: $(bindfs --version 2>&1 | head -n 1)"
echo "libfuse passthrough: $target/passthrough_ll and _fh, libfuse $(pkg-config --modversion fuse3)"
echo "for clean: $(rclone version 2>&1 | head -n 1), $(command -v vmtouch)"
