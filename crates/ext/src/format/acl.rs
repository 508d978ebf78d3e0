//! Access control lists: the disk's form and the one that extended attributes have.

use crate::error::{Error, Result};

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
const USER: u16 = 2;
const GROUP: u16 = 8;
/// The id of an entry that has none.
const NO_ID: u32 = u32::MAX;

/// The value of `system.posix_acl_*` for a list as it is on the disk.
///
/// # Errors
/// If it is none.
pub fn acl_to_xattr(disk: &[u8]) -> Result<Vec<u8>> {
    let fault = || Error::corrupt("an access control list cannot be");
    let (version, mut rest) = disk.split_at_checked(4).ok_or_else(fault)?;
    if version != DISK_VERSION.to_le_bytes() {
        return Err(fault());
    }
    let mut xattr = XATTR_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (head, behind) = rest.split_at_checked(4).ok_or_else(fault)?;
        let tag = u16::from_le_bytes([head[0], head[1]]);
        xattr.extend_from_slice(head);
        rest = match tag {
            USER | GROUP => {
                let (id, behind) = behind.split_at_checked(4).ok_or_else(fault)?;
                xattr.extend_from_slice(id);
                behind
            }
            1 | 4 | 0x10 | 0x20 => {
                xattr.extend_from_slice(&NO_ID.to_le_bytes());
                behind
            }
            _ => return Err(fault()),
        };
    }
    Ok(xattr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_entries_get_an_id_and_long_ones_keep_theirs() {
        let disk = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 9, 0, 0, 0, 0x20, 0, 4, 0];
        let xattr = acl_to_xattr(&disk).unwrap();
        assert_eq!(xattr.len(), 4 + 3 * 8);
        assert_eq!(xattr[4..12], [1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(xattr[12..20], [2, 0, 4, 0, 9, 0, 0, 0]);
        for cut in [1, 5, 10, 13] {
            assert!(acl_to_xattr(&disk[..cut]).is_err());
        }
        assert!(
            acl_to_xattr(&[2, 0, 0, 0]).is_err()
                && acl_to_xattr(&[1, 0, 0, 0, 7, 0, 0, 0]).is_err()
        );
    }
}
