//! The feature flags: their names, and their meaning for a reader.
//!
//! # Why
//! One table decides, and `uvfs image info` prints it. An image with an incompatible bit that is not in the table is
//! refused: a reader would have to guess. Other unknown bits are reported.

/// The three words of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// May be ignored.
    Compatible,
    /// Must be known to read.
    Incompatible,
    /// Must be known to write.
    ReadOnlyCompatible,
}

/// How much of an image with a flag can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Everything.
    Full,
    /// All but the named part.
    Reduced(&'static str),
    /// Nothing: the image is refused.
    Refused,
}

/// One flag.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// In which word.
    pub class: Class,
    /// Bit in that word.
    pub bit: u32,
    /// Name that e2fsprogs uses.
    pub name: &'static str,
    /// Effect of the feature on reading.
    pub service: Service,
}

/// The flags of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// The word of [`Class::Compatible`].
    pub compat: u32,
    /// The word of [`Class::Incompatible`].
    pub incompat: u32,
    /// The word of [`Class::ReadOnlyCompatible`].
    pub ro_compat: u32,
}

const fn flag(class: Class, bit: u32, name: &'static str, service: Service) -> Feature {
    Feature { class, bit, name, service }
}

use Class::{Compatible as C, Incompatible as I, ReadOnlyCompatible as R};
use Service::{Full, Reduced, Refused};

/// Every flag that has a name.
pub(crate) const TABLE: &[Feature] = &[
    flag(C, 0x1, "dir_prealloc", Full),
    flag(C, 0x2, "imagic_inodes", Full),
    flag(C, 0x4, "has_journal", Full),
    flag(C, 0x8, "ext_attr", Full),
    flag(C, 0x10, "resize_inode", Full),
    flag(C, 0x20, "dir_index", Full),
    flag(C, 0x40, "lazy_bg", Full),
    flag(C, 0x80, "exclude_inode", Full),
    flag(C, 0x100, "exclude_bitmap", Full),
    flag(C, 0x200, "sparse_super2", Full),
    flag(C, 0x400, "fast_commit", Reduced("changes in the fast-commit area are not replayed")),
    flag(C, 0x800, "stable_inodes", Full),
    flag(C, 0x1000, "orphan_file", Full),
    flag(I, 0x1, "compression", Refused),
    flag(I, 0x2, "filetype", Full),
    flag(I, 0x4, "needs_recovery", Reduced("the journal is replayed in memory")),
    flag(I, 0x8, "journal_dev", Refused),
    flag(I, 0x10, "meta_bg", Full),
    flag(I, 0x40, "extent", Full),
    flag(I, 0x80, "64bit", Full),
    flag(I, 0x100, "mmp", Reduced("another host that has it mounted is not noticed")),
    flag(I, 0x200, "flex_bg", Full),
    flag(I, 0x400, "ea_inode", Full),
    flag(I, 0x1000, "dirdata", Refused),
    flag(I, 0x2000, "metadata_csum_seed", Full),
    flag(I, 0x4000, "large_dir", Full),
    flag(I, 0x8000, "inline_data", Full),
    flag(
        I,
        0x1_0000,
        "encrypt",
        Reduced("encrypted names are shown encoded, encrypted files are not opened"),
    ),
    flag(I, 0x2_0000, "casefold", Reduced("names are found by their exact bytes only")),
    flag(R, 0x1, "sparse_super", Full),
    flag(R, 0x2, "large_file", Full),
    flag(R, 0x4, "btree_dir", Full),
    flag(R, 0x8, "huge_file", Full),
    flag(R, 0x10, "uninit_bg", Full),
    flag(R, 0x20, "dir_nlink", Full),
    flag(R, 0x40, "extra_isize", Full),
    flag(R, 0x80, "has_snapshot", Refused),
    flag(R, 0x100, "quota", Full),
    flag(R, 0x200, "bigalloc", Full),
    flag(R, 0x400, "metadata_csum", Full),
    flag(R, 0x800, "replica", Full),
    flag(R, 0x1000, "read-only", Full),
    flag(R, 0x2000, "project", Full),
    flag(R, 0x4000, "shared_blocks", Full),
    flag(R, 0x8000, "verity", Reduced("contents are served without being verified")),
    flag(R, 0x1_0000, "orphan_present", Full),
];

