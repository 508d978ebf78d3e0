#!/bin/sh
# Usage: trial.sh SYSTEM PACKAGE SCRIPT, in a mount namespace of its own: runs SCRIPT in a copy of SYSTEM that has PACKAGE as
# /uvfs.deb. What it changes is in memory, and gone with the namespace.
set -e
top=$(mktemp -d)
mount -t tmpfs tmpfs "$top"
mkdir "$top/up" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$top/up,workdir=$top/work" "$top/root"
cp "$2" "$top/root/uvfs.deb"
cp "$3" "$top/root/used.sh"
mount -t proc proc "$top/root/proc"
mount --bind /dev "$top/root/dev"
status=0
PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C chroot "$top/root" sh -ex /used.sh || status=$?
umount -R "$top/root" || true
umount -l "$top"
rmdir "$top"
exit "$status"
