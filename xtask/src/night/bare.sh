#!/bin/sh
# Usage: bare.sh SYSTEM REPOSITORY SYSROOT CARGO_HOME USER TARGET, in a mount namespace of its own. Runs README's two
# commands in a copy of SYSTEM, a Debian of packages' minimum and gcc: no git, no fuse3, no mke2fs, no /dev/fuse. USER is
# root or user. TARGET keeps what was built, for the next run. Changes to SYSTEM and REPOSITORY are in memory.
set -e
system=$1 repository=$2 sysroot=$3 cargo_home=$4 user=$5 target=$6
top=$(mktemp -d)
end() { status=$?; umount -R -l "$top" || true; rmdir "$top"; exit "$status"; }
trap end EXIT
mount -t tmpfs tmpfs "$top"
root=$top/root
mkdir "$top/up" "$top/work" "$root"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$top/up,workdir=$top/work" "$root"

# A device folder as a container has it, without /dev/fuse.
mount -t tmpfs tmpfs "$root/dev"
for name in null zero full random urandom tty; do
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666,mode=620
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"

# The compiler and the crates that cargo has fetched: this run may lack a network.
mkdir -p "$root$sysroot" "$root$cargo_home/registry" "$root$repository"
chmod a+rx "$root/root"
mount --bind -o ro "$sysroot" "$root$sysroot"
mkdir "$top/registry-up" "$top/registry-work"
mount -t overlay overlay -o "lowerdir=$cargo_home/registry,upperdir=$top/registry-up,workdir=$top/registry-work" "$root$cargo_home/registry"

# A checkout of what git lists, as a reader would have it.
(cd "$repository" && git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
  tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null) | tar -xpf - -C "$root$repository"
mkdir -p "$target" "$root$repository/target"
mount --bind "$target" "$root$repository/target"

set_ids=
if [ "$user" != root ]; then
  chroot "$root" useradd --create-home "$user"
  chroot "$root" chown -R "$user" "$repository" "$cargo_home" 2>/dev/null || true
  set_ids="setpriv --reuid $user --regid $user --clear-groups"
fi
home=$(chroot "$root" sh -c "echo ~$user")
for command in 'cargo test --workspace' 'cargo run --release -- demo'; do
  echo "== as $user: $command"
  chroot "$root" $set_ids env -i HOME="$home" CARGO_HOME="$cargo_home" CARGO_NET_OFFLINE=true TERM=dumb \
    PATH="$sysroot/bin:/usr/sbin:/usr/bin:/sbin:/bin" sh -c "cd '$repository' && $command"
done
