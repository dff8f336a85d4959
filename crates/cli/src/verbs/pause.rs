//! `quintet pause` and `resume`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::Where;
use super::super::client::Client;
use super::duration;

/// Arguments of `pause`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet pause work             until quintet resume\n  \
                        quintet pause work --for 10m   and then by itself\n\n\
                        Takes wait, as if nothing were there; puts go on. It outlives restarts. What RQ calls \
                        pause is\nof its scripts: quintet rq pause."
)]
pub(in super::super) struct Pause {
    #[command(flatten)]
    at: Where,
    /// Names of queues.
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// For how long.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `resume`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  quintet resume work")]
pub(in super::super) struct Resume {
    #[command(flatten)]
    at: Where,
    /// Names of queues.
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Pause {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let request = |queue: &str| json!({ "pause": { "queue": queue, "for_ms": self.time } });
        each(&self.at, &self.queues, request, "paused", self.json)
    }
}

impl Resume {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let request = |queue: &str| json!({ "resume": { "queue": queue } });
        each(&self.at, &self.queues, request, "resumed", self.json)
    }
}

fn each(
    at: &Where,
    queues: &[String],
    request: impl Fn(&str) -> Value,
    done: &str,
    as_json: bool,
) -> Result<ExitCode> {
    let mut client = Client::connect(at)?;
    for queue in queues {
        client.ask(&request(queue), &mut std::io::empty())?;
        match as_json {
            true => writeln!(stdout(), "{}", json!({ done: queue }))?,
            false => writeln!(stdout(), "{queue} {done}")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
