//! What is measured: the programs it needs, built and installed.

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

/// Builds what is needed and measures `what` as `arguments` ask for.
///
/// # Errors
/// If something does not build, or a server or load fails.
fn measure(root: &Path, what: &str, arguments: &[&str]) -> Result<()> {
    if !helps(arguments) {
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
            .args(arguments)
            .current_dir(root),
    )
}

/// Compares as `arguments` ask for.
///
/// # Errors
/// If a peer cannot be installed; as [`measure`].
fn compare(root: &Path, arguments: &[&str]) -> Result<()> {
    let arguments = from_here(arguments);
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let yes = arguments.contains(&needs::YES);
    arguments.retain(|argument| *argument != needs::YES);
    // Against another Quintet there are no peers.
    if !helps(&arguments) && !arguments.contains(&AGAINST) {
        needs::provide(PEERS, yes)?;
    }
    measure(root, "compare", &arguments)
}

const AGAINST: &str = "--against";

/// The same arguments with the file of `--against` named from the root on: it
/// is meant as seen from where the command is typed.
fn from_here(arguments: &[&str]) -> Vec<String> {
    let mut words = Vec::new();
    for argument in arguments {
        match argument.split_once('=') {
            Some((AGAINST, file)) => words.extend([AGAINST.to_owned(), file.to_owned()]),
            _ => words.push((*argument).to_owned()),
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

/// As the command line asks for.
///
/// # Errors
/// As [`compare`].
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    compare(root, &arguments)
}

/// What backlogs do, as the command line asks for.
///
/// # Errors
/// As [`measure`].
pub(crate) fn backlog(root: &Path, arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    measure(root, "backlog", &arguments)
}

/// A cluster beside bare JetStream, as the command line asks for.
///
/// # Errors
/// The NATS server cannot be had; as [`measure`].
pub(crate) fn cluster(root: &Path, arguments: &[String]) -> Result<()> {
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let nats = match helps(&arguments) {
        true => None,
        false => Some(crate::cluster::program(root)?.display().to_string()),
    };
    if let Some(nats) = &nats {
        arguments.extend(["--nats-server", nats]);
    }
    measure(root, "cluster", &arguments)
}

/// A first look, printed and not written.
///
/// # Errors
/// As [`compare`].
pub(crate) fn short(root: &Path) -> Result<()> {
    compare(root, &["--only", "small,pipelined", "--quick", "--print"])
}

#[cfg(test)]
mod tests {
    use super::from_here;

    #[test]
    fn a_file_is_meant_from_where_it_is_typed() {
        let here = std::env::current_dir().unwrap();
        let full = here.join("a/b").display().to_string();
        for words in [&["--against", "a/b"][..], &["--against=a/b"]] {
            assert_eq!(from_here(words), ["--against", full.as_str()]);
        }
        assert_eq!(
            from_here(&["--only=cpu", "--against", "/x", "--print"]),
            ["--only=cpu", "--against", "/x", "--print"]
        );
        assert_eq!(from_here(&["--against"]), ["--against"]);
    }
}
