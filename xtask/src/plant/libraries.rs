//! The crate in which a test of `--lib` is: without it cargo builds the tests of every library that
//! depends on a changed one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::files_of_git;

/// The packages with a library, and the names of their functions and modules.
pub(super) struct Libraries(BTreeMap<String, BTreeSet<String>>);

impl Libraries {
    /// # Errors
    /// A file cannot be read.
    pub(super) fn of(root: &Path) -> Result<Self> {
        let files = files_of_git(root)?;
        let mut libraries = BTreeMap::new();
        for library in &files {
            let folder = library.strip_suffix("src/lib.rs");
            // Others are workspaces of their own.
            let Some(folder) = folder.filter(|folder| folder.starts_with("crates/")) else {
                continue;
            };
            let sources = format!("{folder}src/");
            let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml"))?;
            let mut lines = manifest.lines();
            let name = lines.find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
            let mut names = BTreeSet::new();
            for file in files.iter().filter(|file| file.starts_with(&sources)) {
                // A file that was deleted is listed until that is committed.
                if file.ends_with(".rs") && root.join(file).exists() {
                    names.extend(declared(&std::fs::read_to_string(root.join(file))?));
                }
            }
            libraries.insert(name.context("a package without a name")?.to_owned(), names);
        }
        Ok(Self(libraries))
    }

    /// The packages to build for these arguments of `cargo test`, as further arguments.
    pub(super) fn packages(&self, tests: &[&str]) -> Vec<String> {
        if tests.iter().any(|word| word.starts_with("--package")) {
            return Vec::new();
        }
        let filters = || tests.iter().filter(|word| !word.starts_with('-'));
        let has = |names: &BTreeSet<String>, filter: &str| {
            let mut parts = filter.split("::");
            parts.all(|part| names.iter().any(|name| name.contains(part)))
        };
        let all = self.0.iter().filter(|_| tests.contains(&"--lib"));
        let having = all.filter(|(_, names)| filters().any(|filter| has(names, filter)));
        let packages: Vec<String> = having
            .map(|(name, _)| format!("--package={name}"))
            .collect();
        match packages.is_empty() {
            true => vec!["--workspace".to_owned()],
            false => packages,
        }
    }
}

/// The names behind `fn` and `mod`.
fn declared(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2);
    let pairs = pairs.filter(|pair| ["fn", "mod"].contains(&pair[0]));
    pairs.map(|pair| pair[1].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::{Libraries, declared};

    #[test]
    fn functions_and_modules_are_found() {
        let text = "mod a;\n#[test]\nfn b_c() {}\npub(crate) async fn d<T>(e: T) {}\n";
        assert_eq!(declared(text), ["a", "b_c", "d"]);
    }

    /// Each would have all libraries built.
    #[test]
    fn tests_of_libraries_name_their_crate() {
        let libraries = Libraries::of(&crate::root()).unwrap();
        let tests = all().flat_map(|one| one.tests);
        for tests in tests.filter(|tests| tests.contains(&"--lib")) {
            let packages = libraries.packages(tests);
            assert!(packages[0].starts_with("--package=quintet-"), "{tests:?}");
        }
        assert_eq!(libraries.packages(&["--test=life"]), ["--workspace"]);
        assert_eq!(libraries.packages(&["--package=quintet-log"]), [""; 0]);
    }
}
