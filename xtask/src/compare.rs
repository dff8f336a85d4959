//! Measurements: builds and installs the programs that they need.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::needs::{self, Need, program};
use crate::{cargo, helps};

/// Debian packages of the servers compared, each with its program.
const PEERS: &[Need] = &[
    program("memcached", "memcached"),
    program("redis-server", "redis-server"),
    program("beanstalkd", "beanstalkd"),
];

/// Builds the programs that are needed, and measures `what` with these options.
///
/// # Errors
/// A program does not build, or a server or load fails.
fn measure(root: &Path, what: &str, options: &[String]) -> Result<()> {
    if !helps(options) {
        cargo(&["build", "--release", "-p", "quintet"])?;
    }
    cargo(&["build", "--release", "-p", "quintet-bench"])?;
    let target = crate::target(root);
    let release = target.join("release");
    crate::run(
        Command::new(release.join("quintet-bench"))
            .arg(what)
            .arg("--quintet")
            .arg(release.join("quintet"))
            .arg("--scratch")
            .arg(target.join(what))
            .args(options)
            .current_dir(root),
    )
}

/// `cargo xtask compare`.
///
/// # Errors
/// A peer cannot be installed; as [`measure`].
pub(crate) fn run(root: &Path, options: &[String]) -> Result<()> {
    let mut options = from_here(options);
    let yes = options.iter().any(|option| option == needs::YES);
    options.retain(|option| option != needs::YES);
    // Against another Quintet there are no peers.
    if !helps(&options) && !options.iter().any(|option| option == AGAINST) {
        needs::provide(PEERS, yes)?;
    }
    measure(root, "compare", &options)
}

const AGAINST: &str = "--against";

/// The same options with the file of `--against` as an absolute path: it is meant from the folder
/// where the command is typed.
fn from_here(options: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    for option in options {
        match option.split_once('=') {
            Some((AGAINST, file)) => words.extend([AGAINST.to_owned(), file.to_owned()]),
            _ => words.push(option.clone()),
        }
    }
    for at in 1..words.len() {
        if words[at - 1] == AGAINST
            && let Ok(file) = std::path::absolute(&words[at])
        {
            words[at] = file.display().to_string();
        }
    }
    words
}

/// `cargo xtask backlog`.
///
/// # Errors
/// As [`measure`].
pub(crate) fn backlog(root: &Path, options: &[String]) -> Result<()> {
    measure(root, "backlog", options)
}

/// `cargo xtask bench-cluster`: a cluster beside bare JetStream.
///
/// # Errors
/// The NATS server cannot be had; as [`measure`].
pub(crate) fn cluster(root: &Path, options: &[String]) -> Result<()> {
    let mut options = options.to_vec();
    if !helps(&options) {
        let server = crate::cluster::program(root)?.display().to_string();
        options.extend(["--nats-server".to_owned(), server]);
    }
    measure(root, "cluster", &options)
}

/// `cargo xtask bench`: a short comparison, printed and not written.
///
/// # Errors
/// As [`run`].
pub(crate) fn short(root: &Path) -> Result<()> {
    let options = ["--only", "small,pipelined", "--quick", "--print"];
    run(root, &options.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::from_here;

    #[test]
    fn a_file_is_meant_from_where_it_is_typed() {
        let of = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            from_here(&words).join(" ")
        };
        let here = std::env::current_dir().unwrap();
        let full = format!("--against {}", here.join("a/b").display());
        assert_eq!(of("--against a/b"), full);
        assert_eq!(of("--against=a/b"), full);
        for same in ["--only=cpu --against /x --print", "--against"] {
            assert_eq!(of(same), same);
        }
    }
}
