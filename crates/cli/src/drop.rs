//! `quintet drop`.

use std::io::{Write as _, stdout};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::api::{Api, part};
use super::progress::count_of;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet drop 'import-*' --dry-run     only their numbers\n  \
                        quintet drop 'import-*'               empty queues only\n  quintet drop \
                        'import-*' --messages    all, with their messages\n\nA dropped queue is \
                        created again on its next use, with the settings of the configuration file."
)]
pub(super) struct Drop {
    /// Name of a queue, as `quintet queues` prints it, or a pattern: * is any characters, ? any
    /// one.
    pattern: String,
    /// Drop queues that hold messages too, with their messages.
    #[arg(long)]
    messages: bool,
    /// Only print the number of queues and messages.
    #[arg(long)]
    dry_run: bool,
    /// Print the numbers as JSON.
    #[arg(long)]
    json: bool,
}

/// Sum of the dropped queues so far.
#[derive(Default)]
struct Sum {
    queues: u64,
    messages: u64,
    passed: u64,
}

impl Drop {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let mut sum = Sum::default();
        let path = format!(
            "/queues?pattern={}&messages={}&dry_run={}",
            part(&self.pattern),
            self.messages,
            self.dry_run
        );
        // The server does a slice at a time, so that nobody waits for it.
        api.each_page(("DELETE", &path), ("cursor", "cursor"), |reply| {
            let number = |key: &str| reply[key].as_u64();
            sum.queues += number("queues").context("the server is of another version")?;
            sum.messages += number("messages").unwrap_or(0);
            sum.passed += number("passed").unwrap_or(0);
            Ok(true)
        })?;
        self.print(&sum)
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
            "{} {would}dropped, with {}",
            count_of(queues, "queue"),
            count_of(messages, "message")
        )?;
        match passed {
            0 => {}
            1 => writeln!(out, "1 more queue holds messages: --messages drops it too")?,
            passed => writeln!(
                out,
                "{passed} more queues hold messages: --messages drops them too"
            )?,
        }
        Ok(())
    }
}
