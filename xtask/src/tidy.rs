//! House rules that neither rustfmt nor clippy knows.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Which crates a crate may not know (DESIGN section 13).
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "engine",
        &["quintet-log", "quintet-wire", "quintet-sim", "mio", "tokio"],
    ),
    ("log", &["quintet-engine", "quintet-wire"]),
    ("wire", &["quintet-log", "mio", "tokio"]),
    ("web", &["quintet-log", "quintet-wire", "mio"]),
    ("door", &["quintet-log", "quintet-wire", "mio", "tokio"]),
    ("scripts", &["quintet-log", "quintet-wire", "mio", "tokio"]),
    (
        "hooks",
        &[
            "quintet-log",
            "quintet-wire",
            "quintet-scripts",
            "mio",
            "tokio",
        ],
    ),
];

/// Words the pure crates may not use: they have no clock, thread or socket.
const PURE: &[(&str, &[&str])] = &[
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
        }
        if name.ends_with(".md") {
            links(root, file, &text, &mut breaches);
        }
    }
    edges(root, &mut breaches)?;
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

fn edges(root: &Path, breaches: &mut Vec<String>) -> Result<()> {
    for (krate, forbidden) in FORBIDDEN {
        let path = root.join("crates").join(krate).join("Cargo.toml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let dependencies = text.split("[dev-dependencies]").next().unwrap_or_default();
        for name in *forbidden {
            if dependencies.lines().any(|line| line.starts_with(name)) {
                breaches.push(format!("crates/{krate} must not depend on {name}"));
            }
        }
    }
    Ok(())
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
