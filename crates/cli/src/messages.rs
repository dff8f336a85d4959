//! `quintet put`, `take` and `peek`.

use std::fs::File;
use std::io::{IsTerminal as _, Read, Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_config::parse_duration_ms as duration;
use quintet_types::{AfterOn, CommandError, IfFailed, OnRepeat, Scope};
use serde_json::{Value, json};

use super::Where;
use super::api::{Api, part};
use super::client::Refused;
use super::table::{named, say, seen};

/// Exit code of `take`, `peek` and `track` when there was no message; wrong usage is 2, damage 3.
pub(super) const EMPTY: u8 = 4;

/// How long one request waits at most, ms.
const WAIT_MS: u64 = 60_000;

/// Refuses `--rank`.
pub(crate) fn renamed(_: &str) -> Result<bool, &'static str> {
    Err("--rank is called --priority now")
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet put work 'hello'\n  tar c . | quintet put backups\n  \
                        quintet put work --file job.json --priority 0 --delay 5m\n  quintet put \
                        mail hello --with-key ann --attr lang=fr --unique order-7\n  quintet put \
                        index page-7 --delay 5s --unique page-7 --unique-until started \
                        --on-repeat replace\n  quintet put reports 'march' --name report-7 \
                        --tracked\n  quintet put mail 'it is done' --after report-7 --on end\n  \
                        quintet put add '2 3' --wait 30s\n  quintet put add '2 3' --reply-to sums \
                        --correlation-id sum-1\n\nWith --wait, exits with 4 if \
                        the message has not ended in time, and with 1 if it ended without \
                        success."
)]
pub(super) struct Put {
    /// Name of the queue; the first put creates it.
    queue: String,
    /// Body of the message [default: standard input].
    text: Option<String>,
    /// Put the content of this file.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Priority, from 0, the most urgent, to 4294967295 [default: the queue's `default_priority`].
    #[arg(long)]
    priority: Option<u32>,
    /// The old name of --priority.
    #[arg(long, hide = true, value_parser = renamed)]
    rank: Option<bool>,
    /// Client flags (memcache), 0 to 4294967295 [default: 0].
    #[arg(long)]
    flags: Option<u32>,
    /// Time until the message can be taken, for example 30s.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    delay: Option<u64>,
    /// Time until the message expires, for example 1h.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    ttl: Option<u64>,
    /// Key of the message group.
    #[arg(long, value_name = "KEY")]
    with_key: Option<String>,
    /// Name of the message, to find and settle it by; need not be unique.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// An attribute; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = super::verbs::pair)]
    attr: Vec<(String, String)>,
    /// Deduplication id: while the queue remembers this id, another message with it is a duplicate.
    #[arg(long, value_name = "ID")]
    unique: Option<String>,
    /// Longest time that the queue remembers the id, for example 10m [default: the queue's
    /// `unique_for`].
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "unique")]
    unique_for: Option<u64>,
    /// Event after which the queue forgets the id [default: the queue's `unique_until`]
    #[arg(long, value_parser = Scope::ALL.iter().map(|scope| scope.word()).collect::<Vec<_>>(), value_name = "WHAT", requires = "unique")]
    unique_until: Option<String>,
    /// Effect of a duplicate [default: the queue's `unique_repeat`]
    #[arg(long, value_parser = OnRepeat::ALL.iter().map(|repeat| repeat.word()).collect::<Vec<_>>(), value_name = "WHAT", requires = "unique")]
    on_repeat: Option<String>,
    /// Keep the outcome of the message by its name, even after it is gone: `quintet track`.
    #[arg(long, requires = "name")]
    tracked: bool,
    /// Batch that counts the message.
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Queue that gets the result of the message when it ends.
    #[arg(long, value_name = "QUEUE")]
    reply_to: Option<String>,
    /// Id of the reply, in its attribute `correlation_id` [default: the name or the id of the
    /// message].
    #[arg(long, value_name = "ID", requires = "reply_to")]
    correlation_id: Option<String>,
    /// Wait this long for the result of the message, for example 30s, and print the result.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    wait: Option<u64>,
    /// Hold the message until this one has ended: its id, or the name of a tracked message; may be
    /// given several times.
    #[arg(long, value_name = "ID")]
    after: Vec<String>,
    /// End for which the message waits: success, or any end [default: success]
    #[arg(long, value_parser = AfterOn::ALL.iter().map(|on| on.word()).collect::<Vec<_>>(), value_name = "ENDS", requires = "after")]
    on: Option<String>,
    /// Fate of this message if one of --after fails [default: fail]
    #[arg(long, value_parser = IfFailed::ALL.iter().map(|fate| fate.word()).collect::<Vec<_>>(), value_name = "FATE", requires = "after")]
    if_failed: Option<String>,
    /// Print the reply as JSON.
    #[arg(long)]
    json: bool,
}

