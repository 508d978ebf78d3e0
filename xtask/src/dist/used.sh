#!/bin/sh
# What a user does with /uvfs.deb in a clean Debian. Each line has to work, and nothing is left behind.
files() { find / -xdev -not -path '/var/*' -not -path '/proc*' -not -path '/tmp*' -not -path '/run*' | sort; }
files > /tmp/before
dpkg -i /uvfs.deb
uvfs --version
mkdir -p /srv/data /mnt/a /mnt/b
echo text > /srv/data/file
uvfs mount /srv/data /mnt/a --daemon --allow-other
test "$(cat /mnt/a/file)" = text
uvfs mounts
uvfs metrics /mnt/a | tail -1 | grep EOF
cp /etc/fstab /tmp/fstab
echo 'dir:/srv/data /mnt/b fuse.uvfs _netdev,cache_size=64M 0 0' >> /etc/fstab
mount -a
test "$(cat /mnt/b/file)" = text
mount -a
umount /mnt/b
uvfs unmount /mnt/a
uvfs mount memory: /mnt/a --daemon
echo ram > /mnt/a/file
test "$(cat /mnt/a/file)" = ram
uvfs unmount /mnt/a
test ! -e /mnt/a/file
uvfs image create /tmp/disk.img --size 16M
uvfs mount /tmp/disk.img /mnt/a --daemon
echo kept > /mnt/a/file
uvfs top --once /mnt/a | grep /mnt/a
uvfs unmount /mnt/a
uvfs mount /tmp/disk.img /mnt/a --daemon --read-only
test "$(cat /mnt/a/file)" = kept
uvfs unmount /mnt/a
uvfs image check /tmp/disk.img
test -e /usr/lib/systemd/system/uvfs@.service
test -L /usr/sbin/mount.fuse.uvfs
test -e /usr/share/man/man1/uvfs-mount.1.gz
bash -c '. /usr/share/bash-completion/completions/uvfs && complete -p uvfs'
test -z "$(dpkg --verify uvfs)"
dpkg --purge uvfs
cp /tmp/fstab /etc/fstab
rm -r /srv/data /mnt/a /mnt/b /run/uvfs
files > /tmp/after
diff /tmp/before /tmp/after
