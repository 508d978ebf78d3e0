//! The context of a published figure: commit, machine, load.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A few lines about the machine and its software.
pub fn describe() -> String {
    let repository = &crate::repository();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = first_line("/proc/sys/kernel/osrelease");
    let load = first_line("/proc/loadavg");
    let commit = git(repository, &["rev-parse", "--short", "HEAD"]);
    let changed = git(repository, &["status", "--porcelain", "--untracked-files=no"]);
    let changed = if changed.is_empty() { "" } else { " with changes" };
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu_model(&cpu).unwrap_or("unknown CPU");
    format!("commit {commit}{changed}; {cores} cores, {cpu}, Linux {kernel}; load {load}")
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_model_is_the_first_of_its_kind() {
        let text = "processor\t: 0\nmodel name\t: Fast One\n\nprocessor\t: 1\nmodel name\t: x\n";
        assert_eq!(cpu_model(text), Some("Fast One"));
        assert_eq!(cpu_model(""), None);
    }
}