impl Put {
    pub(super) fn run(self, at: Where) -> Result<ExitCode> {
        let after = self.after.into_iter();
        let after = after.map(|of| of.parse::<u64>().map_or_else(|_| of.into(), Value::from));
        let after = Some(after.collect::<Vec<_>>()).filter(|after| !after.is_empty());
        let dedupe = self.unique.map(|id| {
            json!({
                "id": id,
                "window_ms": self.unique_for,
                "until": self.unique_until,
                "on_repeat": self.on_repeat,
            })
        });
        let headers = Some(super::verbs::headers(&self.attr)?);
        let of = super::verbs::given(json!({
            "priority": self.priority,
            "flags": self.flags,
            "delay_ms": self.delay,
            "ttl_ms": self.ttl,
            "key": self.with_key,
            "name": self.name,
            "batch": self.batch,
            "on": self.on,
            "if_failed": self.if_failed,
            "reply_to": self.reply_to,
            "correlation_id": self.correlation_id,
            "tracked": self.tracked.then_some(true),
            "after": after,
            "dedupe": dedupe,
            "headers": headers.filter(|_| !self.attr.is_empty()),
        }));
        let (bytes, mut body): (u64, Box<dyn Read>) = match (self.text, self.file) {
            (Some(text), _) => (text.len() as u64, Box::new(std::io::Cursor::new(text))),
            (None, Some(path)) => {
                let open = || -> std::io::Result<(u64, File)> {
                    let file = File::open(&path)?;
                    let about = file.metadata()?;
                    match about.is_dir() {
                        true => Err(std::io::ErrorKind::IsADirectory.into()),
                        false => Ok((about.len(), file)),
                    }
                };
                let (bytes, file) =
                    open().with_context(|| format!("cannot read {}", path.display()))?;
                // A file that grows meanwhile must not run over its length.
                (bytes, Box::new(file.take(bytes)))
            }
            (None, None) => {
                let mut text = Vec::new();
                stdin()
                    .lock()
                    .read_to_end(&mut text)
                    .context("cannot read standard input")?;
                (text.len() as u64, Box::new(std::io::Cursor::new(text)))
            }
        };
        let path = format!("/queues/{}/record", part(&self.queue));
        let mut api = Api::connect(&at)?;
        let reply = api.post_with(&path, &of, (bytes, &mut body))?;
        if let Some(wait) = self.wait {
            let id = reply["id"].as_u64().unwrap_or_default();
            return print_result(&mut api, id, wait, self.json);
        }
        say(self.json, &reply, &reply["id"])?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits for the result of a message that was put, and prints it.
///
/// # Errors
/// The server is gone; the message is there.
fn print_result(api: &mut Api, id: u64, wait: u64, json: bool) -> Result<ExitCode> {
    let (began, wait) = (Instant::now(), Duration::from_millis(wait));
    let mut now = id;
    let ended = loop {
        let left = wait.saturating_sub(began.elapsed()).as_millis();
        let wait_ms = u64::try_from(left).unwrap_or(WAIT_MS).min(WAIT_MS);
        let path = format!("/messages/{now}/result?wait_ms={wait_ms}");
        let response = api.get(&path);
        let response =
            response.with_context(|| format!("message {id} was put, its result is not known"))?;
        now = response["id"].as_u64().unwrap_or(now);
        if response["state"] != "pending" || wait_ms == 0 {
            break response;
        }
    };
    let bytes = |field: &str| match ended[format!("{field}_base64")].as_str() {
        Some(base64) => BASE64_STANDARD.decode(base64).unwrap_or_default(),
        None => ended[field].as_str().unwrap_or_default().into(),
    };
    let state = ended["state"].as_str().unwrap_or_default();
    if json {
        writeln!(stdout(), "{ended}")?;
    } else if state == "done" {
        let mut out = stdout().lock();
        out.write_all(&bytes("result"))?;
        writeln!(out)?;
    } else if state == "pending" {
        eprintln!("quintet: message {id} has not ended");
    } else {
        let error = bytes("error");
        let why = String::from_utf8_lossy(&error);
        let why = why.lines().next().map(|why| format!(": {}", seen(why)));
        eprintln!(
            "quintet: message {id} is {state}{}",
            why.unwrap_or_default()
        );
    }
    Ok(match state {
        "done" => ExitCode::SUCCESS,
        "pending" => ExitCode::from(EMPTY),
        _ => ExitCode::FAILURE,
    })
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet take work\n  quintet take work --wait 30s\n  quintet take \
                        work --count 100 --json\n  quintet take urgent work --wait 1m\n  quintet \
                        take backups | tar x\n\nA pipe or file gets one message byte for byte. On \
                        a terminal, and with --count above 1, a line end\nfollows each \
                        message.\n\nExits with 4 if there was no message; \
                        stderr names queues that are paused or do not exist."
)]
pub(super) struct Take {
    /// Name of the queue; of several queues, the most urgent message comes first.
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Wait this long for a message, for example 30s.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "0")]
    wait: u64,
    /// Largest number of messages.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Print each message as a line of JSON.
    #[arg(long)]
    json: bool,
}

