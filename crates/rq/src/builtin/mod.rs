//! Built-in scripts: `relay` brings messages to other servers, `rq_router`
//! sends them on by rules, `webhook` tells addresses what became of them. They
//! run as children like any script, and speak the same protocol on their pipe.

mod client;
mod hosts;
mod relay;
mod router;
mod webhook;

use std::fs::File;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use client::Client;
use quintet_scripts::ROUTER;
use serde_json::Value;

pub use hosts::Hosts;

/// Runs the built-in script of that name, as a child of the runner: with its
/// variables, in its folder. What it says is on the pipe. `hosts` are those it
/// may ask ([`Hosts::read`]); `ca` is a file with the authorities it trusts,
/// empty: those that browsers do.
pub fn main(name: &str, hosts: &str, ca: &str) -> ExitCode {
    let end = match (name, Hosts::read(hosts)) {
        ("relay", Ok(hosts)) => with_client(ca, None, |client| relay::run(&hosts, client)),
        (ROUTER, _) => router::run(),
        ("webhook", Ok(hosts)) => with_client(ca, Some(webhook::TIME), |client| {
            webhook::run(&hosts, client)
        }),
        (_, Err(why)) => End::Err(format!("{name}_hosts {why}")),
        _ => End::Err(format!("there is no built-in script {name}")),
    };
    log(&end.line());
    match say(&end.line()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("cannot tell RQ: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs a script that asks other servers.
fn with_client(ca: &str, whole: Option<Duration>, run: impl FnOnce(Client) -> End) -> End {
    match Client::new(ca, whole) {
        Ok(client) => run(client),
        Err(why) => End::Err(format!("relay_ca: {why}")),
    }
}

/// How a run ends.
#[derive(Clone, PartialEq, Eq, Debug)]
enum End {
    Done(String),
    Err(String),
    Relayed(String),
    /// Later, in so many seconds.
    Resend(u64, String),
}

impl End {
    fn line(&self) -> String {
        // A line is a line.
        let plain = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            End::Done(text) => format!("done {}", plain(text)),
            End::Err(text) => format!("err {}", plain(text)),
            End::Relayed(id) => format!("relayed {}", plain(id)),
            End::Resend(seconds, why) => format!("resend {seconds}-{}", plain(why)),
        }
    }
}

/// The end of a message whose address may not be asked.
fn not_among(setting: &str, url: &str) -> End {
    let host = hosts::target(url).map_or_else(|| url.to_owned(), |(host, _)| host);
    End::Err(format!(
        "{host} is not among {setting}: {setting} = \"{host}\" in the server's settings allows it"
    ))
}

/// RQ gives up a message of more runs than this.
const COUNT_MAX: u64 = 15;

/// How often this message was sent again.
fn count() -> u64 {
    variable("RQ_COUNT").parse().unwrap_or(0)
}

/// Later: the time grows with the square of the count. The queue's settings
/// may have another unit than RQ's, `env_vars = { RETRY_UNIT_S = "60" }`.
fn later(unit_s: u64, why: String) -> End {
    let unit_s = variable("RETRY_UNIT_S").parse().unwrap_or(unit_s);
    let count = count();
    End::Resend((count * count).saturating_mul(unit_s), why)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Writes a line to RQ.
fn say(line: &str) -> std::io::Result<()> {
    let pipe = format!("/dev/fd/{}", variable("RQ_WRITE"));
    let mut pipe = File::options().write(true).open(pipe)?;
    pipe.write_all(format!("{line}\n").as_bytes())
}

/// Writes a line to the message's log.
fn log(line: &str) {
    // Without a log there is nobody to tell.
    let _lost = writeln!(std::io::stdout().lock(), "{} - {line}", std::process::id());
}

/// The message, as the runner wrote it for built-in scripts.
fn read_message() -> Result<Value, String> {
    let bytes = std::fs::read("../msg").map_err(|error| format!("cannot read msg: {error}"))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("msg is not JSON: {error}"))
}

/// Content of a file of the job; `None` if it is not there.
fn read(name: &str) -> Option<String> {
    let text = std::fs::read_to_string(name).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Writes a file of the job so that it is there whole or not at all, also
/// after a power cut.
fn keep(name: &str, text: &str) -> Result<(), String> {
    let write = || {
        let new = format!("{name}.tmp");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, name)?;
        File::open(".")?.sync_all()
    };
    write().map_err(|error: io::Error| format!("cannot keep {name}: {error}"))
}
