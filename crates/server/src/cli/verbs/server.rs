//! `quintet drain`, `undrain` and `reload`: the server as a whole.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::super::Where;
use super::super::client::Client;

/// Arguments of `drain`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  quintet drain && until quintet stats | grep -q '^ready  *0'; do sleep 1; done\n\n\
                        As SIGUSR1: until quintet undrain, or the next start. A node of a cluster that \
                        others should\nown rather than it: quintet cluster drain."
)]
pub(in super::super) struct Drain {
    #[command(flatten)]
    at: Where,
}

/// Arguments of `undrain`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quintet undrain")]
pub(in super::super) struct Undrain {
    #[command(flatten)]
    at: Where,
}

/// Arguments of `reload`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quintet reload\n\n\
                        As SIGHUP; answers when it is done. What is wrong with the file is in the \
                        server's log: then what\nwas in force stays, and the exit code is 1.")]
pub(in super::super) struct Reload {
    #[command(flatten)]
    at: Where,
}

impl Drain {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        order(&self.at, "drain", "puts are refused from now on")
    }
}

impl Undrain {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        order(&self.at, "undrain", "puts are taken again")
    }
}

impl Reload {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let request = json!({ "reload": {} });
        let reply = Client::connect(&self.at)?.ask(&request, &mut std::io::empty())?;
        writeln!(stdout(), "the configuration was read again")?;
        for note in reply["done"].as_str().unwrap_or_default().lines() {
            writeln!(stdout(), "{note}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn order(at: &Where, verb: &str, says: &str) -> Result<ExitCode> {
    Client::connect(at)?.ask(&json!({ verb: {} }), &mut std::io::empty())?;
    writeln!(stdout(), "{says}")?;
    Ok(ExitCode::SUCCESS)
}
