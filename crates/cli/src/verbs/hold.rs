//! `quintet hold`: keys and queues of which nothing is handed out for a time.

use std::io::{Write as _, stdout};

use anyhow::Result;
use serde_json::json;

use super::super::api::{Api, part};
use super::super::table::{age, print_list, seen};
use super::clients::shown;
use super::duration;

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
    pub(in super::super) fn run(self, mut api: Api) -> Result<()> {
        let queue = part(&self.queue);
        if self.time.is_none() && !self.end {
            let path = format!("/queues/{queue}/keys/held");
            let held = api.pages(&path, "keys", "cursor", "cursor")?;
            if held.is_empty() {
                return Ok(());
            }
            return print_list(
                &held,
                self.json,
                "key held left",
                |key, column| match column {
                    "key" => shown(&key["key"]),
                    time => age(key[format!("{time}_ms")].as_u64().unwrap_or(0)),
                },
            );
        }
        let (path, what, name) = match &self.with_key {
            Some(key) => (
                format!("/queues/{queue}/keys/{}/hold", part(key)),
                "key",
                key,
            ),
            None => (format!("/queues/{queue}/hold"), "queue", &self.queue),
        };
        let asked_ms = self.time.unwrap_or(0);
        api.ask("POST", &path, Some(&json!({ "hold_ms": asked_ms })))?;
        let hold_ms = match asked_ms {
            0 => Some(0),
            ms => self.left_ms(&mut api, &queue, ms),
        };
        let shown = seen(name);
        match (self.json, hold_ms) {
            (true, _) => writeln!(stdout(), "{}", json!({ what: name, "hold_ms": hold_ms }))?,
            (false, None) => writeln!(stdout(), "{shown} stays paused until it is resumed")?,
            (false, Some(0)) => writeln!(stdout(), "{shown} is not held")?,
            (false, Some(ms)) if ms == asked_ms => {
                let time = quintet_config::show_duration(ms);
                writeln!(stdout(), "{shown} is held for {time}")?;
            }
            (false, Some(ms)) => writeln!(stdout(), "{shown} stays held for {}", age(ms))?,
        }
        Ok(())
    }

    /// Duration of the hold after this request, ms: `asked_ms`, or more where a longer hold or
    /// pause stays. `None`: a pause without an end. A client that may not see the queue gets
    /// `asked_ms`.
    fn left_ms(&self, api: &mut Api, queue: &str, asked_ms: u64) -> Option<u64> {
        let left = match &self.with_key {
            Some(key) => {
                let path = format!("/queues/{queue}/keys/held");
                let held = api.pages(&path, "keys", "cursor", "cursor");
                let held = held.unwrap_or_default();
                let held = held.iter().find(|held| held["key"] == key.as_str());
                held.and_then(|held| held["left_ms"].as_u64())
            }
            None => match api.get(&format!("/queues/{queue}")) {
                Ok(shown) if shown["paused"] == true => Some(shown["paused_left_ms"].as_u64()?),
                Ok(_) | Err(_) => None,
            },
        };
        // The clock may count one more millisecond.
        Some(left.filter(|ms| *ms > asked_ms + 1).unwrap_or(asked_ms))
    }
}
