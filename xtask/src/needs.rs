//! The needs of a task: finds the missing ones, and installs them from Debian's packages with the
//! user's consent.

use std::io::{BufRead, IsTerminal as _, Write};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run;

/// A program or library of the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    /// In words, for a system that has no packages of Debian.
    name: &'static str,
    /// A line of the shell that ends well where it is met; none: a program is found by the name.
    line: Option<&'static str>,
    /// The Debian package that has it.
    package: &'static str,
}

/// A need that is met when `name` is found in `PATH` or root's; `package` is what to install.
pub(crate) const fn program(name: &'static str, package: &'static str) -> Need {
    Need {
        name,
        line: None,
        package,
    }
}

/// The package `package` for a library, which is there where a `line` of the shell ends well.
pub(crate) const fn library(name: &'static str, line: &'static str, package: &'static str) -> Need {
    Need {
        name,
        line: Some(line),
        package,
    }
}

impl Need {
    fn is_met(&self) -> bool {
        let found = || format!("PATH=$PATH:/usr/bin:/usr/sbin; command -v {}", self.name);
        ends_well(&self.line.map_or_else(found, str::to_owned))
    }
}

fn ends_well(line: &str) -> bool {
    Command::new("sh")
        .args(["-c", line])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A shell finds this program.
pub(crate) fn has(program: &str) -> bool {
    ends_well(&format!("command -v {program}"))
}

/// Those of `needs` that are not met, each once, in their order.
pub(crate) fn missing(needs: impl IntoIterator<Item = Need>) -> Vec<Need> {
    let mut missing: Vec<Need> = Vec::new();
    for need in needs {
        if !missing.contains(&need) && !need.is_met() {
            missing.push(need);
        }
    }
    missing
}

/// `--yes` among a task's arguments.
pub(crate) const YES: &str = "--yes";

/// Whether packages may be installed without a question.
pub(crate) fn may_install(yes: bool) -> bool {
    yes || std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}

/// Asks on the terminal, unless it may be done anyway; without a terminal the
/// answer is no.
///
/// # Errors
/// The terminal cannot be read or written.
pub(crate) fn consent(missing: &[Need], unasked: bool, out: &mut dyn Write) -> Result<bool> {
    let stdin = std::io::stdin();
    let asks = stdin.is_terminal();
    consent_of(missing, unasked, asks, &mut stdin.lock(), out)
}

fn consent_of(
    missing: &[Need],
    unasked: bool,
    asks: bool,
    from: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<bool> {
    if missing.is_empty() || unasked {
        return Ok(unasked);
    }
    writeln!(out, "xtask: not there: {}", names(missing))?;
    writeln!(
        out,
        "xtask: about a minute would install it: apt-get install {}",
        packages(missing).join(" ")
    )?;
    if !asks {
        writeln!(out, "xtask: nobody to ask; {YES} or CI=1 installs it")?;
        return Ok(false);
    }
    write!(out, "xtask: install it? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    from.read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Their names in a sentence.
pub(crate) fn names(needs: &[Need]) -> String {
    let names: Vec<&str> = needs.iter().map(|need| need.name).collect();
    names.join(", ")
}

/// Their names, and how to install them.
pub(crate) fn how_to_get(needs: &[Need]) -> String {
    let (names, packages) = (names(needs), packages(needs).join(" "));
    format!("needs {names}: apt-get install {packages}")
}

fn packages(needs: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    packages.dedup();
    packages
}

pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}

/// Installs them.
///
/// # Errors
/// This is no Debian, nobody here may install, or it fails; says what is missing.
pub(crate) fn install(missing: &[Need]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    if !has("apt-get") {
        bail!("please install: {}", names(missing));
    }
    let root = is_root();
    if !root && !has("sudo") {
        bail!("as root: apt-get install {}", packages(missing).join(" "));
    }
    let apt_get = |words: &[&str]| {
        let mut command = match root {
            true => Command::new("apt-get"),
            false => {
                let mut sudo = Command::new("sudo");
                sudo.args(["--preserve-env=DEBIAN_FRONTEND,RUNLEVEL", "apt-get"]);
                sudo
            }
        };
        command
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Servers are wanted as programs: at this level init starts none.
            .env("RUNLEVEL", "1");
        command
    };
    run(&mut apt_get(&["update", "-qq"]))?;
    run(apt_get(&["install", "-y", "-qq", "--no-install-recommends"]).args(packages(missing)))
}

/// Installs what of `needs` is missing, if that is agreed to.
///
/// # Errors
/// Something is missing and is not to be or cannot be installed; says what.
pub(crate) fn provide(needs: &[Need], yes: bool) -> Result<()> {
    let missing = missing(needs.iter().copied());
    if missing.is_empty() {
        return Ok(());
    }
    if !consent(&missing, may_install(yes), &mut std::io::stdout())? {
        bail!("please install: {}", names(&missing));
    }
    install(&missing)
}

#[cfg(test)]
mod tests {
    use super::{Need, consent_of, library, missing, program};

    const NEEDS: [Need; 4] = [
        program("sh", "dash"),
        program("no-such-program", "a-package"),
        library(
            "python3 with no_such",
            "python3 -c 'import no_such'",
            "b-package",
        ),
        program("no-such-program", "a-package"),
    ];

    /// The answer, and what was printed, when this is typed.
    fn answer_to(unasked: bool, asks: bool, typed: &str) -> (bool, String) {
        let mut out = Vec::new();
        let mut from = typed.as_bytes();
        let answer = consent_of(&NEEDS[1..3], unasked, asks, &mut from, &mut out);
        (answer.unwrap(), String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_missing_program_is_reported_once() {
        assert_eq!(missing(NEEDS), &NEEDS[1..3]);
    }

    #[test]
    fn nothing_is_installed_without_consent() {
        for (typed, agreed) in [("y\n", true), ("yes\n", true), ("\n", false), ("", false)] {
            let (answer, output) = answer_to(false, true, typed);
            assert_eq!(answer, agreed, "{typed:?}");
            assert!(
                output.contains("no-such-program, python3 with no_such"),
                "{output}"
            );
            assert!(
                output.contains("apt-get install a-package b-package"),
                "{output}"
            );
        }
        let (answer, output) = answer_to(false, false, "y\n");
        assert!(!answer, "nobody was asked");
        assert!(output.contains("nobody to ask"), "{output}");
        assert_eq!(answer_to(true, false, ""), (true, String::new()));
    }
}