macro_rules! tests {
    ($($(#[$doc:meta])* $name:ident: $word:ident, $bit:expr;)*) => {
        impl Features {
            $($(#[$doc])* pub fn $name(&self) -> bool { self.$word & $bit != 0 })*
        }
    };
}

tests! {
    /// There is a journal.
    has_journal: compat, 0x4;
    /// Directories may have an index.
    dir_index: compat, 0x20;
    /// Two groups have copies of the superblock.
    sparse_super2: compat, 0x200;
    /// The journal may have fast commits.
    fast_commit: compat, 0x400;
    /// Orphans are listed in a file.
    orphan_file: compat, 0x1000;
    /// Directory entries hold the kind of their object.
    filetype: incompat, 0x2;
    /// The journal must be replayed.
    needs_recovery: incompat, 0x4;
    /// Descriptors lie in their own groups.
    meta_bg: incompat, 0x10;
    /// Block numbers have more than 32 bits.
    wide: incompat, 0x80;
    /// A block names the machine that has it mounted.
    guards_mounts: incompat, 0x100;
    /// Groups keep their metadata together.
    flex_bg: incompat, 0x200;
    /// Attributes may lie in inodes of their own.
    ea_inode: incompat, 0x400;
    /// The seed of checksums is stored.
    checksum_seed: incompat, 0x2000;
    /// Indexes have three levels, directories more than 2 GiB.
    large_dir: incompat, 0x4000;
    /// Small files lie in their inodes.
    inline_data: incompat, 0x8000;
    /// Some groups have copies of the superblock.
    sparse_super: ro_compat, 0x1;
    /// Files have more than 2 TiB.
    huge_file: ro_compat, 0x8;
    /// Descriptors have a CRC-16.
    gdt_checksum: ro_compat, 0x10;
    /// Blocks are allocated in clusters.
    bigalloc: ro_compat, 0x200;
    /// Metadata has a CRC-32C.
    metadata_checksum: ro_compat, 0x400;
    /// Files may share blocks.
    shared_blocks: ro_compat, 0x4000;
}

impl Features {
    fn word(&self, class: Class) -> u32 {
        match class {
            C => self.compat,
            I => self.incompat,
            R => self.ro_compat,
        }
    }

    /// The flags that are set and have a name.
    pub fn known(&self) -> impl Iterator<Item = &'static Feature> {
        TABLE.iter().filter(|feature| self.word(feature.class) & feature.bit != 0)
    }

    /// The flags that are set and that no table has, as e2fsprogs names them (`FEATURE_I31`).
    pub fn unknown(&self) -> Vec<(Class, String)> {
        let mut unknown = Vec::new();
        for (class, letter) in [(C, 'C'), (I, 'I'), (R, 'R')] {
            let named = TABLE.iter().filter(|feature| feature.class == class);
            let named = named.fold(0, |bits, feature| bits | feature.bit);
            let rest = self.word(class) & !named;
            let bits = (0..32).filter(|bit| rest >> bit & 1 == 1);
            unknown.extend(bits.map(|bit| (class, format!("FEATURE_{letter}{bit}"))));
        }
        unknown
    }

    /// The names of the flags for which the image is refused.
    pub fn refused(&self) -> Vec<String> {
        let known = self.known().filter(|feature| feature.service == Refused);
        let unknown = self.unknown().into_iter().filter(|(class, _)| *class == I);
        known.map(|feature| feature.name.into()).chain(unknown.map(|(_, name)| name)).collect()
    }

    /// The flags that reduce the service: (name, reduction).
    pub fn reductions(&self) -> Vec<(String, &'static str)> {
        let known = self.known().filter_map(|feature| match feature.service {
            Reduced(what) => Some((feature.name.to_owned(), what)),
            _ => None,
        });
        let unknown = self.unknown().into_iter().filter(|(class, _)| *class == R);
        let what = "not known to this reader; only writers have to know it";
        known.chain(unknown.map(|(_, name)| (name, what))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_reported_by_name() {
        let features =
            Features { compat: 1 << 31, incompat: 0x2 | 0x1 | 1 << 30, ro_compat: 1 << 29 };
        assert_eq!(features.refused(), ["compression", "FEATURE_I30"]);
        assert_eq!(features.reductions()[0].0, "FEATURE_R29");
        assert_eq!(features.unknown().len(), 3);
    }

    #[test]
    fn no_bit_has_two_names() {
        for (at, feature) in TABLE.iter().enumerate() {
            assert_eq!(feature.bit.count_ones(), 1);
            let twice = |other: &&Feature| other.class == feature.class && other.bit == feature.bit;
            assert!(!TABLE[..at].iter().any(|other| twice(&other)), "{}", feature.name);
        }
    }
}
