//! Checksums of whole objects, as a store sends them.
//!
//! # Boundary
//! Compares the headers of an answer with its bytes. Sends no request.
//!
//! # Why
//! TCP's checksum has 16 bits, and plain HTTP has no other: a broken card, proxy or store passes a flipped bit on. S3 keeps a
//! checksum with each object and sends it to a client that asks for it and for the whole object. Weakness: neither ranges
//! nor objects whose checksum is made of those of their parts are checked.

use super::client::Answer;
use crate::store::{Result, StoreError};
use crc::{CRC_32_ISO_HDLC, CRC_64_NVME, Crc, Table};
use reqsign_core::hash::{base64_decode, base64_encode, hex_sha1, hex_sha256};

/// The header of a request that wants checksums.
pub(super) const WANTED: (&str, &str) = ("x-amz-checksum-mode", "ENABLED");

static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// A kind of checksum: its header, and the function that computes the header's text for some bytes.
#[derive(Debug, Clone, Copy)]
struct Kind {
    header: &'static str,
    of: fn(&[u8]) -> String,
}

/// The kinds that S3 has. The first that an answer has is compared, so the cheap ones come first.
const KINDS: [Kind; 5] = [
    Kind { header: "x-amz-checksum-crc32c", of: |bytes| big_endian(crc32c::crc32c(bytes)) },
    Kind {
        header: "x-amz-checksum-crc64nvme",
        of: |bytes| base64_encode(&CRC64.checksum(bytes).to_be_bytes()),
    },
    Kind { header: "x-amz-checksum-crc32", of: |bytes| big_endian(CRC32.checksum(bytes)) },
    Kind { header: "x-amz-checksum-sha256", of: |bytes| from_hex(&hex_sha256(bytes)) },
    Kind { header: "x-amz-checksum-sha1", of: |bytes| from_hex(&hex_sha1(bytes)) },
];

/// A store's checksum of an object.
#[derive(Debug)]
pub(super) struct Sum {
    kind: Kind,
    stated: String,
}

impl Sum {
    /// The checksum of the whole object in `answer`, if it has one.
    pub(super) fn stated(answer: &Answer) -> Option<Self> {
        let is_whole = |text: &str| text.trim().eq_ignore_ascii_case("FULL_OBJECT");
        if !answer.header("x-amz-checksum-type").is_none_or(is_whole) {
            return None;
        }
        let stated = |kind: Kind| Some((kind, answer.header(kind.header)?.trim().to_owned()));
        let (kind, stated) = KINDS.into_iter().find_map(stated)?;
        // A sum of sums ends with the number of parts, and a text that is no base64 was written by no store.
        base64_decode(&stated).is_ok().then_some(Self { kind, stated })
    }

    /// Whether it is the checksum of `bytes`.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is not.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<()> {
        if (self.kind.of)(bytes) == self.stated {
            return Ok(());
        }
        let name = self.kind.header;
        Err(StoreError::Damaged(name.strip_prefix("x-amz-checksum-").unwrap_or(name)))
    }
}

fn big_endian(sum: u32) -> String {
    base64_encode(&sum.to_be_bytes())
}

/// The base64 of the bytes in `hex`.
fn from_hex(hex: &str) -> String {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    base64_encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those that AWS, the catalogue of CRCs and `sha1sum` have for these bytes.
    #[test]
    fn sums_are_those_of_the_protocol() {
        let sums = KINDS.map(|kind| (kind.of)(b"123456789"));
        assert_eq!(
            sums,
            [
                "4waSgw==",
                "rosUhgp5mIg=",
                "y/Q5Jg==",
                "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
                "98O8HYCOBHMq32eZZczDTKeuNEE="
            ]
        );
    }

    #[test]
    fn another_content_has_another_sum() {
        for kind in KINDS {
            let sum = Sum { kind, stated: (kind.of)(b"content") };
            assert_eq!(sum.check(b"content"), Ok(()), "{}", kind.header);
            assert!(matches!(sum.check(b"contenu"), Err(StoreError::Damaged(_))));
        }
    }
}
