//! Partition tables: MBR with logical partitions, and GPT.
//!
//! # Boundary
//! Lists where partitions lie. Does not look into them.
//!
//! # Why
//! The numbers are those of the kernel (`sda1`, `sda5`): users copy them from `fdisk -l`. Weakness: the
//! checksums of a GPT are not verified; a wrong place shows when no superblock is there.

use super::Device;
use crate::error::{Error, Result};

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Number of the partition, as the kernel counts.
    pub number: u32,
    /// Where it begins.
    pub start_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

const SECTOR: u64 = 512;
const LOGICAL_MAX: u32 = 64;
const GPT_ENTRIES_MAX: u32 = 1024;

/// The partitions of `device`, none if it has no partition table.
///
/// # Errors
/// Those of the device, and a table that leads out of it.
pub fn partitions(device: &dyn Device) -> Result<Vec<Partition>> {
    let Some(mbr) = sector(device, 0)? else { return Ok(Vec::new()) };
    if mbr[510..] != [0x55, 0xAA] {
        return Ok(Vec::new());
    }
    let primary: Vec<_> = (0..4).map(|at| entry(&mbr, at)).collect();
    if primary.iter().any(|entry| entry.kind == 0xEE) {
        for sector_bytes in [SECTOR, 4096] {
            if let Some(found) = gpt(device, sector_bytes)? {
                return Ok(found);
            }
        }
    }
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(&primary).filter(|(_, entry)| entry.sectors != 0) {
        match entry.kind {
            0 | 0xEE => {}
            0x05 | 0x0F | 0x85 => logical(device, entry.start, &mut found)?,
            _ => found.push(partition(number, entry.start, entry.sectors)),
        }
    }
    found.sort_by_key(|partition: &Partition| partition.number);
    found.retain(|partition| partition.start_bytes < device.length());
    Ok(found)
}

struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

fn partition(number: u32, start: u64, sectors: u64) -> Partition {
    Partition { number, start_bytes: start * SECTOR, length_bytes: sectors * SECTOR }
}

fn entry(table: &[u8], at: usize) -> Entry {
    let entry = &table[446 + 16 * at..];
    Entry { kind: entry[4], start: le(&entry[8..12]), sectors: le(&entry[12..16]) }
}

/// The chain of logical partitions in the extended one that begins at `base`.
fn logical(device: &dyn Device, base: u64, found: &mut Vec<Partition>) -> Result<()> {
    let mut at = base;
    for number in 5..5 + LOGICAL_MAX {
        let Some(table) = sector(device, at * SECTOR)? else { break };
        let (own, next) = (entry(&table, 0), entry(&table, 1));
        if table[510..] != [0x55, 0xAA] || own.sectors == 0 {
            break;
        }
        found.push(partition(number, at + own.start, own.sectors));
        if next.sectors == 0 || next.start == 0 {
            break;
        }
        at = base + next.start;
    }
    Ok(())
}

fn gpt(device: &dyn Device, sector_bytes: u64) -> Result<Option<Vec<Partition>>> {
    let Some(header) = sector(device, sector_bytes)? else { return Ok(None) };
    if &header[..8] != b"EFI PART" {
        return Ok(None);
    }
    let (table, count, size) = (le(&header[72..80]), le(&header[80..84]), le(&header[84..88]));
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    if !(128..=4096).contains(&size) || count > GPT_ENTRIES_MAX {
        return Err(Error::corrupt("the GPT's entries have no size that can be"));
    }
    let mut found = Vec::new();
    let mut entry = vec![0; size as usize];
    let start = table.checked_mul(sector_bytes);
    let start = start.ok_or_else(|| Error::corrupt("the GPT's entries lie beyond the device"))?;
    for at in 0..count {
        let offset = start.checked_add(u64::from(at) * size);
        let offset = offset.filter(|offset| offset.saturating_add(size) <= device.length());
        let Some(offset) = offset else {
            return Err(Error::corrupt("the GPT's entries lie beyond the device"));
        };
        device.read_at(offset, &mut entry)?;
        let (first, last) = (le(&entry[32..40]), le(&entry[40..48]));
        if entry[..16] == [0; 16] || last < first {
            continue;
        }
        let bytes = |sectors: u64| sectors.checked_mul(sector_bytes);
        let sectors = (last - first).checked_add(1);
        let (Some(start_bytes), Some(length_bytes)) = (bytes(first), sectors.and_then(bytes))
        else {
            continue;
        };
        if start_bytes < device.length() {
            found.push(Partition { number: at + 1, start_bytes, length_bytes });
        }
    }
    Ok(Some(found))
}

