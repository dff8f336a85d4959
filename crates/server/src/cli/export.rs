//! `quintet export`.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal as _, Read, Seek as _, SeekFrom, Write, sink, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Where;
use super::client::Client;
use super::progress::{Of, Progress};
use super::records::{self, BinarySink, BinarySource, Format, LineSink, LineSource, Sink, Source};
use crate::admin::{Head, Standing};

/// Messages asked for at once: 4 MiB of bodies at most, larger ones apart.
const PAGE: u32 = 64;

/// Arguments of `export`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet export work --output work.jsonl\n  \
                        quintet export --format binary --all-states --output all.qx\n  \
                        quintet export work | jq .body\n\nOnly looks, and works while the server \
                        serves; not a snapshot: a message that is taken or changes its state \
                        meanwhile may be missing, or be there twice."
)]
pub(super) struct Export {
    #[command(flatten)]
    at: Where,
    /// Names of queues; none: all.
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,
    /// Form of the file.
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,
    /// Where to; `-`: standard output.
    #[arg(long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Not only messages still to be done (ready, delayed, buried): also those under a lease, those
    /// not yet committed, and those done or relayed and kept.
    #[arg(long)]
    all_states: bool,
    /// Go on behind the last whole message of a file that an interrupted export left.
    #[arg(long)]
    resume: bool,
    /// Print no progress.
    #[arg(long, short)]
    quiet: bool,
}

/// A list of messages of a queue, in an order of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
struct List {
    /// As a request names it.
    name: &'static str,
    /// Numbers of a queue that say how many there are.
    counts: &'static [&'static str],
    /// Only with `--all-states`.
    rare: bool,
}

/// In the order of the file. Those under a lease come first: they stood in
/// front.
const LISTS: [List; 6] = [
    List {
        name: "reserved",
        counts: &["reserved"],
        rare: true,
    },
    List {
        name: "ready",
        counts: &["ready", "held_back"],
        rare: false,
    },
    List {
        name: "delayed",
        counts: &["delayed"],
        rare: false,
    },
    List {
        name: "buried",
        counts: &["buried"],
        rare: false,
    },
    List {
        name: "prepared",
        counts: &["prepared"],
        rare: true,
    },
    List {
        name: "archived",
        counts: &["done", "relayed"],
        rare: true,
    },
];

/// Where a message stands in its list.
type Order = (u64, u64, i64, u64);

impl List {
    fn order(&self, head: &Head) -> Order {
        let id = head.id;
        match self.name {
            "ready" => {
                let rank = u64::from(head.rank.unwrap_or(0));
                (u64::from(head.held_back), rank, head.place, id)
            }
            "delayed" => (head.due_ms.unwrap_or(0), 0, 0, id),
            "buried" => (head.bury_order, 0, 0, id),
            "archived" => (head.changed_ms, 0, 0, id),
            _ => (0, 0, 0, id),
        }
    }

    /// The list a message of a file was in.
    fn of(head: &Head) -> &'static str {
        match head.state {
            Standing::Ready => "ready",
            Standing::Delayed => "delayed",
            Standing::Reserved => "reserved",
            Standing::Buried => "buried",
            Standing::Prepared => "prepared",
            Standing::Done | Standing::Relayed => "archived",
        }
    }
}

