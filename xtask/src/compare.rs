//! Measurements: builds and installs the programs that they need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
    let target = root.join(crate::target(root));
    let release = target.join("release");
    // A file among the options is meant from the folder where the command is typed.
    crate::run(
        Command::new(release.join("quintet-bench"))
            .arg(what)
            .args(with_defaults(
                options,
                [
                    ("--quintet", release.join("quintet")),
                    ("--scratch", target.join(what)),
                    ("--root", root.to_owned()),
                ],
            )),
    )
}

/// These options, and before them the others of `own`: none may be given twice.
fn with_defaults(given: &[String], own: [(&str, PathBuf); 3]) -> Vec<OsString> {
    let own = own.into_iter().filter(|(name, _)| !has(given, name));
    let own = own.flat_map(|(name, path)| [OsString::from(name), OsString::from(path)]);
    own.chain(given.iter().map(OsString::from)).collect()
}

/// True if this option is among them, with its value behind it or in it.
fn has(options: &[String], name: &str) -> bool {
    options
        .iter()
        .any(|one| one.split('=').next() == Some(name))
}

/// `cargo xtask compare`.
///
/// # Errors
/// A peer cannot be installed; as [`measure`].
pub(crate) fn run(root: &Path, options: &[String]) -> Result<()> {
    let mut options = options.to_vec();
    let yes = options.iter().any(|option| option == needs::YES);
    options.retain(|option| option != needs::YES);
    // Against another Quintet there are no peers.
    let mut words = options.iter();
    if !helps(&options) && !words.any(|option| option.starts_with("--against")) {
        needs::provide(PEERS, yes)?;
    }
    measure(root, "compare", &options)
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
    if !helps(&options) && !has(&options, "--nats-server") {
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
    use super::with_defaults;

    #[test]
    fn an_option_that_is_given_is_not_given_twice() {
        let own = || ["--quintet", "--scratch", "--root"].map(|name| (name, "own".into()));
        let given = ["--root", "x", "--scratch=y"].map(str::to_owned);
        let all = with_defaults(&given, own());
        assert_eq!(all, ["--quintet", "own", "--root", "x", "--scratch=y"]);
        assert_eq!(with_defaults(&[], own()).len(), 6);
    }
}
