//! Checksums as the format has them: seeds that run on, and no final inversion.
//!
//! # Boundary
//! Wraps the crate `crc32c`; its own lines are the polynomial that no kept crate has a use for, crc16.

/// Continues `seed` over `bytes`; neither start nor end is inverted.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

/// CRC-16 with the reflected polynomial 0xA001, as group descriptors have it without `metadata_csum`.
pub(crate) fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |mut crc, byte| {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }

    #[test]
    fn a_seed_runs_on() {
        assert_eq!(crc32c(crc32c(7, b"1234"), b"56789"), crc32c(7, b"123456789"));
    }
}
