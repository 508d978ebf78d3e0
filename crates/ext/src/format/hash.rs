//! Hashes of names by which directories are indexed: legacy, half-MD4 and TEA, signed and unsigned.
//!
//! # Why
//! No library has the format's variants: a truncated MD4, padding by the length, `char` with a sign. Checked against
//! `debugfs dx_hash`.

/// Which hash a directory uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashVersion {
    /// The first, of 2001.
    Legacy,
    /// Half of MD4, the hash of today's directories.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
}

impl HashVersion {
    /// By the number in the root of an index, and whether the image's characters are unsigned; with whether those of this hash are.
    pub fn from_number(version: u8, unsigned_image: bool) -> Option<(Self, bool)> {
        Self::from_disk(version, unsigned_image)
    }

    /// By the number on the disk, and whether the image's bytes are unsigned `char`s
    /// (`s_flags`); the unsigned variants have numbers of their own.
    pub(crate) fn from_disk(version: u8, unsigned_image: bool) -> Option<(Self, bool)> {
        let (version, unsigned) = match version {
            3..=5 => (version - 3, true),
            other => (other, unsigned_image),
        };
        let version = match version {
            0 => HashVersion::Legacy,
            1 => HashVersion::HalfMd4,
            2 => HashVersion::Tea,
            _ => return None,
        };
        Some((version, unsigned))
    }
}

/// The hash that an index compares, its lowest bit clear.
pub fn hash(version: HashVersion, unsigned: bool, seed: [u32; 4], name: &[u8]) -> u32 {
    const STANDARD: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    /// Stands for the end of a directory; no name may have it.
    const END: u32 = 0xFFFF_FFFE;
    let mut state = if seed == [0; 4] { STANDARD } else { seed };
    let hash = match version {
        HashVersion::Legacy => legacy(unsigned, name),
        HashVersion::HalfMd4 => {
            let mut rest = name;
            while !rest.is_empty() {
                half_md4(&mut state, &words::<8>(unsigned, rest));
                rest = rest.get(32..).unwrap_or(&[]);
            }
            state[1]
        }
        HashVersion::Tea => {
            let mut rest = name;
            while !rest.is_empty() {
                tea(&mut state, &words::<4>(unsigned, rest));
                rest = rest.get(16..).unwrap_or(&[]);
            }
            state[0]
        }
    };
    match hash & !1 {
        END => END - 2,
        hash => hash,
    }
}

fn character(unsigned: bool, byte: u8) -> u32 {
    if unsigned { u32::from(byte) } else { byte as i8 as u32 }
}

fn legacy(unsigned: bool, name: &[u8]) -> u32 {
    let (mut last, mut before) = (0x12A3_FE2D_u32, 0x37AB_E8F9_u32);
    for byte in name {
        let mixed = last ^ character(unsigned, *byte).wrapping_mul(7_152_373);
        let mut next = before.wrapping_add(mixed);
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        (before, last) = (last, next);
    }
    last << 1
}

/// The first bytes of `name` as `N` words, filled up with its length.
fn words<const N: usize>(unsigned: bool, name: &[u8]) -> [u32; N] {
    let length = name.len() as u32;
    let pad = length | length << 8;
    let pad = pad | pad << 16;
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(name.chunks(4)) {
        for byte in bytes {
            *word = character(unsigned, *byte).wrapping_add(*word << 8);
        }
    }
    words
}

fn tea(state: &mut [u32; 4], words: &[u32; 4]) {
    let (mut first, mut second, mut sum) = (state[0], state[1], 0_u32);
    let mix = |value: u32, sum: u32, left: u32, right: u32| {
        (value << 4).wrapping_add(left) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(right)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        first = first.wrapping_add(mix(second, sum, words[0], words[1]));
        second = second.wrapping_add(mix(first, sum, words[2], words[3]));
    }
    state[0] = state[0].wrapping_add(first);
    state[1] = state[1].wrapping_add(second);
}

fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    // Each round: the mixing function, its constant, the order of the words, the rotations.
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5A82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (|x, y, z| x ^ y ^ z, 0x6ED9_EBA1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, rotations) in ROUNDS {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]);
            let next = sum.wrapping_add(constant).rotate_left(rotations[step % 4]);
            (a, b, c, d) = (d, next, b, c);
        }
    }
    for (word, added) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of `debugfs dx_hash`.
    #[test]
    fn hashes_are_those_of_the_format() {
        const LONG: &[u8] = b"a much longer name than thirty-two bytes, to be sure of it";
        let seed = std::array::from_fn(|word| {
            let byte = |at| 4 * word as u8 + at;
            u32::from_le_bytes([byte(1), byte(2), byte(3), byte(4)])
        });
        let check = |version, seed, expected: [u32; 3]| {
            for (name, expected) in [b"a", &b"hello"[..], LONG].into_iter().zip(expected) {
                assert_eq!(hash(version, false, seed, name), expected, "{version:?} {seed:?}");
                assert_eq!(hash(version, true, seed, name), expected, "no byte has a sign");
            }
        };
        check(HashVersion::Legacy, [0; 4], [0xe74b53e2, 0x32252546, 0x63d8df6a]);
        check(HashVersion::HalfMd4, [0; 4], [0xd5fa7d7a, 0x1746da32, 0x10175284]);
        check(HashVersion::HalfMd4, seed, [0x8d08ec4c, 0xe2ddf968, 0x512c7e6c]);
        check(HashVersion::Tea, [0; 4], [0x6d0ea4c0, 0x6f5bb1a8, 0x6ef941b4]);
        check(HashVersion::Tea, seed, [0xf53528f0, 0x1a5692b6, 0x9c496a7e]);
        let umlaut = "ä".as_bytes();
        let differ = |unsigned| hash(HashVersion::HalfMd4, unsigned, [0; 4], umlaut);
        assert_ne!(differ(true), differ(false));
    }
}
