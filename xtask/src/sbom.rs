//! `cargo xtask sbom`: what the binary is made of, as CycloneDX, and which of
//! it has unsafe code. Needs no network: cargo's own files say it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{cargo_command, target};

/// What is shipped.
const BINARY: &str = "quintet";
/// Crates whose code every request passes through, beside our own.
const HOT: &[&str] = &[
    "bytes",
    "crc32c",
    "foldhash",
    "hashbrown",
    "memchr",
    "mio",
    "rustix",
    "smallvec",
];

/// Writes `sbom.cdx.json` below the target directory.
///
/// # Errors
/// Cargo does not know its own packages, or the file cannot be written.
pub(crate) fn write(root: &Path) -> Result<()> {
    let metadata = metadata(root)?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let sums = checksums(&lock);
    let shipped = shipped(&metadata)?;
    let mut components = Vec::new();
    let mut with_unsafe = BTreeSet::new();
    for package in packages(&metadata) {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        if !shipped.contains(text("id")) || package["source"].is_null() {
            continue;
        }
        let (name, version) = (text("name"), text("version"));
        let folder = Path::new(text("manifest_path")).parent();
        if folder.is_some_and(|folder| has_unsafe(&folder.join("src"))) {
            with_unsafe.insert(name.to_owned());
        }
        components.push(component(name, version, text("license"), &sums));
    }
    let path = target(root).join("sbom.cdx.json");
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": BINARY } },
        "components": components,
    });
    fs::write(&path, serde_json::to_string_pretty(&document)?)
        .with_context(|| path.display().to_string())?;
    let hot: Vec<&str> = HOT
        .iter()
        .copied()
        .filter(|hot| with_unsafe.contains(*hot))
        .collect();
    println!(
        "xtask: {}: {} crates of others, {} with unsafe code, of them {} where every request \
         passes: {}",
        path.display(),
        components.len(),
        with_unsafe.len(),
        hot.len(),
        hot.join(", ")
    );
    Ok(())
}

fn metadata(root: &Path) -> Result<Value> {
    let said = cargo_command()
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !said.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&said.stderr));
    }
    serde_json::from_slice(&said.stdout).context("what cargo metadata says")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

/// Ids of all that ends in the binary: what only builds or tests it does not.
fn shipped(metadata: &Value) -> Result<BTreeSet<String>> {
    let named = |package: &&Value| package["name"] == BINARY && package["source"].is_null();
    let binary = packages(metadata)
        .iter()
        .find(named)
        .context("the binary's package")?;
    let mut left = vec![binary["id"].as_str().unwrap_or_default().to_owned()];
    let nodes = metadata["resolve"]["nodes"].as_array().context("nodes")?;
    let nodes: BTreeMap<&str, &Value> = nodes
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let mut found = BTreeSet::new();
    while let Some(id) = left.pop() {
        let deps = nodes
            .get(id.as_str())
            .and_then(|node| node["deps"].as_array());
        for dep in deps.into_iter().flatten() {
            let kinds = dep["dep_kinds"].as_array();
            let normal = |kind: &Value| kind["kind"].is_null();
            if kinds.is_some_and(|kinds| kinds.iter().any(normal)) {
                left.extend(
                    dep["pkg"]
                        .as_str()
                        .filter(|pkg| !found.contains(*pkg))
                        .map(str::to_owned),
                );
            }
        }
        found.insert(id);
    }
    Ok(found)
}

/// Checksums of a lock file by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let packages = lock.split("[[package]]").skip(1);
    let one = |package: &str| {
        let value = |key: &str| {
            let mut lines = package.lines();
            let found = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            Some(found?.trim_end_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    packages.filter_map(one).collect()
}

fn component(
    name: &str,
    version: &str,
    license: &str,
    sums: &BTreeMap<(String, String), String>,
) -> Value {
    let sum = sums.get(&(name.to_owned(), version.to_owned()));
    let hashes = sum.map(|sum| json!({ "alg": "SHA-256", "content": sum }));
    json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
        "licenses": [{ "expression": license.replace('/', " OR ") }],
        "hashes": hashes.into_iter().collect::<Vec<_>>(),
    })
}

/// True if a source file below `folder` has an unsafe block, function or impl.
fn has_unsafe(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        if path.is_dir() {
            return has_unsafe(&path);
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
            .iter()
            .any(|word| text.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_has_its_checksum() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"0.1.0\"\n";
        let sums = checksums(lock);
        assert_eq!(sums.len(), 1);
        let made = component("a", "1.0.0", "MIT/Apache-2.0", &sums);
        assert_eq!(made["hashes"][0]["content"], "ff");
        assert_eq!(made["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(made["purl"], "pkg:cargo/a@1.0.0");
    }

    #[test]
    fn what_only_builds_is_not_shipped() {
        let metadata = json!({
            "packages": [{ "name": "quintet", "id": "q", "source": null }],
            "resolve": { "nodes": [
                { "id": "q", "deps": [
                    { "pkg": "a", "dep_kinds": [{ "kind": null }] },
                    { "pkg": "b", "dep_kinds": [{ "kind": "dev" }, { "kind": "build" }] },
                ] },
                { "id": "a", "deps": [{ "pkg": "q", "dep_kinds": [{ "kind": null }] }] },
            ] },
        });
        let shipped = shipped(&metadata).expect("found");
        assert_eq!(shipped.into_iter().collect::<Vec<_>>(), ["a", "q"]);
    }
}
