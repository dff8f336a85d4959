//! House rules that neither rustfmt nor clippy knows.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{circles, documented, pages};

/// What a crate may depend on: those of the workspace, and of others the ones
/// that are listed. A new edge is a line here, and so a decision.
struct Edges {
    /// Its folder.
    krate: &'static str,
    /// Crates of this workspace.
    ours: &'static [&'static str],
    /// Other crates; None: any but those that bring a world of their own.
    others: Option<&'static [&'static str]>,
}

const fn edges(
    krate: &'static str,
    ours: &'static [&'static str],
    others: Option<&'static [&'static str]>,
) -> Edges {
    Edges {
        krate,
        ours,
        others,
    }
}

/// Event loops: only those that are made of one may know one.
const LOOPS: &[&str] = &["mio", "tokio"];
/// Who may know which event loop.
const LOOPED: &[(&str, &str)] = &[
    ("bench", "mio"),
    ("crates/api", "tokio"),
    ("crates/console", "tokio"),
    ("crates/front", "tokio"),
    ("crates/http", "tokio"),
    ("crates/jetstream", "tokio"),
    ("crates/rq", "tokio"),
    ("crates/server", "mio"),
    ("crates/sqs", "tokio"),
    ("crates/web", "tokio"),
];

const ALLOWED: &[Edges] = &[
    edges("crates/types", &[], Some(&["memchr", "smallvec"])),
    edges(
        "crates/engine",
        &["quintet-types"],
        Some(&["foldhash", "hashbrown", "sha2", "siphasher", "smallvec"]),
    ),
    edges(
        "crates/wire",
        &["quintet-types"],
        Some(&["base64", "memchr", "sha2", "subtle"]),
    ),
    edges("crates/door", &["quintet-types"], Some(&["thiserror"])),
    edges("crates/log", &[], Some(&["crc32c", "rustix", "thiserror"])),
    edges(
        "crates/cluster",
        &["quintet-log"],
        Some(&["bytes", "crc32c", "rustix"]),
    ),
    edges(
        "crates/jetstream",
        &["quintet-cluster", "quintet-log"],
        None,
    ),
    edges("crates/front", &["quintet-tls"], None),
    edges("crates/tls", &[], None),
    edges(
        "crates/host",
        &["quintet-engine", "quintet-log", "quintet-types"],
        Some(&["anyhow", "rustix", "smallvec", "tracing"]),
    ),
    edges("crates/hooks", &["quintet-engine", "quintet-types"], None),
    edges(
        "crates/otlp",
        &[
            "quintet-door",
            "quintet-engine",
            "quintet-host",
            "quintet-tls",
            "quintet-types",
        ],
        None,
    ),
    edges(
        "crates/trust",
        &["quintet-types"],
        Some(&[
            "argon2",
            "ipnet",
            "base64",
            "hashbrown",
            "sha2",
            "subtle",
            "thiserror",
        ]),
    ),
    edges("crates/import", &["quintet-scripts"], Some(&["serde_json"])),
    edges("crates/scripts", &["quintet-door", "quintet-types"], None),
    edges(
        "crates/http",
        &["quintet-door", "quintet-tls", "quintet-types"],
        None,
    ),
    edges(
        "crates/api",
        &[
            "quintet-control",
            "quintet-door",
            "quintet-http",
            "quintet-types",
        ],
        None,
    ),
    edges(
        "crates/console",
        &[
            "quintet-api",
            "quintet-door",
            "quintet-http",
            "quintet-scripts",
            "quintet-types",
        ],
        None,
    ),
    edges(
        "crates/rq",
        &[
            "quintet-http",
            "quintet-scripts",
            "quintet-tls",
            "quintet-types",
        ],
        None,
    ),
    edges(
        "crates/web",
        &[
            "quintet-api",
            "quintet-console",
            "quintet-door",
            "quintet-http",
            "quintet-rq",
            "quintet-scripts",
            "quintet-tls",
            "quintet-types",
        ],
        None,
    ),
    edges(
        "crates/sqs",
        &[
            "quintet-door",
            "quintet-types",
            "quintet-http",
            "quintet-tls",
        ],
        None,
    ),
    edges(
        "crates/config",
        &[
            "quintet-door",
            "quintet-hooks",
            "quintet-host",
            "quintet-scripts",
            "quintet-tls",
            "quintet-trust",
            "quintet-types",
            "quintet-wire",
        ],
        None,
    ),
    edges(
        "crates/control",
        &[
            "quintet-config",
            "quintet-door",
            "quintet-types",
            "quintet-wire",
        ],
        None,
    ),
    edges(
        "crates/nodes",
        &[
            "quintet-cluster",
            "quintet-config",
            "quintet-host",
            "quintet-jetstream",
            "quintet-log",
            "quintet-scripts",
        ],
        None,
    ),
    edges(
        "crates/cli",
        &[
            "quintet-bench",
            "quintet-config",
            "quintet-console",
            "quintet-control",
            "quintet-door",
            "quintet-front",
            "quintet-hooks",
            "quintet-host",
            "quintet-import",
            "quintet-log",
            "quintet-nodes",
            "quintet-scripts",
            "quintet-sqs",
            "quintet-tls",
            "quintet-trust",
            "quintet-types",
            "quintet-wire",
        ],
        None,
    ),
    edges(
        "crates/server",
        &[
            "quintet-api",
            "quintet-cli",
            "quintet-cluster",
            "quintet-config",
            "quintet-control",
            "quintet-door",
            "quintet-engine",
            "quintet-front",
            "quintet-hooks",
            "quintet-host",
            "quintet-http",
            "quintet-jetstream",
            "quintet-log",
            "quintet-nodes",
            "quintet-otlp",
            "quintet-rq",
            "quintet-scripts",
            "quintet-sqs",
            "quintet-tls",
            "quintet-trust",
            "quintet-types",
            "quintet-web",
            "quintet-wire",
        ],
        None,
    ),
    edges(
        "crates/sim",
        &[
            "quintet-cluster",
            "quintet-door",
            "quintet-engine",
            "quintet-log",
            "quintet-types",
        ],
        None,
    ),
    edges("crates/faults", &[], Some(&[])),
    edges("crates/testkit", &["quintet-faults", "quintet-tls"], None),
    // Nothing depends on the stress test.
    edges(
        "crates/torment",
        &["quintet-faults", "quintet-sim", "quintet-testkit"],
        None,
    ),
    edges("bench", &["quintet-tls"], None),
    edges("xtask", &[], None),
];

