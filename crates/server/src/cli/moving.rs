//! `quintet move`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::Where;
use super::client::Client;
use super::progress::{Of, Progress};

/// Messages asked for at once; the server does no more in one step.
const AT_ONCE: u64 = 500;

/// Arguments of `move`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet move work later                     all that is ready\n  \
                        quintet move work work-dead --state buried  those that were buried\n  \
                        quintet move work later --dry-run           how many it would be\n  \
                        quintet move --id 1234 later                this one\n\n\
                        A message goes to the end of the other queue and is ready there, whatever \
                        it was. What is reserved stays. What is put meanwhile stays too."
)]
pub(super) struct Move {
    #[command(flatten)]
    at: Where,
    /// From which queue, and to which; with --id only to which.
    #[arg(value_names = ["FROM", "TO"], num_args = 1..=2, required = true)]
    queues: Vec<String>,
    /// Only this message.
    #[arg(long, conflicts_with_all = ["state", "max", "dry_run"])]
    id: Option<u64>,
    /// Which of them.
    #[arg(long, value_enum, default_value = "ready")]
    state: Which,
    /// So many at most, those that would be taken first.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Only print how many there are.
    #[arg(long)]
    dry_run: bool,
    /// Print the number as JSON.
    #[arg(long)]
    json: bool,
    /// No progress on stderr.
    #[arg(long)]
    quiet: bool,
}

/// States that messages can be moved out of.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Which {
    Ready,
    Delayed,
    Buried,
    Archived,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Which::Ready => "ready",
            Which::Delayed => "delayed",
            Which::Buried => "buried",
            Which::Archived => "archived",
        }
    }

    /// How many of them the numbers of a queue tell of.
    fn count(self, numbers: &Value) -> Option<u64> {
        let names: &[&str] = match self {
            Which::Ready => &["ready", "held_back"],
            Which::Delayed => &["delayed"],
            Which::Buried => &["buried"],
            Which::Archived => &["done", "relayed"],
        };
        names
            .iter()
            .map(|name| numbers.get(name).and_then(Value::as_u64))
            .sum()
    }
}

impl Move {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let mut ask = |what: Value| client.ask(&what, &mut std::io::empty());
        let (from, to) = match (self.id, self.queues.as_slice()) {
            (Some(id), [to]) => {
                ask(json!({ "move": { "id": id, "to": to } }))?;
                self.print(1)?;
                return Ok(ExitCode::SUCCESS);
            }
            (None, [from, to]) => (from, to),
            (Some(_), _) => bail!("with --id, name only the queue the message goes to"),
            (None, _) => bail!("name two queues: quintet move FROM TO"),
        };
        if from == to {
            bail!("a queue's messages cannot move to the same queue");
        }
        let stats = ask(json!({ "stats": { "queue": from } }))?;
        let Some(there) = self.state.count(&stats["queue"]) else {
            bail!("the server is of another version");
        };
        // Only what was there at the start, so that it ends beside a producer.
        let wanted = there.min(self.max.unwrap_or(u64::MAX));
        if self.dry_run {
            self.print(wanted)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut progress = Progress::new("moved", Of::Messages(wanted), self.quiet);
        while progress.messages() < wanted {
            let max = (wanted - progress.messages()).min(AT_ONCE);
            let of = json!({
                "queue": from,
                "to": to,
                "state": self.state.name(),
                "max": max,
            });
            let reply = ask(json!({ "move": of }))?;
            match reply.get("count").and_then(Value::as_u64) {
                // Others took the rest meanwhile.
                Some(0) => break,
                Some(count) => progress.add(count, 0, progress.messages() + count),
                None => bail!("the server is of another version"),
            }
        }
        progress.clear();
        self.print(progress.messages())?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, messages: u64) -> Result<()> {
        let mut out = stdout().lock();
        if self.json {
            let moved = json!({ "messages": messages, "dry_run": self.dry_run });
            writeln!(out, "{moved}")?;
            return Ok(());
        }
        let would = if self.dry_run { "would be " } else { "" };
        let noun = if messages == 1 { "message" } else { "messages" };
        writeln!(out, "{messages} {noun} {would}moved")?;
        Ok(())
    }
}
