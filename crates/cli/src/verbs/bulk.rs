//! Acts on many messages: which of them, how many they are, and the slices in
//! which it is done.

use std::io::{IsTerminal as _, Write as _, stderr, stdin};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};
use signal_hook::consts::SIGINT;

use super::super::api::{Api, part};
use super::super::progress::{Of, Progress, STOPPED, count_of};
use super::super::table::say;
use super::duration;

/// Arguments that choose among messages or count them. Beside the id of one they mean nothing.
pub(super) const OF_MANY: [&str; 8] = [
    "contains", "with_key", "name", "attr", "batch", "older", "dry_run", "max",
];

/// Which messages of a queue.
#[derive(Default, clap::Args)]
pub(in super::super) struct Which {
    /// Only messages whose body contains this text (bodies up to 64 KiB).
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Only messages with this key.
    #[arg(long, value_name = "KEY")]
    with_key: Option<String>,
    /// Only messages with this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only messages with this attribute; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    attr: Vec<(String, String)>,
    /// Only messages of this batch.
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only messages at least this old: 30s, 2h, 7d.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    older: Option<u64>,
}

pub(in super::super) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=');
    let (name, value) = pair.ok_or("takes NAME=VALUE, with a = in between")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Attributes as the API takes them.
///
/// # Errors
/// A name has two values.
pub(in super::super) fn headers(pairs: &[(String, String)]) -> Result<Value> {
    let mut headers = Map::new();
    for (name, value) in pairs {
        let before = headers.insert(name.clone(), value.as_str().into());
        if before.is_some_and(|before| before != value.as_str()) {
            bail!("--attr {name} has two values: give one");
        }
    }
    Ok(headers.into())
}

impl Which {
    /// The fields of a query about these messages, each with its `&`.
    pub(super) fn query(&self) -> String {
        let texts = [
            ("contains", &self.contains),
            ("key", &self.with_key),
            ("name", &self.name),
            ("batch", &self.batch),
        ];
        let texts = texts.map(|(key, text)| Some(format!("&{key}={}", part(text.as_ref()?))));
        let mut query: String = texts.into_iter().flatten().collect();
        for (name, value) in &self.attr {
            query.push_str(&format!("&header={}", part(&format!("{name}={value}"))));
        }
        if let Some(older) = self.older {
            query.push_str(&format!("&older_ms={older}"));
        }
        query
    }
}

/// How many messages an operation is about, and how it is shown.
#[derive(Default, clap::Args)]
pub(in super::super) struct How {
    /// At most N messages, the next ones first [default: all].
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Only print the number of messages.
    #[arg(long)]
    pub(in super::super) dry_run: bool,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Make no pauses between slices: ten times as fast, and other clients wait longer.
    #[arg(long)]
    fast: bool,
    /// Print the number as JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(long)]
    quiet: bool,
}

/// Which messages of a queue an operation is about, and how it is done.
#[derive(Default, clap::Args)]
pub(in super::super) struct Many {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(super) how: How,
}

/// Every message.
static EVERY: LazyLock<Many> = LazyLock::new(Many::default);

/// Effect of `purge` on a queue's messages without `--state`.
pub(in super::super) const PURGE: &[(&str, &str)] = &[("ready", "purge"), ("delayed", "purge")];

/// Effect of `retry`.
pub(in super::super) const RETRY: &[(&str, &str)] = &[("buried", "kick"), ("ready", "redrive")];

/// An operation on many messages of a queue: `act`s on the `state`s of it.
pub(in super::super) struct Bulk<'a> {
    pub(super) many: &'a Many,
    pub(super) queue: &'a str,
    /// The operation on messages of each state, in the server's words.
    pub(super) acts: &'a [(&'a str, &'a str)],
    /// Of a move: where to.
    pub(super) to: Option<&'a str>,
    /// Fields that only this operation has.
    pub(super) more: Option<&'a Map<String, Value>>,
    /// `purged`.
    pub(super) done: &'static str,
    /// Asks before it is done: nothing brings the messages back.
    pub(super) asks: bool,
}

impl<'a> Bulk<'a> {
    /// These acts on all messages of a queue that they fit.
    pub(in super::super) fn of_all(
        queue: &'a str,
        acts: &'a [(&'a str, &'a str)],
        done: &'static str,
    ) -> Self {
        Self::of(&EVERY, queue, acts, done)
    }

    /// These acts, without a question and fields of their own.
    pub(super) fn of(
        many: &'a Many,
        queue: &'a str,
        acts: &'a [(&'a str, &'a str)],
        done: &'static str,
    ) -> Self {
        Self {
            many,
            queue,
            acts,
            to: None,
            more: None,
            done,
            asks: false,
        }
    }