fn sector(device: &dyn Device, offset: u64) -> Result<Option<[u8; 512]>> {
    let mut sector = [0; 512];
    if offset.saturating_add(SECTOR) > device.length() {
        return Ok(None);
    }
    device.read_at(offset, &mut sector)?;
    Ok(Some(sector))
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    fn put(table: &mut [u8], at: usize, kind: u8, start: u32, sectors: u32) {
        let entry = &mut table[446 + 16 * at..];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    }

    fn numbers(disk: Vec<u8>) -> Vec<(u32, u64, u64)> {
        let found = partitions(&MemoryDevice::new(disk)).unwrap();
        let shown =
            |part: Partition| (part.number, part.start_bytes / 512, part.length_bytes / 512);
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn primary_and_logical_partitions_have_the_kernels_numbers() {
        let mut disk = vec![0; 512 * 100];
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        put(&mut disk, 0, 0x83, 10, 5);
        put(&mut disk, 2, 0x05, 50, 40);
        for (at, next) in [(50, 10), (60, 0)] {
            let table = &mut disk[512 * at..];
            table[510..512].copy_from_slice(&[0x55, 0xAA]);
            put(table, 0, 0x83, 2, 3);
            put(table, 1, if next == 0 { 0 } else { 5 }, next, next);
        }
        assert_eq!(numbers(disk), [(1, 10, 5), (5, 52, 3), (6, 62, 3)]);
    }

    /// A logical partition whose successor is itself is a loop.
    #[test]
    fn a_chain_that_leads_to_itself_ends() {
        let mut disk = vec![0; 512 * 100];
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        put(&mut disk, 0, 0x05, 50, 40);
        for at in [50, 60] {
            let table = &mut disk[512 * at..];
            table[510..512].copy_from_slice(&[0x55, 0xAA]);
            put(table, 0, 0x83, 2, 3);
            put(table, 1, 5, 10, 1);
        }
        assert_eq!(numbers(disk).len(), LOGICAL_MAX as usize);
    }

    #[test]
    fn a_gpt_is_read_and_its_absurd_sizes_are_refused() {
        let mut disk = vec![0; 512 * 100];
        disk[510..512].copy_from_slice(&[0x55, 0xAA]);
        put(&mut disk, 0, 0xEE, 1, 99);
        disk[512..520].copy_from_slice(b"EFI PART");
        disk[512 + 72] = 2;
        disk[512 + 80] = 4;
        disk[512 + 84] = 128;
        let second = 1024 + 128;
        disk[second] = 1;
        disk[second + 32] = 20;
        disk[second + 40] = 29;
        assert_eq!(numbers(disk.clone()), [(2, 20, 10)]);
        // One that ends at the last number there is: counting its sectors overflowed.
        let third = second + 128;
        disk[third] = 1;
        disk[third + 40..third + 48].fill(0xFF);
        assert_eq!(numbers(disk.clone()), [(2, 20, 10)]);
        disk[512 + 84] = 0;
        assert!(partitions(&MemoryDevice::new(disk.clone())).is_err());
        disk[512 + 84] = 128;
        disk[512 + 72..512 + 80].fill(0xFF);
        assert!(partitions(&MemoryDevice::new(disk)).is_err());
    }

    #[test]
    fn without_a_table_there_are_none() {
        assert_eq!(numbers(vec![0; 4096]), []);
        assert_eq!(numbers(vec![0; 12]), []);
    }
}
