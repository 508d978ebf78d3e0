#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds xarray-bench: Linux's lib/xarray.c, from the distribution's source package, with the shims
# that lie here, as a program of its own. Nothing of the kernel's source stays in the repository, and
# nothing of uvfs is linked with it.
#
# usage: bench-compare/xarray/build.sh          the cache folder's path is printed at the end
#
#   XARRAY_CACHE    where everything goes; default: ${XDG_CACHE_HOME:-~/.cache}/uvfs-bench/xarray
#   XARRAY_PACKAGE  Debian's source package; default linux-source-6.1
#   LINUX_SOURCE    an unpacked kernel tree (6.1 was tried), where there is no apt-get
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=${XARRAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/uvfs-bench/xarray}
package=${XARRAY_PACKAGE:-linux-source-6.1}
mkdir -p "$cache"

# The two files that are wanted.
source=$cache/source/$package
if [ -n "${LINUX_SOURCE:-}" ]; then
    source=$LINUX_SOURCE
elif ! [ -e "$source/lib/xarray.c" ]; then
    for tool in apt-get dpkg-deb tar xz; do
        if ! command -v $tool >/dev/null; then
            echo "build.sh: no $tool; unpack a kernel and say LINUX_SOURCE=/path/of/it" >&2
            exit 1
        fi
    done
    work=$(mktemp -d "$cache/unpack.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # 140 MB, of which 100 KB are kept.
    if ! (cd "$work" && apt-get -o APT::Sandbox::User=root download -q "$package"); then
        echo "build.sh: no package $package: apt-get update, or name another by XARRAY_PACKAGE" >&2
        exit 1
    fi
    dpkg-deb -x "$work"/*.deb "$work/package"
    mkdir -p "$source.part"
    tar -xJf "$work/package/usr/src/$package.tar.xz" -C "$source.part" --strip-components=1 \
        "$package/lib/xarray.c" "$package/include/linux/xarray.h"
    rm -rf "$source"
    mv "$source.part" "$source"
    (cd "$work" && ls ./*.deb) >"$source/package"
fi

# Every other header that they name is the shim.
build=$cache/build
rm -rf "$build"
mkdir -p "$build/include/linux/sched"
cp "$source/include/linux/xarray.h" "$build/include/linux/"
for header in bitmap bug compiler export gfp kconfig kernel list rcupdate sched/mm slab spinlock types; do
    echo '#include "shim.h"' >"$build/include/linux/$header.h"
done

compile() {
    variant=$1
    shift
    # As the kernel is compiled: strict aliasing is not its rule.
    gcc -O3 -g -std=gnu11 -Wall -Wno-unused-function -fmax-errors=5 -fno-strict-aliasing -pthread \
        -I "$here" -I "$build/include" -I "$source/lib" "$@" -DROUND="round_$variant" \
        -c "$here/variant.c" -o "$build/$variant.o"
    # Both variants define the kernel's names.
    objcopy --keep-global-symbol="round_$variant" "$build/$variant.o"
}
compile spin
compile mutex -DXA_LOCK_MUTEX
gcc -O2 -std=gnu11 -Wall -Wextra -pthread -o "$build/xarray-bench" "$here/main.c" "$build/spin.o" "$build/mutex.o"

# It has to work before it is called built.
for system in xarray xarray-mutex; do
    for pattern in sequential interleaved random; do
        echo "round $system $pattern 2 100003"
    done
done | "$build/xarray-bench" >"$build/smoke"
if [ "$(grep -c '^round insert=.* lookup=.* tag=.* gang=.* untag=.* remove=' "$build/smoke")" != 6 ]; then
    cat "$build/smoke" >&2
    echo "build.sh: it does not work" >&2
    exit 1
fi
mv "$build/xarray-bench" "$cache/xarray-bench"
echo "xarray: $cache/xarray-bench, from $(cat "$source/package" 2>/dev/null || echo "$source")"
