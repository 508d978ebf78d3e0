//! Readers of a small table behind `std::sync::RwLock`: the word on which each reader counts itself
//! is beside the table that it reads.

use std::sync::{Arc, RwLock};

struct Table {
    mask: u64,
    seed: u64,
    slots: [u64; 4],
}

#[inline(never)]
fn lookup(table: &RwLock<Table>, key: u64) -> u64 {
    let table = table.read().unwrap();
    table.slots[((key ^ table.seed) & table.mask) as usize]
}

fn main() {
    let (threads, turns) = found::arguments(500);
    let table = Arc::new(RwLock::new(Table { mask: 3, seed: 5, slots: [1; 4] }));
    let sum = found::run(threads, turns, |_, turn| lookup(&table, turn));
    assert_eq!(sum, threads as u64 * turns);
    println!("{sum} lookups");
}
