//! Programs of this workspace, for tests that drive them from outside.

use std::path::PathBuf;
use std::process::Command;

/// The program `name` of the package `package`, beside this test's own target directory; built if it is not there.
pub fn built(package: &str, name: &str) -> PathBuf {
    // This test is `TARGET/PROFILE/deps/NAME-…`.
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.ancestors().nth(2).expect("a target directory");
    let program = profile.join(name);
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", package, "--target-dir"]);
        build.arg(profile.parent().expect("a target directory"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let done = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{package} does not build:\n{said}");
    }
    program
}
