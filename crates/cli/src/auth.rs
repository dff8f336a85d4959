//! `quintet passwd` and `quintet token`: what lets users in, made here and
//! pasted into the configuration.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result, bail};
use quintet_auth::{NewToken, Password};
use quintet_client::words::utc;
use quintet_host::{random, wall_ms};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

const DAY_MS: u64 = 24 * 3_600_000;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  quintet passwd ann                         asks for the password, prints a [[user]] to paste
  pass show queue | quintet passwd           prints the line password = \"...\" alone

The hash (argon2id, 19 MiB, two passes) goes into the configuration or a password_file; SIGHUP
reloads it.")]
pub(super) struct Passwd {
    /// Name of the user; with it, the command prints a whole [[user]] table.
    name: Option<String>,
}

impl Passwd {
    pub(super) fn run(self) -> Result<()> {
        let password = read_password()?;
        let hash = Password::of(password.as_bytes(), random()?)
            .context("the password on standard input")?;
        let mut out = io::stdout().lock();
        if let Some(name) = &self.name {
            writeln!(out, "[[user]]\nname = \"{name}\"")?;
        }
        writeln!(out, "password = \"{}\"", hash.as_str())?;
        Ok(())
    }
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  quintet token ann --days 90

The first line is the token for ann; the server does not keep it. The last line goes into the
[[user]] table of ann.")]
pub(super) struct NewTokenFor {
    /// Name of the user.
    name: String,
    /// Days until the token expires; 0: never.
    #[arg(long, default_value_t = 365, value_name = "N")]
    days: u64,
}

impl NewTokenFor {
    pub(super) fn run(self) -> Result<()> {
        let token = NewToken::of(random()?);
        let until = match self.days {
            0 => String::new(),
            days => {
                let until = wall_ms().saturating_add(days.saturating_mul(DAY_MS));
                format!(" {}", utc(until))
            }
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{}", token.text)?;
        writeln!(out, "# for the [[user]] table of {}:", self.name)?;
        writeln!(out, "tokens = [\"{}{until}\"]", token.id.show())?;
        Ok(())
    }
}

/// A line of standard input; from a terminal twice, and unseen.
fn read_password() -> Result<String> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return line();
    }
    let before = tcgetattr(&stdin).context("cannot turn off the echo of the terminal")?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)
        .context("cannot turn off the echo of the terminal")?;
    let read = ask("Password: ").and_then(|first| Ok((first, ask("Again: ")?)));
    tcsetattr(&stdin, OptionalActions::Flush, &before)
        .context("cannot turn on the echo of the terminal")?;
    let (first, second) = read?;
    if first != second {
        bail!("the two passwords differ: repeat the command");
    }
    Ok(first)
}

fn ask(prompt: &str) -> Result<String> {
    let mut err = io::stderr().lock();
    write!(err, "{prompt}")?;
    err.flush()?;
    let line = line();
    writeln!(err)?;
    line
}

fn line() -> Result<String> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .context("cannot read the password as UTF-8 text")?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
