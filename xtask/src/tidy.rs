//! House rules that neither rustfmt nor clippy knows.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::{circles, documented, files_of_git, pages, prose, words};

/// The dependencies that each crate may have: of the workspace, then third-party ones. `*` is any
/// but an event loop, which is named. A new dependency needs a review, and a word here.
const ALLOWED: &str = "\
types: | memchr smallvec
engine: types | foldhash hashbrown sha2 siphasher smallvec
wire: types | base64 chrono memchr sha2 subtle
client: policy types | base64 chrono chrono-tz serde strsim thiserror utoipa
log: | crc32c rustix thiserror
cluster: log | bytes crc32c rustix thiserror
jetstream: cluster log | * tokio
proxy: tls | * tokio
tls: | *
policy: types | chrono chrono-tz croner
tryhard: | tokio
host: engine log policy types | anyhow rustix smallvec tracing
hooks: policy types | *
trial: engine hooks types | mlua
otlp: client engine host tls types | *
auth: types | argon2 ipnet base64 hashbrown sha2 subtle thiserror
import: scripts | serde_json
scripts: client policy types | *
http: client tls types | * tokio
config: client policy scripts tls auth types wire | *
control: client types | *
api: control client http types | * tokio
console: api client http scripts types | * tokio
rq: client http scripts tls types | * tokio
web: api console client http rq scripts tls types | * tokio
sqs: client http tls types | * tokio
nodes: cluster config host jetstream log scripts | *
cli: bench config control client proxy hooks host import log nodes scripts sqs tls trial auth types wire | *
process: config client host types | * mio
edge: config client hooks host http log process tls auth types wire | * mio
node: cluster config client proxy host jetstream log nodes process scripts types | *
ops: config control client engine hooks host otlp policy tls types | *
server: cli config client edge proxy host http log node ops otlp process rq scripts sqs tls types web wire | * mio
sim: cluster client engine log types | *
faults: |
testkit: faults tls | *
stress: faults sim testkit | *
bench: tls | * mio
xtask: | *
";

/// Event loops.
const LOOPS: &[&str] = &["mio", "tokio"];

/// Crates without a clock, thread, file or socket, and the words they may not use.
const PURE: [&str; 3] = ["types", "engine", "wire"];
const IMPURE: [&str; 5] = [
    "Instant::now",
    "SystemTime",
    "std::thread",
    "std::net",
    "std::fs",
];

/// Checks all rules.
///
/// # Errors
/// A rule is broken; all breaches are printed first.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = files(root)?;
    let mut breaches = Vec::new();
    for (name, text) in &files {
        if name.ends_with(".rs") {
            rust(name, text, &mut breaches);
            breaches.extend(undocumented(root, name, text));
        }
        if name.ends_with(".md") {
            links(root, name, text, &mut breaches);
        }
    }
    dependencies(root, &mut breaches)?;
    let text_of = |name: &str| -> Result<&str> {
        let file = files.iter().find(|(file, _)| file == name);
        Ok(file
            .with_context(|| format!("{name} is not there"))?
            .1
            .as_str())
    };
    let (summary, tests) = (text_of("docs/SUMMARY.md")?, text_of(pages::SESSIONS)?);
    for (name, text) in &files {
        if name.starts_with("docs/") && name.ends_with(".md") {
            breaches.extend(pages::never_run(name, text, tests));
            if name != "docs/SUMMARY.md" {
                breaches.extend(pages::beginning(name, text));
            }
        }
    }
    let names = files.iter().map(|(name, _)| name.as_str());
    breaches.extend(pages::unlisted(summary, names));
    breaches.extend(circles::all(&files));
    breaches.extend(prose::breaches(root, &files)?);
    breaches.extend(words::breaches(&files));
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    ensure!(
        breaches.is_empty(),
        "{} breaches of the house rules",
        breaches.len()
    );
    println!("xtask: tidy, {} files", files.len());
    Ok(())
}

/// The text files of the working copy, named from the root.
///
/// # Errors
/// As [`files_of_git`].
pub(crate) fn files(root: &Path) -> Result<Vec<(String, String)>> {
    // Git may have a file that the folder has not.
    let read = |name: String| Some((name.clone(), std::fs::read_to_string(root.join(name)).ok()?));
    Ok(files_of_git(root)?.into_iter().filter_map(read).collect())
}

/// The public items of a crate's source file without a doc comment.
fn undocumented(root: &Path, name: &str, text: &str) -> Vec<String> {
    if !documents(name) {
        return Vec::new();
    }
    // A module's own words may stand in its file.
    let folder = match name.rsplit_once('/') {
        Some((folder, "lib.rs" | "mod.rs" | "main.rs")) => root.join(folder),
        Some(_) | None => root.join(name.trim_end_matches(".rs")),
    };
    let inside = |module: &str| {
        let files = [format!("{module}.rs"), format!("{module}/mod.rs")];
        files.iter().any(|file| {
            let text = std::fs::read_to_string(folder.join(file));
            text.is_ok_and(|text| text.starts_with("//!"))
        })
    };
    let missing = documented::missing(text, inside).into_iter();
    missing.map(|item| format!("{name}:{item}")).collect()
}

/// True for the sources of crates: tests and examples say what they do.
fn documents(name: &str) -> bool {
    let own = ["crates/", "bench/", "xtask/"];
    own.iter().any(|folder| name.starts_with(folder)) && name.contains("/src/")
}

