//! `quintet hold`: keys and queues of which nothing is handed out for a time.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::Where;
use super::super::api::{Api, part};
use super::super::table::{age, seen, table};
use super::clients::shown;
use super::duration;

/// Arguments of `hold`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet hold calls                                list the held \
                  keys\n  quintet hold calls --for 30s                      deliver nothing of the \
                  queue for 30 s\n  quintet hold calls --end                          deliver it \
                  again\n  quintet hold calls --with-key acme.com --for 30s  deliver nothing of this \
                  key for 30 s\n  quintet hold calls --with-key acme.com --end      deliver it \
                  again\n\nPuts continue, and messages of other keys are delivered. Keys need \
                  groups, key_in_flight_max or key_take_rate. The hold of a queue is a pause with an end: \
                  `quintet resume` ends it too. A hold does not shorten a longer hold or pause."
)]
pub(in super::super) struct Hold {
    #[command(flatten)]
    at: Where,
    /// Name of the queue.
    queue: String,
    /// Key of the messages [default: all of the queue].
    #[arg(long, value_name = "KEY", requires = "how")]
    with_key: Option<String>,
    /// Duration of the hold, a week at most.
    #[arg(long = "for", value_name = "TIME", value_parser = hold_time, group = "how")]
    time: Option<u64>,
    /// End the hold.
    #[arg(long, group = "how")]
    end: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A time of a hold: 0 would end it, for which there is `--end`.
fn hold_time(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0 => Err("takes 1ms to 7d; --end ends a hold".to_owned()),
        ms => Ok(ms),
    }
}

impl Hold {
    pub(in super::super) fn run(self) -> Result<ExitCode> {
        let mut api = Api::connect(&self.at)?;
        let queue = part(&self.queue);
        if self.time.is_none() && !self.end {
            let path = format!("/queues/{queue}/keys/held");
            self.print(&api.pages(&path, "keys", "cursor", "cursor")?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (path, what, name) = match &self.with_key {
            Some(key) => (
                format!("/queues/{queue}/keys/{}/hold", part(key)),
                "key",
                key,
            ),
            None => (format!("/queues/{queue}/hold"), "queue", &self.queue),
        };
        let hold_ms = self.time.unwrap_or(0);
        api.ask("POST", &path, Some(&json!({ "hold_ms": hold_ms })))?;
        match (self.json, hold_ms) {
            (true, _) => writeln!(stdout(), "{}", json!({ what: name, "hold_ms": hold_ms }))?,
            (false, 0) => writeln!(stdout(), "{} is not held", seen(name))?,
            (false, ms) => {
                let time = quintet_config::show_duration(ms);
                writeln!(stdout(), "{} is held for {time}", seen(name))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, held: &[Value]) -> Result<()> {
        if self.json {
            for key in held {
                writeln!(stdout(), "{key}")?;
            }
            return Ok(());
        }
        if held.is_empty() {
            return Ok(());
        }
        let ms = |key: &Value, field: &str| age(key[field].as_u64().unwrap_or(0));
        let mut rows = vec![["key", "held", "left"].map(str::to_owned)];
        rows.extend(
            held.iter()
                .map(|key| [shown(&key["key"]), ms(key, "held_ms"), ms(key, "left_ms")]),
        );
        table(&rows, &mut stdout().lock())?;
        Ok(())
    }
}
