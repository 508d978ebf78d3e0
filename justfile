# Short names for the project's verbs. Each is one command that works without just, too.

# List the verbs.
default:
    @just --list

# Formatting, lints, documentation, licences, the repository's own rules.
check:
    cargo xtask check

# Only the repository's own rules; takes a second.
tidy:
    cargo xtask tidy

# Every unit, property, fault, race and mount test.
test *arguments:
    cargo test --workspace {{arguments}}

# The same, several test programs at a time.
test-all:
    cargo xtask test

# The loom models of uvfs-concurrent and uvfs-containers.
model:
    cargo xtask model

# Lints of the packages outside the workspace (bench-compare, bench-papers, fuzz), and tests of the papers.
outside:
    cargo xtask outside

# The fuzz targets, e.g. `just fuzz --seconds 600 walk`; needs nightly and cargo-fuzz.
fuzz *arguments:
    cargo xtask fuzz {{arguments}}

# The unit tests under the address and the thread sanitizer; needs nightly.
safety:
    cargo xtask safety

# Print the lock classes into docs/locking.md.
locks:
    cargo xtask locks

# The suites on real mounts, e.g. `just conformance --backend dir --suite posix`.
conformance *arguments:
    cargo xtask conformance {{arguments}}

# Measurements, e.g. `just bench mount --quick`.
bench *arguments:
    cargo run --release -p uvfs-bench -- {{arguments}}

# Published experiments run again, e.g. `just papers dcache --quick`.
papers *arguments:
    cargo run --release --manifest-path bench-papers/Cargo.toml -- {{arguments}}

# A Debian package and an archive, e.g. `just dist --target x86_64-unknown-linux-musl`.
dist *arguments:
    cargo xtask dist {{arguments}}

# What is too long for the gate or needs downloads, e.g. `just night --only bare`.
night *arguments:
    cargo xtask night {{arguments}}

# Everything the gate runs.
all:
    .ci/run
