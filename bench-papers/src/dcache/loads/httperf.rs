//! A web server: every request opens one of many small files through a long path, and closes it.
//!
//! # Why
//! Table 2 counts, for each `d_alloc` of the paper's httperf run, 150 `d_lookup`s, 40 `..` (the lock
//! that `link_path_walk` takes) and 9.3 `dput`s that took the lock; with one last `dput` per request
//! that is about 15 `d_lookup`s and 4 `..` each. The paths here have 15 names and 4 `..`. Each file is
//! allocated once and never pruned. The server's program stays open, which keeps the directories
//! before the `..` in use. Clients share all directories and, as popularity falls with the rank's
//! power (Zipf), many files.

use super::{Load, Numbers, Operation, Script};

const SERVER: &str = "usr/local/apache/bin";
const DOCUMENTS: &str = "export/home/www/vhosts/site/htdocs/docs";
const REQUESTS_PER_FILE: usize = 10;
const SKEW: f64 = 0.9;
const FAN_OUT: usize = 10;

/// The load for `clients` clients of `operations` requests each.
pub(super) fn load(clients: usize, operations: usize) -> Load {
    let count = (clients * operations / REQUESTS_PER_FILE).max(FAN_OUT * FAN_OUT);
    let mut preparation = Script::default();
    [SERVER, DOCUMENTS].iter().for_each(|path| directories(&mut preparation, path));
    for outer in 0..FAN_OUT {
        directory(&mut preparation, format!("{DOCUMENTS}/a{outer}"));
        for inner in 0..FAN_OUT {
            directory(&mut preparation, format!("{DOCUMENTS}/a{outer}/b{inner}"));
            directory(&mut preparation, format!("{DOCUMENTS}/a{outer}/b{inner}/c"));
        }
    }
    let files: Vec<String> = (0..count).map(file).collect();
    for file in &files {
        let path = preparation.path(format!("{DOCUMENTS}/{file}"));
        preparation.operations.push(Operation::Create(path));
    }
    let program = format!("{SERVER}/httpd");
    let path = preparation.path(program.clone());
    preparation.operations.push(Operation::Create(path));
    let sums = popularity(count);
    let clients = (0..clients).map(|client| {
        let mut script = Script::default();
        for file in &files {
            script.path(format!("{SERVER}/../../../../{DOCUMENTS}/{file}"));
        }
        let mut numbers = Numbers(1000 + client as u64);
        script.operations = (0..operations).map(|_| request(&sums, &mut numbers)).collect();
        script
    });
    let clients = clients.collect();
    let held = vec![program.into_bytes().into()];
    Load { preparation, held, clients, entries_max: count * 2 + 1000 }
}

/// The path of file `number`: popular ones are in all directories alike.
fn file(number: usize) -> String {
    let (outer, inner) = (number % FAN_OUT, number / FAN_OUT % FAN_OUT);
    format!("a{outer}/b{inner}/c/page{number:06}.html")
}

fn directories(script: &mut Script, path: &str) {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.for_each(|end| directory(script, path[..end].to_owned()));
}

fn directory(script: &mut Script, path: String) {
    let path = script.path(path);
    script.operations.push(Operation::CreateDirectory(path));
}

/// Running sums of the files' shares.
fn popularity(count: usize) -> Vec<f64> {
    let weight = |rank: usize| (rank as f64).powf(-SKEW);
    let total: f64 = (1..=count).map(weight).sum();
    let mut sum = 0.0;
    let add = |rank| {
        sum += weight(rank) / total;
        sum
    };
    (1..=count).map(add).collect()
}

fn request(sums: &[f64], numbers: &mut Numbers) -> Operation {
    let share = numbers.share();
    let file = sums.partition_point(|sum| *sum < share).min(sums.len() - 1);
    Operation::Open(file as u32)
}
