//! What a file without an ext file system has instead, by the magic numbers of other formats.
//!
//! # Boundary
//! Looks at fixed places of a device, and names the first format that is there, with the way to an image that uvfs
//! reads. Judges nothing else of the contents.
//!
//! # Why
//! A compressed image or one of a virtual machine is one command away from a mount, and "no ext4 here" does not say
//! which. Weakness: a format that is not in the table is not named, and an old superblock may survive in a file that
//! was formatted again.

use uvfs_ext::Device;

/// Bytes at a place that tell a format.
struct Kind {
    at: u64,
    magic: &'static [u8],
    name: &'static str,
    /// What to do with it.
    remedy: &'static str,
}

const fn kind(at: u64, magic: &'static [u8], name: &'static str, remedy: &'static str) -> Kind {
    Kind { at, magic, name, remedy }
}

const RAW: &str = "`qemu-img convert -O raw` makes an image of it";
const KERNEL: &str = "the kernel mounts it (`mount -o loop`), uvfs reads ext2, ext3 and ext4";

/// The formats, the ones with long magic numbers at the beginning first.
const KINDS: [Kind; 46] = [
    // Compressed files and archives.
    kind(0, b"\xfd7zXZ\0", "xz", "unpack it first (`unxz -k`)"),
    kind(0, b"\x28\xb5\x2f\xfd", "zstd", "unpack it first (`unzstd`)"),
    kind(0, b"\x1f\x8b\x08", "gzip", "unpack it first (`gunzip -k`)"),
    kind(0, b"BZh", "bzip2", "unpack it first (`bunzip2 -k`)"),
    kind(0, b"\x04\x22\x4d\x18", "lz4", "unpack it first (`unlz4`)"),
    kind(0, b"LZIP", "lzip", "unpack it first (`lzip -dk`)"),
    kind(0, b"\x89LZO\0", "lzop", "unpack it first (`lzop -d`)"),
    kind(0, b"PK\x03\x04", "a zip archive", "unpack it first (`unzip`)"),
    kind(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first (`7z x`)"),
    kind(257, b"ustar", "a tar archive", "unpack it into a directory (`tar xf`), and mount that"),
    // Images of virtual machines and of tools.
    kind(0, b"QFI\xfb\0\0\0\x01", "qcow", RAW),
    kind(0, b"QFI\xfb", "qcow2", RAW),
    kind(0, b"QED\0", "qed", RAW),
    kind(0, b"KDMV", "vmdk", RAW),
    kind(0, b"COWD", "vmdk", RAW),
    kind(0, b"# Disk DescriptorFile", "the description of a vmdk", RAW),
    kind(0, b"vhdxfile", "vhdx", RAW),
    kind(0, b"conectix", "vhd", RAW),
    kind(0x40, b"\x7f\x10\xda\xbe", "vdi", RAW),
    kind(0, b"WithoutFreeSpace", "an image of Parallels", RAW),
    kind(0, b"WithouFreSpacExt", "an image of Parallels", RAW),
    kind(0, b"\x3a\xff\x26\xed", "a sparse image of Android", "`simg2img` makes an image of it"),
    kind(
        0,
        b"partclone-image",
        "an image of partclone",
        "`partclone.restore -O` makes an image of it",
    ),
    kind(0, b"EVF\x09\x0d\x0a\xff\0", "an image of EnCase", "`ewfexport` makes an image of it"),
    // Below a file system.
    kind(
        0,
        b"LUKS\xba\xbe",
        "LUKS",
        "open it (`cryptsetup open`), and mount its device in /dev/mapper",
    ),
    kind(
        3,
        b"-FVE-FS-",
        "BitLocker",
        "open it (`cryptsetup open --type bitlk`), and mount its device in /dev/mapper",
    ),
    kind(
        512,
        b"LABELONE",
        "a volume of LVM",
        "activate its group (`vgchange -ay`), and mount a device in /dev/mapper",
    ),
    kind(
        4096,
        b"\xfc\x4e\x2b\xa9",
        "a member of a RAID",
        "assemble it (`mdadm --assemble`), and mount its device",
    ),
    // Other file systems.
    kind(0, b"XFSB", "XFS", KERNEL),
    kind(0x1_0040, b"_BHRfS_M", "btrfs", KERNEL),
    kind(
        0,
        b"hsqs",
        "squashfs",
        "the kernel mounts it (`mount -o loop`), and `unsquashfs` unpacks it into a directory",
    ),
    kind(1024, b"\xe2\xe1\xf5\xe0", "erofs", KERNEL),
    kind(1024, b"\x10\x20\xf5\xf2", "f2fs", KERNEL),
    kind(0x8001, b"CD001", "ISO 9660", KERNEL),
    kind(0x8001, b"BEA01", "UDF", KERNEL),
    kind(3, b"NTFS    ", "NTFS", KERNEL),
    kind(3, b"EXFAT   ", "exFAT", KERNEL),
    kind(82, b"FAT32   ", "FAT", KERNEL),
    kind(54, b"FAT16   ", "FAT", KERNEL),
    kind(54, b"FAT12   ", "FAT", KERNEL),
    kind(32, b"NXSB", "APFS", "uvfs reads ext2, ext3 and ext4"),
    kind(1024, b"H+\0\x04", "HFS+", KERNEL),
    kind(1024, b"HX\0\x05", "HFS+", KERNEL),
    kind(0x1_0034, b"ReIsEr", "ReiserFS", KERNEL),
    kind(0x8000, b"JFS1", "JFS", KERNEL),
    kind(4086, b"SWAPSPACE2", "swap space", "it has no files; name another image"),
];

/// The format of `device`, and what to do with it; `None` if it is not known.
pub(super) fn named(device: &dyn Device) -> Option<(&'static str, &'static str)> {
    let is_at = |kind: &&Kind| {
        let mut found = vec![0; kind.magic.len()];
        device.read_at(kind.at, &mut found).is_ok() && found == kind.magic
    };
    KINDS.iter().find(is_at).map(|kind| (kind.name, kind.remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use uvfs_ext::FileDevice;

    #[test]
    fn each_format_is_named_by_its_magic_number() {
        for kind in &KINDS {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&vec![0; kind.at as usize]).unwrap();
            file.write_all(kind.magic).unwrap();
            let found = named(&FileDevice::open(file.path()).unwrap());
            assert_eq!(found, Some((kind.name, kind.remedy)));
        }
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(named(&FileDevice::open(empty.path()).unwrap()), None);
    }
}