impl Export {
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut client = Client::connect(&self.at)?;
        let (queues, total) = self.queues(&mut client)?;
        let Some(Opened { sink, last, before }) = self.open()? else {
            if !self.quiet {
                eprintln!("{} is complete", self.output.display());
            }
            return Ok(ExitCode::SUCCESS);
        };
        let mut walk = Walk {
            client,
            sink,
            progress: Progress::new("exporting", Of::Messages(total), self.quiet),
            before,
        };
        let begin = match &last {
            None => 0,
            Some(last) => queues
                .iter()
                .position(|queue| *queue == last.queue)
                .with_context(|| self.other_range(last))?,
        };
        let mut last = last;
        for queue in &queues[begin..] {
            for list in LISTS.iter().filter(|list| self.all_states || !list.rare) {
                if last.as_ref().is_none_or(|last| List::of(last) == list.name) {
                    walk.list(queue, list, last.take())?;
                }
            }
            if let Some(last) = &last {
                bail!(self.other_range(last));
            }
        }
        walk.sink.finish()?;
        walk.progress.clear();
        if !self.quiet {
            eprintln!("exported {}", walk.progress.text());
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Names of the queues, in the order of the file, and how many messages
    /// are in them.
    fn queues(&self, client: &mut Client) -> Result<(Vec<String>, u64)> {
        let reply = client.ask(&json!({ "queues": {} }), &mut std::io::empty())?;
        let all = reply.get("queues").and_then(Value::as_array);
        let all = all.context("the server is of another version")?;
        let named = |name: &str| {
            all.iter()
                .find(|queue| queue["name"].as_str() == Some(name))
        };
        let queues: Vec<&Value> = if self.queues.is_empty() {
            all.iter().collect()
        } else {
            let mut queues = Vec::new();
            for name in &self.queues {
                let shown = crate::admin::name(name).to_string();
                let queue = named(&shown).with_context(|| format!("there is no queue {shown}"))?;
                if !queues.contains(&queue) {
                    queues.push(queue);
                }
            }
            queues
        };
        let lists = LISTS.iter().filter(|list| self.all_states || !list.rare);
        let counts: Vec<&str> = lists.flat_map(|list| list.counts).copied().collect();
        let total = queues
            .iter()
            .flat_map(|queue| counts.iter().filter_map(|&count| queue[count].as_u64()))
            .sum();
        let name = |queue: &&Value| queue["name"].as_str().map(str::to_owned);
        Ok((queues.iter().filter_map(name).collect(), total))
    }

    fn other_range(&self, last: &Head) -> String {
        format!(
            "{} ends in the {} messages of the queue {}, which are not among those to export: \
             give the arguments it was begun with",
            self.output.display(),
            List::of(last),
            last.queue
        )
    }

    /// Opens the output. `None`: it is complete.
    fn open(&self) -> Result<Option<Opened>> {
        let path = &self.output;
        if path.as_os_str() == "-" {
            if self.resume {
                bail!("standard output cannot be gone on with: name a file with --output");
            }
            if self.format == Format::Binary && stdout().is_terminal() {
                bail!("the binary form is not for a terminal: name a file with --output");
            }
            let out = BufWriter::with_capacity(1 << 18, stdout());
            return Ok(Some(Opened::new(sink_to(out, self.format)?)));
        }
        if self.resume && path.exists() {
            return self.reopen(path);
        }
        let mut new = OpenOptions::new();
        let file = new
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                    "{} exists: name a new file, or go on with it with --resume",
                    path.display()
                ),
                _ => anyhow::anyhow!("cannot make {}: {error}", path.display()),
            })?;
        Ok(Some(Opened::new(sink_to(Durable::new(file), self.format)?)))
    }

    /// Cuts off what is not whole, and goes on behind it.
    fn reopen(&self, path: &Path) -> Result<Option<Opened>> {
        let cannot = || format!("cannot read {}", path.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(cannot)?;
        let found = records::format_of(&file).with_context(cannot)?;
        if found.is_some_and(|found| found != self.format) {
            bail!("{} has another form: name it with --format", path.display());
        }
        let tail = match self.format {
            Format::Jsonl => lines_tail(&mut file),
            Format::Binary => binary_tail(&mut file),
        };
        let tail = tail.with_context(cannot)?;
        if tail.complete {
            return Ok(None);
        }
        file.set_len(tail.end)?;
        file.seek(SeekFrom::Start(tail.end))?;
        let out = Durable::new(file);
        let sink: Box<dyn Sink> = match self.format {
            Format::Binary if tail.end > 0 => {
                Box::new(BinarySink::resume(out, tail.end, tail.messages))
            }
            format => sink_to(out, format)?,
        };
        Ok(Some(Opened {
            sink,
            last: tail.last,
            before: tail.messages,
        }))
    }
}

/// The output.
struct Opened {
    sink: Box<dyn Sink>,
    /// The last message in it.
    last: Option<Head>,
    /// How many there are; unknown, 0, for lines.
    before: u64,
}

impl Opened {
    fn new(sink: Box<dyn Sink>) -> Self {
        Self {
            sink,
            last: None,
            before: 0,
        }
    }
}

fn sink_to(out: impl Write + 'static, format: Format) -> Result<Box<dyn Sink>> {
    Ok(match format {
        Format::Jsonl => Box::new(LineSink::new(out)),
        Format::Binary => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.map_or(0, |since| since.as_millis());
            Box::new(BinarySink::new(
                out,
                u64::try_from(now).unwrap_or(u64::MAX),
            )?)
        }
    })
}

/// A file that is on the disk when it was flushed.
struct Durable(BufWriter<File>);

impl Durable {
    fn new(file: File) -> Self {
        Self(BufWriter::with_capacity(1 << 18, file))
    }
}

impl Write for Durable {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()?;
        self.0.get_ref().sync_all()
    }
}

/// The whole messages at the beginning of a file.
struct Tail {
    /// Where they end, bytes.
    end: u64,
    last: Option<Head>,
    messages: u64,
    complete: bool,
}

/// Of lines only the last is read: those before it were written before it.
fn lines_tail(file: &mut File) -> Result<Tail> {
    let end = line_end(file, file.metadata()?.len())?;
    let mut tail = Tail {
        end,
        last: None,
        messages: 0,
        complete: false,
    };
    if let Some(before) = end.checked_sub(1) {
        let begin = line_end(file, before)?;
        file.seek(SeekFrom::Start(begin))?;
        let line = std::io::BufReader::new(file.take(end - begin));
        let mut source = LineSource::new(line);
        tail.last = source.next()?.map(|entry| entry.head);
        source.pieces(&mut sink())?;
    }
    Ok(tail)
}