fn rust(name: &str, text: &str, breaches: &mut Vec<String>) {
    if text.lines().count() > 800 {
        breaches.push(format!("{name} has over 800 lines: is it one thing?"));
    }
    // Spelt apart so that this file passes its own rule.
    for word in [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("unimple", "mented!"),
    ] {
        for (at, line) in text.lines().enumerate() {
            if line.contains(word) {
                breaches.push(format!("{name}:{}: {word}", at + 1));
            }
        }
    }
    let folder = name.strip_prefix("crates/").unwrap_or_default();
    let (krate, file) = folder.split_once('/').unwrap_or_default();
    if PURE.contains(&krate) && file.starts_with("src/") {
        for word in IMPURE.iter().filter(|word| text.contains(**word)) {
            breaches.push(format!("{name}: {word} in a crate without a world"));
        }
    }
}

/// Every crate of the workspace depends on what it may, and on nothing else.
fn dependencies(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    let mut crates = vec!["bench".to_owned(), "xtask".to_owned()];
    for folder in std::fs::read_dir(root.join("crates")).context("crates")? {
        let folder = folder?.file_name();
        crates.push(format!("crates/{}", folder.to_string_lossy()));
    }
    for krate in crates {
        let path = root.join(&krate).join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        edges_of(&krate, &text, breaches);
    }
    Ok(())
}

/// The dependencies of the workspace, and third-party ones, that [`ALLOWED`] has for a crate.
fn allowed(krate: &str) -> Option<(Vec<&'static str>, Vec<&'static str>)> {
    let name = krate.strip_prefix("crates/").unwrap_or(krate);
    let mut lines = ALLOWED.lines().filter_map(|line| line.split_once(": "));
    let (ours, others) = lines.find(|(krate, _)| *krate == name)?.1.split_once('|')?;
    Some((
        ours.split_whitespace().collect(),
        others.split_whitespace().collect(),
    ))
}

/// The edges that a crate's manifest adds, its tests' left out.
fn edges_of(krate: &str, manifest: &str, breaches: &mut Vec<String>) {
    let Some((ours, others)) = allowed(krate) else {
        breaches.push(format!("{krate} has no line in tidy's list of edges"));
        return;
    };
    let mut counts = false;
    for line in manifest.lines() {
        let mut name = line.split([' ', '=', '.']).next().unwrap_or_default();
        if let Some(section) = line.strip_prefix('[') {
            // Also those for a target, and a table of one dependency.
            let section = section.trim_end_matches(']');
            counts = section.contains("dependencies") && !section.contains("dev-dependencies");
            name = section
                .rsplit_once("dependencies.")
                .map_or("", |(_, name)| name);
        }
        if !counts || name.is_empty() || name.starts_with('#') {
            continue;
        }
        let fine = match name.strip_prefix("quintet") {
            Some(name) => ours.contains(&name.trim_start_matches('-')),
            None if others.contains(&"*") && !LOOPS.contains(&name) => true,
            None => others.contains(&name),
        };
        if !fine {
            breaches.push(format!("{krate} must not depend on {name}"));
        }
    }
}

/// Relative links must lead somewhere.
fn links(root: &Path, file: &str, text: &str, breaches: &mut Vec<String>) {
    for part in text.split("](").skip(1) {
        let Some(target) = part.split(')').next() else {
            continue;
        };
        let target = target.split('#').next().unwrap_or_default();
        if target.is_empty() || target.contains("://") || target.contains(' ') {
            continue;
        }
        let from = root.join(file);
        let there = from.parent().unwrap_or(root).join(target);
        if !there.exists() {
            breaches.push(format!("{file}: dead link to {target}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, edges_of};

    fn breaches(krate: &str, manifest: &str) -> Vec<String> {
        let mut breaches = Vec::new();
        edges_of(krate, manifest, &mut breaches);
        breaches
    }

    #[test]
    fn only_listed_edges_pass() {
        let fine = "[dependencies]\nquintet-types = { workspace = true }\nmemchr = \"2\"\n\
                    [dev-dependencies]\nquintet-log = \"1\"\n";
        assert!(breaches("crates/wire", fine).is_empty());
        for (krate, line) in [
            ("crates/wire", "quintet-log = \"1\""),
            ("crates/wire", "serde.workspace = true"),
            ("crates/engine", "quintet-client = { workspace = true }"),
            ("crates/scripts", "tokio = \"1\""),
            ("crates/scripts", "quintet = \"1\""),
            ("crates/web", "mio = \"1\""),
        ] {
            for section in ["dependencies", "target.'cfg(unix)'.dependencies"] {
                let found = breaches(krate, &format!("[{section}]\n{line}\n"));
                assert_eq!(found.len(), 1, "{krate} {line}");
            }
        }
        assert_eq!(breaches("crates/new", fine).len(), 1);
        // No product crate has the test kit.
        let krates = ALLOWED.lines().filter_map(|line| line.split_once(": "));
        let with_testkit = krates.filter(|(_, allowed)| allowed.contains("testkit"));
        let with_testkit: Vec<&str> = with_testkit.map(|(krate, _)| krate).collect();
        assert_eq!(with_testkit, ["stress"]);
        assert_eq!(breaches("crates/wire", "[dependencies.mio]\n").len(), 1);
    }
}