/// Words the pure crates may not use: they have no clock, thread or socket.
const PURE: &[(&str, &[&str])] = &[
    (
        "types",
        &[
            "Instant::now",
            "SystemTime",
            "std::thread",
            "std::net",
            "std::fs",
        ],
    ),
    (
        "engine",
        &[
            "Instant::now",
            "SystemTime",
            "std::thread",
            "std::net",
            "std::fs",
        ],
    ),
    (
        "wire",
        &[
            "Instant::now",
            "SystemTime",
            "std::thread",
            "std::net",
            "std::fs",
        ],
    ),
];

/// # Errors
/// If a rule is broken; all breaches are printed first.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut breaches = Vec::new();
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    let mut rust_files = Vec::new();
    let files: Vec<PathBuf> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(PathBuf::from)
        .collect();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else {
            continue;
        };
        let name = file.display().to_string();
        if name.ends_with(".rs") {
            rust(&name, &text, &mut breaches);
            if documents(&name) {
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
                let missing = documented::missing(&text, inside);
                breaches.extend(missing.into_iter().map(|what| format!("{name}:{what}")));
            }
            rust_files.push((name.clone(), text.clone()));
        }
        if name.ends_with(".md") {
            links(root, file, &text, &mut breaches);
        }
    }
    dependencies(root, &mut breaches)?;
    let summary =
        std::fs::read_to_string(root.join("docs/SUMMARY.md")).context("docs/SUMMARY.md")?;
    let tests = std::fs::read_to_string(root.join(pages::SESSIONS)).context(pages::SESSIONS)?;
    for file in files.iter().filter_map(|file| file.to_str()) {
        if file.starts_with("docs/") && file.ends_with(".md") {
            // A file that git has and the folder has not.
            let page = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            breaches.extend(pages::never_run(file, &page, &tests));
        }
    }
    let names = files.iter().filter_map(|file| file.to_str());
    breaches.extend(pages::unlisted(&summary, names));
    breaches.extend(circles::all(&rust_files));
    for breach in &breaches {
        eprintln!("tidy: {breach}");
    }
    if breaches.is_empty() {
        println!("xtask: tidy, {} files looked at", files.len());
        Ok(())
    } else {
        bail!("{} breaches of the house rules", breaches.len())
    }
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
    for (krate, words) in PURE {
        if name.starts_with(&format!("crates/{krate}/src/")) {
            for word in *words {
                if text.contains(word) {
                    breaches.push(format!("{name}: {word} in a crate without a world"));
                }
            }
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

/// The edges that a crate's manifest adds, its tests' left out.
fn edges_of(krate: &str, manifest: &str, breaches: &mut Vec<String>) {
    let Some(allowed) = ALLOWED.iter().find(|edges| edges.krate == krate) else {
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
        let fine = match (name.strip_prefix("quintet"), allowed.others) {
            (Some(_), _) => allowed.ours.contains(&name),
            (None, Some(others)) => others.contains(&name),
            (None, None) => !LOOPS.contains(&name) || LOOPED.contains(&(krate, name)),
        };
        if !fine {
            breaches.push(format!("{krate} must not depend on {name}"));
        }
    }
}

/// Relative links must lead somewhere.
fn links(root: &Path, file: &Path, text: &str, breaches: &mut Vec<String>) {
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
            breaches.push(format!("{}: dead link to {target}", file.display()));
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
            ("crates/engine", "quintet-door = { workspace = true }"),
            ("crates/scripts", "tokio = \"1\""),
            ("crates/web", "mio = \"1\""),
        ] {
            for section in ["dependencies", "target.'cfg(unix)'.dependencies"] {
                let found = breaches(krate, &format!("[{section}]\n{line}\n"));
                assert_eq!(found.len(), 1, "{krate} {line}");
            }
        }
        assert_eq!(breaches("crates/new", fine).len(), 1);
        // No product crate has the test kit.
        let mut with_testkit = ALLOWED
            .iter()
            .filter(|edges| edges.ours.contains(&"quintet-testkit"));
        assert_eq!(
            with_testkit.next().map(|edges| edges.krate),
            Some("crates/torment")
        );
        assert!(with_testkit.next().is_none());
        assert_eq!(breaches("crates/wire", "[dependencies.mio]\n").len(), 1);
    }
}
