//! `quintet drop`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::Where;
use super::client::Client;

/// Arguments of `drop`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet drop 'import-*' --dry-run     how many there are\n  \
                        quintet drop 'import-*'               those that are empty\n  \
                        quintet drop 'import-*' --messages    all, with what is in them\n\n\
                        A queue that somebody uses again comes back, with the settings of the \
                        configuration file."
)]
pub(super) struct Drop {
    #[command(flatten)]
    at: Where,
    /// Which queues: a name, as `quintet queues` shows it, or one with * (any characters) and ?
    /// (any one).
    pattern: String,
    /// Also those that hold messages, and these with them.
    #[arg(long)]
    messages: bool,
    /// Only print how many there are.
    #[arg(long)]
    dry_run: bool,
    /// Print the numbers as JSON.
    #[arg(long)]
    json: bool,
}

/// What was dropped so far.
#[derive(Default)]
struct Sum {
    queues: u64,
    messages: u64,
    passed: u64,
}

impl Drop {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let mut sum = Sum::default();
        let mut from = Value::Null;
        // The server does a slice at a time, so that nobody waits for it.
        loop {
            let of = json!({
                "pattern": self.pattern,
                "messages": self.messages,
                "dry_run": self.dry_run,
                "from": from,
            });
            let reply = client.ask(&json!({ "drop": of }), &mut std::io::empty())?;
            let number = |key: &str| reply.get(key).and_then(Value::as_u64);
            let (Some(queues), Some(next)) = (number("queues"), reply.get("next")) else {
                bail!("the server is of another version");
            };
            sum.queues += queues;
            sum.messages += number("messages").unwrap_or(0);
            sum.passed += number("passed").unwrap_or(0);
            if next.is_null() {
                break;
            }
            from = next.clone();
        }
        self.print(&sum)?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, sum: &Sum) -> Result<()> {
        let mut out = stdout().lock();
        let Sum {
            queues,
            messages,
            passed,
        } = *sum;
        if self.json {
            let dropped = json!({
                "queues": queues,
                "messages": messages,
                "passed": passed,
                "dry_run": self.dry_run,
            });
            writeln!(out, "{dropped}")?;
            return Ok(());
        }
        let would = if self.dry_run { "would be " } else { "" };
        writeln!(
            out,
            "{queues} queues {would}dropped, with {messages} messages"
        )?;
        if passed > 0 {
            writeln!(
                out,
                "{passed} more hold messages: --messages drops these too"
            )?;
        }
        Ok(())
    }
}