    /// Counts, asks if it has to, and does it in slices.
    pub(super) fn run(&self, api: &mut Api) -> Result<ExitCode> {
        let there = self.count(api)?;
        // An act that is repeated is about the same messages.
        let once = |at: &usize| !self.acts[..*at].contains(&self.acts[*at]);
        let all: u64 = (0..there.len()).filter(once).map(|at| there[at]).sum();
        // Only what was there at the start, so that it ends beside a producer.
        let wanted = all.min(self.many.how.max.unwrap_or(u64::MAX));
        if self.many.how.dry_run {
            return self.many.how.report(wanted, self.done);
        }
        if self.asks && wanted > 0 && !self.confirmed(wanted)? {
            bail!("nothing was {}", self.done);
        }
        let stop = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGINT, Arc::clone(&stop)).context("cannot wait for Ctrl-C")?;
        let mut progress = Progress::new(self.done, Of::Messages(wanted), self.many.how.quiet);
        let ended = self.act(api, &there, wanted, |count| {
            progress.add(count, 0, progress.messages + count);
            Ok(!stop.load(Ordering::Relaxed))
        })?;
        let stopped = !ended;
        progress.clear();
        let messages = progress.messages;
        self.many.how.print(messages, self.done, stopped)?;
        Ok(match stopped {
            true => ExitCode::from(STOPPED),
            false => ExitCode::SUCCESS,
        })
    }

    /// How many messages each operation is about.
    ///
    /// # Errors
    /// The server's, or it is gone.
    pub(in super::super) fn count(&self, api: &mut Api) -> Result<Vec<u64>> {
        let acts = self.acts.iter();
        let counted = acts.map(|&(state, act)| {
            let (path, mut request) = self.request(state, act)?;
            request.insert("dry_run".into(), true.into());
            Ok(walk(api, (path, request), (u64::MAX, false), |_| Ok(true))?.0)
        });
        counted.collect()
    }

    /// Does it to `wanted` messages at most, and of each to as many as were `there`; `each`
    /// gets how many a slice was, and says whether it goes on. False: it did not come to its end.
    ///
    /// # Errors
    /// The server's or `each`'s, or the server is gone.
    pub(in super::super) fn act(
        &self,
        api: &mut Api,
        there: &[u64],
        wanted: u64,
        mut each: impl FnMut(u64) -> Result<bool>,
    ) -> Result<bool> {
        let mut left = wanted;
        for (&(state, act), there) in self.acts.iter().zip(there) {
            let most = (*there).min(left);
            // A purge of all forgets deduplication ids, of an empty queue too.
            let always = (state, act) == PURGE[0] && self.is_of_all();
            let (path, mut request) = self.request(state, act)?;
            if always {
                request.insert("all".into(), true.into());
            }
            let (done, ended) = walk(api, (path, request), (most, always), &mut each)?;
            left = left.saturating_sub(done);
            if !ended {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// No filter and no bound leaves a message out.
    fn is_of_all(&self) -> bool {
        self.many.which.query().is_empty() && self.many.how.max.is_none()
    }

    /// The address of `act`, and which messages it is about.
    fn request(&self, state: &str, act: &str) -> Result<(String, Map<String, Value>)> {
        let which = &self.many.which;
        let headers = headers(&which.attr)?;
        let fields = [
            ("state", json!(state)),
            ("contains", json!(which.contains)),
            ("key", json!(which.with_key)),
            ("name", json!(which.name)),
            ("headers", headers),
            ("batch", json!(which.batch)),
            ("older_ms", which.older.unwrap_or(0).into()),
            ("to", json!(self.to)),
            ("fast", self.many.how.fast.into()),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        let path = format!("/queues/{}/operations/{act}", part(self.queue));
        let more = self.more.into_iter().flatten();
        let more = more.map(|(name, value)| (name.clone(), value.clone()));
        Ok((path, fields.into_iter().chain(more).collect()))
    }

    fn confirmed(&self, messages: u64) -> Result<bool> {
        if self.many.how.yes {
            return Ok(true);
        }
        let (queue, done) = (self.queue, self.done);
        let counted = count_of(messages, "message");
        if !stdin().is_terminal() {
            bail!("{counted} of {queue} would be {done}: add --yes, or --dry-run");
        }
        is_yes(&format!("{counted} of {queue} will be {done}. Continue?"))
    }
}

impl How {
    /// Says how many it was about.
    pub(super) fn report(&self, messages: u64, done: &str) -> Result<ExitCode> {
        self.print(messages, done, false)?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, messages: u64, done: &str, stopped: bool) -> Result<()> {
        let dry_run = self.dry_run;
        let summary = json!({ "messages": messages, "dry_run": dry_run, "stopped": stopped });
        let would = if dry_run { "would be " } else { "" };
        let stopped = if stopped { "stopped: " } else { "" };
        let counted = count_of(messages, "message");
        say(
            self.json,
            summary,
            format!("{stopped}{counted} {would}{done}"),
        )
    }
}

/// Asks the user at the terminal.
pub(super) fn is_yes(question: &str) -> Result<bool> {
    write!(stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Asks for parts of an operation until all was looked at, `most` messages fit, or `each`
/// says that it is enough; `always` at least once. Answers how many fit, and whether it came to its
/// end.
fn walk(
    api: &mut Api,
    (path, mut request): (String, Map<String, Value>),
    (most, always): (u64, bool),
    mut each: impl FnMut(u64) -> Result<bool>,
) -> Result<(u64, bool)> {
    let mut matched = 0;
    let mut asks = always || most > 0;
    while asks {
        request.insert("max".into(), (most - matched).into());
        let reply = api.ask("POST", &path, Some(&request.clone().into()));
        let reply = match matched {
            0 => reply?,
            _ => {
                reply.with_context(|| format!("stopped after {}", count_of(matched, "message")))?
            }
        };
        let count = reply["messages"].as_u64();
        let count = count.context("the server is of another version")?;
        matched += count;
        let goes_on = each(count)?;
        if reply["cursor"].is_null() {
            return Ok((matched, true));
        }
        if !goes_on {
            return Ok((matched, false));
        }
        request.insert("cursor".into(), reply["cursor"].clone());
        asks = matched < most;
    }
    Ok((matched, true))
}
