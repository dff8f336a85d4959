//! `quintet stats`, `metrics` and `queues`.

use std::io::{Write, stdout};

use anyhow::{Result, bail};
use quintet_types::{Name, Pattern};
use serde_json::Value;

use super::api::{Api, part};
use super::nearest::hint;
use super::table::{age, named, rate, seen, table};
use super::top::findings;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet stats\n  quintet stats work\n  quintet stats --all | grep \
                  cold_\n  quintet stats --locks\n  quintet stats --json"
)]
pub(super) struct Stats {
    /// Name of the queue.
    queue: Option<String>,
    /// Print zeros too.
    #[arg(long)]
    all: bool,
    /// Print the work for which clients waited more than 1 ms for a shard, with times.
    #[arg(long, conflicts_with_all = ["queue", "all", "json"])]
    locks: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let queue = self.queue.as_deref();
        let mut numbers = match queue {
            Some(queue) => api.get(&format!("/queues/{}", part(queue)))?,
            None => api.get("/server")?,
        };
        if let (Some(_), Some(all)) = (queue, numbers.as_object_mut()) {
            all.retain(|key, _| NOT_TOLD.split(' ').all(|other| other != key));
        }
        if !self.locks {
            judge(&mut api, &mut numbers);
        }
        let numbers = &numbers;
        let mut out = stdout().lock();
        if self.locks {
            table(&locks(numbers), &mut out)?;
            return Ok(());
        }
        if self.json {
            writeln!(out, "{numbers}")?;
            return Ok(());
        }
        let pairs = numbers.as_object().into_iter().flatten();
        let pairs = pairs.filter(|(_, value)| self.all || !is_zero(value));
        let pairs: Vec<_> = pairs
            .flat_map(|(key, value)| lines(key, value, self.all))
            .collect();
        let width = pairs.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        for (key, value) in pairs {
            writeln!(out, "{key:width$}  {value}")?;
        }
        Ok(())
    }
}

/// Numbers of a queue that `quintet queues` or `history` tells.
const NOT_TOLD: &str = "due_per_s in_per_s out_per_s paused_at_ms paused_by paused_left_ms";

/// Adds what needs attention.
fn judge(api: &mut Api, numbers: &mut Value) {
    let name = numbers["name"].as_str().map(str::to_owned);
    let Some(found) = findings(api) else { return };
    let found: Vec<String> = match name {
        Some(name) => {
            let about = found.listed.into_iter().filter(|one| one.queue == name);
            about.map(|finding| finding.text).collect()
        }
        None => found.lines().collect(),
    };
    numbers["needs_attention"] = found.into();
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

/// The lines of a value: a list has one for each, an object's numbers have one each (`zeros`: also
/// those that are 0).
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest is one value")]
fn lines(key: &str, value: &Value, zeros: bool) -> Vec<(String, String)> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(all) => all.iter().map(|one| (key.to_owned(), plain(one))).collect(),
        Value::Object(all) => {
            let all = all.iter().filter(|(_, value)| zeros || !is_zero(value));
            all.map(|(of, value)| (format!("{key}_{of}"), plain(value)))
                .collect()
        }
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) if key == "name" => vec![(key.to_owned(), named(text))],
        value => vec![(key.to_owned(), plain(value))],
    }
}

/// A row for each kind of work that held a shard while others waited, the longest time first.
fn locks(numbers: &Value) -> Vec<[String; 4]> {
    let number = |key: &str| numbers[key].as_f64().unwrap_or(0.0);
    let keys = numbers.as_object().into_iter().flat_map(|all| all.keys());
    let names = keys.filter_map(|key| key.strip_prefix("lock_")?.strip_suffix("_longest_us"));
    let mut holders: Vec<_> = names
        .map(|name| {
            let of = |what: &str| number(&format!("lock_{name}_{what}"));
            (of("longest_us"), of("waits"), of("us"), name)
        })
        .collect();
    holders.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut rows = vec![["holder", "times", "total", "longest"].map(str::to_owned)];
    rows.extend(holders.into_iter().map(|(longest, waits, total, name)| {
        let ms = |us: f64| format!("{:.1} ms", us / 1000.0);
        [name.to_owned(), waits.to_string(), ms(total), ms(longest)]
    }));
    rows
}

#[derive(clap::Args)]
#[command(after_help = "Example, for node_exporter's textfile collector:
  quintet metrics > quintet.prom.new && mv quintet.prom.new quintet.prom")]
pub(super) struct Metrics;

impl Metrics {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let text = api.text("/server/metrics")?;
        write!(stdout().lock(), "{text}")?;
        Ok(())
    }
}

/// Columns of `queues`.
const COLUMNS: [&str; 11] = [
    "name", "ready", "oldest", "delayed", "reserved", "buried", "in/s", "out/s", "bytes",
    "waiters", "state",
];

