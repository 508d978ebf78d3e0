//! A counter for each thread in a `thread_local::ThreadLocal`, which is summed at the end.
//! The feature `apart` pads each counter to a line.

use std::cell::Cell;
use thread_local::ThreadLocal;

#[derive(Default)]
#[cfg_attr(feature = "apart", repr(align(64)))]
struct Hits(Cell<u64>);

fn main() {
    let (threads, turns) = found::arguments(500);
    let mut counters: ThreadLocal<Hits> = ThreadLocal::new();
    let sum = found::run(threads, turns, |_, _| {
        let hits = counters.get_or_default();
        hits.0.set(hits.0.get() + 1);
        1
    });
    let counted: u64 = counters.iter_mut().map(|hits| hits.0.get()).sum();
    assert_eq!(counted, sum);
    println!("{sum} hits");
}
