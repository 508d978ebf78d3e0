//! The list of crates inside a program, in the CycloneDX format.
//!
//! # Boundary
//! From cargo's resolution to JSON; the hashes are those of the lock file, by which cargo checked its downloads.
//!
//! # Why
//! Users of the package look up its crates when one of them has a fault. Crates of tests and of building are not in the
//! program and not in the list. Weakness: it lists the crates that could be linked in, not those that the linker kept.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The list for `package`, as text.
pub(super) fn of(package: &str, metadata: &Value, lock: &str) -> Result<String, String> {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let root = packages.iter().find(|(_, one)| one["name"] == package && one["source"].is_null());
    let (root, about) = root.ok_or_else(|| format!("{package}: not in what cargo resolved"))?;
    let mut inside = BTreeSet::new();
    let mut waiting = vec![*root];
    while let Some(id) = waiting.pop() {
        for needed in nodes.get(id).into_iter().flat_map(|node| list(&node["deps"])) {
            // Without a kind: linked into the program, not only used by tests or while building.
            let is_linked = list(&needed["dep_kinds"]).any(|kind| kind["kind"].is_null());
            if let Some(id) = needed["pkg"].as_str().filter(|id| is_linked && inside.insert(*id)) {
                waiting.push(id);
            }
        }
    }
    let hashes = hashes(lock);
    let components: Vec<Value> = inside
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|package| component(package, &hashes))
        .collect();
    let document = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "application", "name": package, "version": about["version"],
            "licenses": [{"expression": about["license"]}],
        }},
        "components": components,
    });
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .map_err(|error| error.to_string())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn component(package: &Value, hashes: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or("").to_owned();
    let (name, version) = (text("name"), text("version"));
    // The old word for `OR` is no SPDX.
    let licence = text("license").replace('/', " OR ");
    let mut component = json!({
        "type": "library", "name": name, "version": version,
        "licenses": [{"expression": licence}],
    });
    if !package["source"].is_null() {
        component["purl"] = format!("pkg:cargo/{name}@{version}").into();
    }
    if let Some(hash) = hashes.get(&(name, version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": hash}]);
    }
    component
}

/// The checksums of a lock file, by name and version.
fn hashes(lock: &str) -> BTreeMap<(String, String), String> {
    let of = |block: &str, key: &str| {
        let value = block.split(&format!("\n{key} = \"")).nth(1)?;
        value.split('"').next().map(ToOwned::to_owned)
    };
    let blocks = lock.split("[[package]]");
    blocks
        .filter_map(|block| {
            Some(((of(block, "name")?, of(block, "version")?), of(block, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_with_its_hash_and_what_only_tests_use_is_not() {
        let package = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source});
        let needs = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("uvfs", Value::Null), package("a", json!("registry")),
                package("b", json!("registry")), package("t", json!("registry"))],
            "resolve": {"nodes": [
                {"id": "uvfs", "deps": [needs("a", Value::Null), needs("t", json!("dev"))]},
                {"id": "a", "deps": [needs("b", Value::Null), needs("a", Value::Null)]},
                {"id": "b", "deps": []}, {"id": "t", "deps": []},
            ]},
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n";
        let text = of("uvfs", &metadata, lock).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        let names: Vec<_> =
            list["components"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["a", "b"]);
        let first = &list["components"][0];
        assert_eq!(first["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(first["hashes"][0]["content"], "ff");
        assert_eq!(first["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(of("none", &metadata, lock).is_err());
    }
}
