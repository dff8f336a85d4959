//! Crates of others by `deny.toml`, from what cargo itself knows: licences,
//! duplicates and sources, in a second and without another tool. `cargo xtask
//! deny` looks at the same, and at licence texts, with cargo-deny.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo_command;

/// A crate of others.
struct Package {
    name: String,
    version: String,
    /// An SPDX expression.
    license: String,
    source: String,
}

/// Looks at all crates of others that are built, tests included.
///
/// # Errors
/// What does not keep to `deny.toml`, a line each.
pub(crate) fn check(root: &Path) -> Result<()> {
    let rules: toml::Table = fs::read_to_string(root.join("deny.toml"))?.parse()?;
    let packages = packages(&metadata(root)?);
    let mut wrong = licenses(&packages, &words(&rules["licenses"], "allow"));
    wrong.extend(duplicates(&packages, &skipped(&rules)));
    wrong.extend(sources(&packages));
    if wrong.is_empty() {
        println!(
            "xtask: {} crates of others keep to deny.toml",
            packages.len()
        );
        return Ok(());
    }
    bail!("deny.toml is not kept:\n  {}", wrong.join("\n  "))
}

fn metadata(root: &Path) -> Result<Value> {
    let said = cargo_command()
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--all-features",
        ])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .args(["--filter-platform", "aarch64-unknown-linux-gnu"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !said.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&said.stderr));
    }
    serde_json::from_slice(&said.stdout).context("what cargo metadata says")
}

/// Those that are part of a build; our own have no source.
fn packages(metadata: &Value) -> Vec<Package> {
    let nodes = metadata["resolve"]["nodes"].as_array();
    let built: BTreeSet<&str> = nodes
        .into_iter()
        .flatten()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let all = metadata["packages"].as_array();
    let all = all.into_iter().flatten().filter_map(|package| {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let ours = package["source"].is_null() || !built.contains(package["id"].as_str()?);
        (!ours).then(|| Package {
            name: text("name"),
            version: text("version"),
            license: text("license"),
            source: text("source"),
        })
    });
    all.collect()
}

fn words<'a>(table: &'a toml::Value, key: &str) -> BTreeSet<&'a str> {
    let words = table.get(key).and_then(toml::Value::as_array);
    let words = words.into_iter().flatten();
    words.filter_map(toml::Value::as_str).collect()
}

/// `NAME@VERSION`, which may leave out its last numbers.
fn skipped(rules: &toml::Table) -> Vec<(&str, &str)> {
    let skip = rules["bans"].get("skip").and_then(toml::Value::as_array);
    let crates = skip
        .into_iter()
        .flatten()
        .filter_map(|skip| skip.get("crate"));
    crates
        .filter_map(|spec| spec.as_str()?.split_once('@'))
        .collect()
}

fn licenses(packages: &[Package], allowed: &BTreeSet<&str>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for package in packages {
        match License::read(&package.license) {
            Some(license) if license.is_met_by(allowed) => license.names(&mut used),
            Some(_) | None => wrong.push(format!(
                "{} {}: licence {:?} is not allowed",
                package.name, package.version, package.license
            )),
        }
    }
    let idle = allowed.iter().filter(|allowed| !used.contains(**allowed));
    wrong.extend(idle.map(|idle| format!("nothing has the licence {idle}, which is allowed")));
    wrong
}

fn duplicates(packages: &[Package], skipped: &[(&str, &str)]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, .. } in packages {
        let is = |skip: &str| version == skip || version.starts_with(&format!("{skip}."));
        if !skipped.iter().any(|skip| skip.0 == name && is(skip.1)) {
            versions.entry(name).or_default().insert(version);
        }
    }
    let twice = versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1);
    twice
        .map(|(name, versions)| {
            let versions: Vec<&str> = versions.into_iter().collect();
            format!(
                "{name} is there {} times: {}",
                versions.len(),
                versions.join(", ")
            )
        })
        .collect()
}

/// One registry, and nothing from anywhere else.
fn sources(packages: &[Package]) -> Vec<String> {
    let first = packages
        .iter()
        .find(|package| package.source.starts_with("registry+"));
    let registry = first.map_or("", |package| package.source.as_str());
    let others = packages.iter().filter(|package| package.source != registry);
    others
        .map(|package| {
            format!(
                "{} {} comes from {}",
                package.name, package.version, package.source
            )
        })
        .collect()
}