impl Take {
    pub(super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let form = Form::of(self.json, self.count == 1);
        // One at a time: what was printed was taken, and nothing more.
        for taken in 0..self.count {
            let reply = self.take(&mut api)?;
            if print_messages(&mut api, &reply, form)? == 0 {
                if taken > 0 {
                    return Ok(ExitCode::SUCCESS);
                }
                for queue in &self.queues {
                    if shown(&mut api, queue)?.is_some_and(|response| response["paused"] == true) {
                        eprintln!("quintet: {} is paused", named(queue));
                    }
                }
                return Ok(ExitCode::from(EMPTY));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Take {
    /// Takes a message, or none in time.
    fn take(&self, api: &mut Api) -> Result<Value> {
        let mut left = self.wait;
        loop {
            let wait = left.min(WAIT_MS);
            left -= wait;
            let of = json!({ "queues": self.queues, "wait_ms": wait });
            let reply = api.open("POST", "/take", Some(&of))?;
            let none = reply["messages"].as_array().is_some_and(Vec::is_empty);
            if !none || left == 0 {
                return Ok(reply);
            }
        }
    }
}

/// The queue as the server shows it; null if the client may not see it. None if it does not exist:
/// stderr then says so, with names like it.
///
/// # Errors
/// The server is gone.
fn shown(api: &mut Api, queue: &str) -> Result<Option<Value>> {
    match api.get(&format!("/queues/{}", part(queue))) {
        Err(error) if Refused::is(&error, CommandError::QueueNotFound) => {
            eprintln!("quintet: {error}");
            Ok(None)
        }
        // A client that may take may not be allowed to see this.
        Err(error) if error.is::<Refused>() => Ok(Some(Value::Null)),
        response => response.map(Some),
    }
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet peek work\n  quintet peek work --state buried\n  \
                        quintet peek --id 17 --json\n\nExits with 4 if there is no such message \
                        or queue."
)]
pub(super) struct Peek {
    /// Name of the queue.
    #[arg(required_unless_present = "id")]
    queue: Option<String>,
    /// State of the message: the next ready one, the delayed one due first, or the one buried
    /// first.
    #[arg(long, default_value = "ready", value_parser = ["ready", "delayed", "buried"])]
    state: String,
    /// Id of the message, which may be in any state.
    #[arg(long, conflicts_with_all = ["queue", "state"])]
    id: Option<u64>,
    /// Print the message as a line of JSON.
    #[arg(long)]
    json: bool,
}

impl Peek {
    pub(super) fn run(self, mut api: Api) -> Result<ExitCode> {
        let queue = self.queue.as_deref().unwrap_or_default();
        let path = match self.id {
            Some(id) => format!("/messages/{id}/record"),
            None => format!("/queues/{}/peek?state={}", part(queue), self.state),
        };
        let reply = match api.open("GET", &path, None) {
            Err(error) if Refused::is(&error, CommandError::NotFound) => {
                match self.id {
                    Some(_) => eprintln!("quintet: {error}"),
                    None if shown(&mut api, queue)?.is_some() => {
                        eprintln!("quintet: {} has no {} message", named(queue), self.state);
                    }
                    None => {}
                }
                return Ok(ExitCode::from(EMPTY));
            }
            reply => reply?,
        };
        let printed = print_messages(&mut api, &reply, Form::of(self.json, true))?;
        Ok(if printed == 0 {
            ExitCode::from(EMPTY)
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// How a message is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    /// Like echo: a text without a line end still ends its line.
    Line,
    /// Byte for byte.
    Exact,
}

impl Form {
    /// `alone`: there will be one message at most.
    fn of(json: bool, alone: bool) -> Self {
        match json {
            true => Self::Json,
            false if alone && !stdout().is_terminal() => Self::Exact,
            false => Self::Line,
        }
    }
}

/// A message with its body, as a text if it is one.
pub(super) fn with_body(message: &Value, body: Vec<u8>) -> Value {
    let mut message = message.clone();
    if let Some(map) = message.as_object_mut() {
        map.remove("follows");
        match String::from_utf8(body) {
            Ok(text) => map.insert("body".into(), text.into()),
            Err(error) => map.insert(
                "body_base64".into(),
                BASE64_STANDARD.encode(error.as_bytes()).into(),
            ),
        };
    }
    message
}

/// Prints the messages of a reply; answers how many.
fn print_messages(api: &mut Api, reply: &Value, form: Form) -> Result<usize> {
    let Some(messages) = reply.get("messages").and_then(Value::as_array) else {
        bail!("the server is of another version");
    };
    let mut out = stdout().lock();
    for message in messages {
        let bytes = message.get("bytes").and_then(Value::as_u64).unwrap_or(0);
        if form != Form::Json {
            api.body(bytes, &mut out)?;
            if form == Form::Line {
                writeln!(out)?;
            }
            continue;
        }
        let mut body = Vec::new();
        api.body(bytes, &mut body)?;
        writeln!(out, "{}", with_body(message, body))?;
    }
    out.flush()?;
    Ok(messages.len())
}
