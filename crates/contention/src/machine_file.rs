//! The machine file: a machine as TOML, read and checked.
//!
//! # Boundary
//! What a machine is, and its text ([`Machine::to_text`]), is [`uvfs_coherence::machine`]'s: that crate is loaded into programs
//! under analysis, and a reader of TOML has no business there.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! TOML, since people write these files and comment them. Weakness: the text and its reader are in two crates; a test
//! here holds them together.

use std::path::Path;
use uvfs_coherence::{Error, Machine};

/// Reads a machine file and checks it.
///
/// # Errors
/// A line that names the file, the place in it and the fault.
pub fn read(path: impl AsRef<Path>) -> Result<Machine, Error> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::new(format!("{}: the machine file cannot be read: {error}", path.display()))
    })?;
    parse(&text).map_err(|error| Error::new(format!("{}: {error}", path.display())))
}

/// The machine of a file's text. Parts that it leaves out are those of [`Machine::default`].
///
/// # Errors
/// As [`read`], without the file.
pub fn parse(text: &str) -> Result<Machine, Error> {
    let machine: Machine = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Error::new(format!("line {line}: {}: correct the machine file", error.message()))
    })?;
    machine.validate()?;
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_coherence::machine::Parameter;

    #[test]
    fn a_file_gives_the_machine_that_was_written() {
        let mut machine = Machine::default().with(96, 3);
        machine.name = "a \"quoted\" name\nof two lines, with \\, \u{1} and \u{7f}".to_string();
        machine.distances = vec![vec![10, 15, 30], vec![15, 10, 30], vec![30, 30, 10]];
        machine.latency.hit = Parameter::measured(0.625);
        machine.cost.time_slice = Parameter::measured(1.0e7);
        machine.latency.remote_memory = Parameter::scaled(410.0);
        let text = machine.to_text();
        assert_eq!(parse(&text).unwrap(), machine, "{text}");
        assert!(text.contains("hit = { value = 0.625, source = \"measured\" }"), "{text}");
        assert!(!machine.assumed().contains(&"latency.hit".to_string()));
        assert!(machine.assumed().contains(&"latency.atomic".to_string()));
        // A number that only follows a measured one was not measured.
        assert!(machine.assumed().contains(&"latency.remote_memory".to_string()));
    }

    #[test]
    fn what_a_file_leaves_out_is_assumed() {
        let machine = parse("cores = 64\nnodes = 2\n").expect("a machine");
        assert_eq!(machine, Machine::default().with(64, 2));
    }

    #[test]
    fn a_wrong_file_says_where() {
        let check = |text: &str, expected: &str| {
            let error = parse(text).expect_err("must be refused").to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("cores = 8\ncoers = 9\n", "line 2: unknown field `coers`");
        check("[latency]\nhit = 3\n", "line 2");
        check(
            "[latency]\nhit = { value = 3, source = \"guessed\" }\n",
            "unknown variant `guessed`",
        );
        check("cores = 4000\n", "`cores` is 4000");
        let error = read("/nonexistent/machine.toml").expect_err("no file").to_string();
        assert!(
            error.starts_with("/nonexistent/machine.toml: the machine file cannot be read"),
            "{error}"
        );
    }
}