/// Where the last line that ends before `limit` ends.
fn line_end(file: &mut File, limit: u64) -> Result<u64> {
    let mut bytes = [0; 1 << 16];
    let mut end = limit;
    while end > 0 {
        let begin = end.saturating_sub(bytes.len() as u64);
        // At most the length of the buffer.
        let piece = &mut bytes[..(end - begin) as usize];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(piece)?;
        if let Some(at) = piece.iter().rposition(|&byte| byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn binary_tail(file: &mut File) -> Result<Tail> {
    let mut tail = Tail {
        end: 0,
        last: None,
        messages: 0,
        complete: false,
    };
    file.seek(SeekFrom::Start(0))?;
    let mut source = match BinarySource::new(std::io::BufReader::with_capacity(1 << 18, file)) {
        Ok(source) => source,
        // Not even its head was written.
        Err(error) if error.is::<records::BadInput>() => return Ok(tail),
        Err(error) => return Err(error),
    };
    tail.end = source.offset();
    loop {
        let step = source.next().and_then(|entry| {
            source.pieces(&mut sink())?;
            Ok(entry)
        });
        match step {
            Ok(Some(entry)) => {
                if source.is_between_groups() {
                    tail.last = Some(entry.head);
                    (tail.end, tail.messages) = (source.offset(), source.messages());
                }
            }
            Ok(None) => {
                tail.complete = true;
                return Ok(tail);
            }
            // What an interrupted export leaves; anything else is damage.
            Err(_) if source.is_cut() => return Ok(tail),
            Err(error) => return Err(error),
        }
    }
}

/// Goes through lists, page by page.
struct Walk {
    client: Client,
    sink: Box<dyn Sink>,
    progress: Progress,
    /// Messages in the file before.
    before: u64,
}

/// How far a list was read.
struct Place {
    last: Option<Order>,
    /// The last messages, newest last.
    recent: VecDeque<u64>,
}

impl Place {
    /// Where to go on if the last message has left the list: behind one that
    /// stood before it, or from the front.
    fn others(&self) -> Vec<Option<u64>> {
        let steps = std::iter::successors(Some(1), |step| Some(step * 2));
        let back = steps.map_while(|step: usize| self.recent.iter().rev().nth(step));
        back.map(|&id| Some(id)).chain([None]).collect()
    }
}

impl Walk {
    /// Exports a list, behind the message `from`.
    fn list(&mut self, queue: &str, list: &List, from: Option<Head>) -> Result<()> {
        let mut place = Place {
            last: from.as_ref().map(|head| list.order(head)),
            recent: from.iter().map(|head| head.id).collect(),
        };
        let after = place.recent.back().copied();
        self.forward(queue, list, &mut place, after)?;
        // A list ends where there is no more, and where the message it was to
        // go on behind has left it meanwhile.
        while place.last.is_some() {
            let mut new = 0;
            for after in place.others() {
                let (seen, found) = self.forward(queue, list, &mut place, after)?;
                new = found;
                if seen > 0 {
                    break;
                }
            }
            if new == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Exports what is new behind `after`, to the end; answers how many
    /// messages it saw, and how many of them were new.
    fn forward(
        &mut self,
        queue: &str,
        list: &List,
        place: &mut Place,
        mut after: Option<u64>,
    ) -> Result<(u64, u64)> {
        let (mut seen, mut new) = (0, 0);
        loop {
            let of = json!({ "queue": queue, "state": list.name, "after": after, "max": PAGE });
            let reply = self
                .client
                .ask(&json!({ "list": of }), &mut std::io::empty());
            let reply = match reply {
                // It was dropped meanwhile.
                Err(error) if error.to_string() == "queue not found" => return Ok((seen, new)),
                reply => reply?,
            };
            let Some(Value::Array(messages)) = reply.get("messages") else {
                bail!("the server is of another version");
            };
            if messages.is_empty() {
                return Ok((seen, new));
            }
            for message in messages {
                let mut head: Head = serde_json::from_value(message.clone())
                    .context("the server is of another version")?;
                seen += 1;
                after = Some(head.id);
                let order = list.order(&head);
                if place.last.is_some_and(|last| order <= last) {
                    self.client.body(head.bytes, &mut sink())?;
                    continue;
                }
                if list.name == "delayed" {
                    head.state = Standing::Delayed;
                }
                self.sink.message(&head, self.client.bodies())?;
                new += 1;
                place.last = Some(order);
                place.recent.push_back(head.id);
                if place.recent.len() > PAGE as usize {
                    place.recent.pop_front();
                }
                let position = self.before + self.progress.messages() + 1;
                self.progress.add(1, head.bytes, position);
            }
        }
    }
}