/// An SPDX expression.
#[derive(Debug)]
enum License {
    /// With its exception, if it has one.
    Is(String),
    All(Vec<License>),
    Any(Vec<License>),
}

impl License {
    /// `None`: it is none. A slash is an old way to write `OR`.
    fn read(text: &str) -> Option<Self> {
        let spaced = text.replace('/', " OR ");
        let spaced = spaced.replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace().peekable();
        let read = Self::any(&mut words)?;
        words.next().is_none().then_some(read)
    }

    fn any<'a>(words: &mut Words<impl Iterator<Item = &'a str>>) -> Option<Self> {
        let mut any = vec![Self::all(words)?];
        while words.next_if_eq(&"OR").is_some() {
            any.push(Self::all(words)?);
        }
        Some(Self::Any(any))
    }

    fn all<'a>(words: &mut Words<impl Iterator<Item = &'a str>>) -> Option<Self> {
        let mut all = vec![Self::one(words)?];
        while words.next_if_eq(&"AND").is_some() {
            all.push(Self::one(words)?);
        }
        Some(Self::All(all))
    }

    fn one<'a>(words: &mut Words<impl Iterator<Item = &'a str>>) -> Option<Self> {
        if words.next_if_eq(&"(").is_some() {
            let inside = Self::any(words)?;
            return words.next_if_eq(&")").map(|_| inside);
        }
        let name = words
            .next()
            .filter(|word| !["AND", "OR", "WITH", ")"].contains(word))?;
        match words.next_if_eq(&"WITH") {
            None => Some(Self::Is(name.to_owned())),
            Some(_) => Some(Self::Is(format!("{name} WITH {}", words.next()?))),
        }
    }

    fn is_met_by(&self, allowed: &BTreeSet<&str>) -> bool {
        match self {
            Self::Is(name) => allowed.contains(name.as_str()),
            Self::All(all) => all.iter().all(|one| one.is_met_by(allowed)),
            Self::Any(any) => any.iter().any(|one| one.is_met_by(allowed)),
        }
    }

    fn names(self, into: &mut BTreeSet<String>) {
        match self {
            Self::Is(name) => {
                into.insert(name);
            }
            Self::All(some) | Self::Any(some) => some.into_iter().for_each(|one| one.names(into)),
        }
    }
}

type Words<I> = std::iter::Peekable<I>;

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, license: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.to_owned(),
            source: "registry+here".to_owned(),
        }
    }

    #[test]
    fn a_licence_is_allowed_if_one_of_its_ways_is() {
        let allowed = BTreeSet::from(["MIT", "ISC"]);
        for (text, fine) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0/MIT", true),
            ("(GPL-3.0 OR ISC) AND MIT", true),
            ("(GPL-3.0 AND ISC) OR MPL-2.0", false),
            ("MIT WITH exception", false),
            ("GPL-3.0 OR MIT AND ISC", true),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT ISC", false),
        ] {
            let wrong = licenses(
                &[
                    package("a", "1.0.0", text),
                    package("b", "1.0.0", "MIT OR ISC"),
                ],
                &allowed,
            );
            assert_eq!(wrong.is_empty(), fine, "{text}: {wrong:?}");
        }
        let idle = licenses(&[package("a", "1.0.0", "MIT")], &allowed);
        assert_eq!(idle, ["nothing has the licence ISC, which is allowed"]);
    }

    #[test]
    fn a_crate_twice_is_said_unless_it_is_known() {
        let packages = ["0.2.17", "0.4.1", "1.0.0"].map(|version| package("a", version, "MIT"));
        assert_eq!(
            duplicates(&packages, &[("a", "0.2"), ("a", "0.4.1")]),
            Vec::<String>::new()
        );
        let said = duplicates(&packages, &[("a", "0"), ("b", "1")]);
        assert_eq!(
            said,
            Vec::<String>::new(),
            "a leading number stands for all of its versions"
        );
        let said = duplicates(&packages, &[("a", "0.2.1")]);
        assert_eq!(said, ["a is there 3 times: 0.2.17, 0.4.1, 1.0.0"]);
    }

    #[test]
    fn what_is_from_elsewhere_is_named() {
        let mut packages = [package("a", "1.0.0", "MIT"), package("b", "1.0.0", "MIT")];
        assert_eq!(sources(&packages), Vec::<String>::new());
        "git+there".clone_into(&mut packages[1].source);
        assert_eq!(sources(&packages), ["b 1.0.0 comes from git+there"]);
    }
}