#[derive(clap::Args)]
#[command(after_help = "\
oldest is the age of the oldest ready message. in/s and out/s (by consumers) are the rates of
the last whole minute; - without a history (history_queues). A narrow terminal has fewer columns.

Examples:
  quintet queues
  quintet queues 'mail*' --sort oldest
  quintet queues --paused
  quintet queues --json")]
pub(super) struct Queues {
    /// Only queues with a matching name; * matches any characters.
    pattern: Option<String>,
    /// Only queues that are paused.
    #[arg(long)]
    paused: bool,
    /// Column to sort by; the largest number comes first.
    #[arg(long, value_name = "COLUMN", default_value = "name", hide_possible_values = true,
        value_parser = COLUMNS)]
    sort: String,
    /// Print a line of JSON for each queue.
    #[arg(long)]
    json: bool,
}

impl Queues {
    pub(super) fn run(self, mut api: Api) -> Result<()> {
        let mut queues = api.queues()?;
        let pattern = self.pattern.as_deref().map(Name::of_shown);
        let pattern = pattern.map(|name| Pattern::of_name(name.as_bytes()));
        if let Some(Pattern::Exact(wanted)) = &pattern {
            let wanted = wanted.to_string();
            let names = || queues.iter().filter_map(|queue| queue["name"].as_str());
            if !names().any(|name| name == wanted) {
                let hint = hint(&wanted, names());
                bail!("there is no queue {}{hint}", named(&wanted));
            }
        }
        queues.retain(|queue| {
            let name = Name::of_shown(queue["name"].as_str().unwrap_or_default());
            let fits = pattern
                .as_ref()
                .is_none_or(|all| all.matches(name.as_bytes()));
            fits && (!self.paused || queue["paused"] == true)
        });
        for queue in &mut queues {
            if let Some(all) = queue.as_object_mut() {
                all.retain(|key, _| !["due_per_s", "left_per_s", "why_slow"].contains(&&**key));
            }
        }
        self.sort(&mut queues);
        let mut out = stdout().lock();
        if self.json {
            for queue in queues {
                writeln!(out, "{queue}")?;
            }
            return Ok(());
        }
        let mut rows = vec![COLUMNS.map(str::to_owned)];
        let row = |queue: &Value| COLUMNS.map(|column| cell(queue, column));
        rows.extend(queues.iter().map(row));
        super::table::table_with(&self.sort, &rows, &mut out)?;
        Ok(())
    }

    fn sort(&self, queues: &mut [Value]) {
        let key = match self.sort.as_str() {
            // As they come.
            "name" => return,
            "state" => return queues.sort_by_key(|queue| state(queue).is_empty()),
            "oldest" => "oldest_ms",
            "in/s" => "in_per_s",
            "out/s" => "out_per_s",
            same => same,
        };
        let value = |queue: &Value| queue[key].as_f64().unwrap_or(-1.0);
        queues.sort_by(|a, b| value(b).total_cmp(&value(a)));
    }
}

fn cell(queue: &Value, column: &str) -> String {
    match column {
        "name" => named(queue["name"].as_str().unwrap_or_default()),
        "oldest" => age(queue["oldest_ms"].as_u64().unwrap_or(0)),
        "in/s" => rate(queue["in_per_s"].as_f64()),
        "out/s" => rate(queue["out_per_s"].as_f64()),
        "state" => state(queue).to_owned(),
        key => plain(&queue[key]),
    }
}

fn state(queue: &Value) -> &'static str {
    match (&queue["down"], &queue["paused"]) {
        (Value::Bool(true), _) => "down",
        (_, Value::Bool(true)) => "paused",
        _ => "",
    }
}

/// A JSON value without quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), seen)
}

#[cfg(test)]
mod tests {
    use super::{lines, locks};

    #[test]
    fn rates_of_nothing_are_zeros_too() {
        let rates = serde_json::json!({ "finished": 0.0, "failed": 0.5, "moved": 0 });
        let shown = lines("left_per_s", &rates, false);
        assert_eq!(shown, [("left_per_s_failed".to_owned(), "0.5".to_owned())]);
        assert_eq!(lines("left_per_s", &rates, true).len(), 3);
    }

    #[test]
    fn holders_of_locks_come_by_their_longest_time() {
        let numbers = serde_json::json!({
            "lock_timer_waits": 2, "lock_timer_us": 2500, "lock_timer_longest_us": 1500,
            "lock_command_put_waits": 1, "lock_command_put_us": 2040,
            "lock_command_put_longest_us": 2040, "log_sync_us": 7,
        });
        let [_, first, second] = &locks(&numbers)[..] else {
            panic!("{numbers}")
        };
        assert_eq!(first, &["command_put", "1", "2.0 ms", "2.0 ms"]);
        assert_eq!(second, &["timer", "2", "2.5 ms", "1.5 ms"]);
    }
}
