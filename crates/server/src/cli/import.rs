//! `quintet import`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use super::Where;
use super::client::Client;
use super::progress::{Of, Progress};
use super::records::{self, PIECES_OVER, Source};
use crate::admin::{Head, LINE_MAX};

/// Messages stored together at most, their bodies in bytes, and their heads.
const BATCH: usize = 256;
const BATCH_BODIES: usize = 1 << 20;
const BATCH_HEADS: usize = 128 << 10;
/// Batches on the way at most: more than a sync takes.
const WINDOW: usize = 32;
/// And bytes of their bodies.
const WINDOW_BYTES: usize = 8 << 20;
/// What a request has beside the heads.
const REQUEST_ROOM: usize = 1 << 10;

/// Arguments of `import`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  quintet import work.jsonl\n  quintet import all.qx --data \
                        /var/lib/other\n  quintet import work.jsonl --into again\n\nStores the \
                        messages in the order of the file, under new ids. An import that was \
                        interrupted is repeated: what is stored already is known for a week and \
                        not stored twice, as long as the file is the same. Exits with 3 if the \
                        file is not what it should be; all messages before that place are stored."
)]
pub(super) struct Import {
    #[command(flatten)]
    at: Where,
    /// What `quintet export` wrote, in either form; `-`: standard input.
    file: PathBuf,
    /// Put all messages into this queue, not into those they came from.
    #[arg(long, value_name = "QUEUE")]
    into: Option<String>,
    /// Store the messages also if this file was imported before.
    #[arg(long)]
    again: bool,
    /// Print no progress.
    #[arg(long, short)]
    quiet: bool,
}

impl Import {
    pub(super) fn run(self) -> Result<ExitCode> {
        let client = Client::connect(&self.at)?;
        let (file, bytes) = records::open(&self.file)?;
        let mut source = records::source(file)?;
        let into = self.into.as_deref().map(crate::admin::name);
        let mut importer = Importer {
            at: self.at,
            client,
            into: into.map(|name| name.to_string()),
            again: self.again,
            searching: !self.again,
            sent: VecDeque::new(),
            sent_bytes: 0,
            count: Count::default(),
            progress: Progress::new("importing", Of::Bytes(bytes), self.quiet),
            position: 0,
        };
        let done = importer.all(&mut *source);
        importer.progress.clear();
        let Count {
            stored,
            before,
            refused,
        } = importer.count;
        if done.is_err() || !self.quiet {
            eprint!("{stored} messages stored");
            if before > 0 {
                eprint!(", {before} were stored by an earlier import of this file");
            }
            if refused > 0 {
                eprint!(", {refused} are repeats to their queue and not stored");
            }
            eprintln!();
        }
        done.with_context(|| self.file.display().to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What became of the messages.
#[derive(Default)]
struct Count {
    stored: u64,
    before: u64,
    refused: u64,
}

/// Messages of one queue that are stored together or not at all.
struct Batch {
    queue: String,
    /// Number of the first in the file, from 0.
    first: u64,
    /// Where that stands, for people.
    place: String,
    /// As they go into a request.
    heads: Vec<String>,
    head_bytes: usize,
    lens: Vec<usize>,
    bodies: Vec<u8>,
}

impl Batch {
    fn new(queue: &str, first: u64, place: String) -> Self {
        Self {
            queue: queue.to_owned(),
            first,
            place,
            heads: Vec::new(),
            head_bytes: 0,
            lens: Vec::new(),
            bodies: Vec::new(),
        }
    }

    fn push(&mut self, head: String, body: &[u8]) {
        self.head_bytes += head.len();
        self.heads.push(head);
        self.lens.push(body.len());
        self.bodies.extend_from_slice(body);
    }

    /// Where a batch ends depends on nothing but the messages before, so that
    /// a repeat has the same ones.
    fn takes(&self, queue: &str, head: &str, body: &[u8]) -> bool {
        self.queue == queue
            && self.heads.len() < BATCH
            && self.head_bytes + head.len() <= BATCH_HEADS
            && self.bodies.len() + body.len() <= BATCH_BODIES
            && body.len() as u64 <= PIECES_OVER
            && self.bodies.len() as u64 <= BATCH_BODIES as u64 - PIECES_OVER
    }

    /// What the server knows it by: a hash of all that is in it, of the queue
    /// it goes to and of its place in the file.
    fn token(&self) -> String {
        let mut hash = Fnv::default();
        hash.add(self.queue.as_bytes());
        hash.add(&self.first.to_le_bytes());
        hash.add(&self.heads.len().to_le_bytes());
        self.heads.iter().for_each(|head| hash.add(head.as_bytes()));
        hash.add(&self.bodies);
        format!("{:032x}", hash.0)
    }

    /// Each of its messages by itself.
    fn singles(&self) -> impl Iterator<Item = Batch> + use<'_> {
        let mut at = 0;
        let messages = self.heads.iter().zip(&self.lens).zip(0..);
        messages.map(move |((head, len), number)| {
            let place = match number {
                0 => self.place.clone(),
                number => format!("message {} behind {}", number, self.place),
            };
            let mut one = Batch::new(&self.queue, self.first + number, place);
            one.push(head.clone(), &self.bodies[at..at + len]);
            at += len;
            one
        })
    }

    fn request(&self, again: bool) -> String {
        let token = match again {
            true => String::new(),
            false => format!("\"token\":\"{}\",", self.token()),
        };
        let heads = self.heads.join(",");
        format!("{{\"import\":{{{token}\"messages\":[{heads}]}}}}")
    }
}

/// FNV-1a of 128 bits: nobody gains by two files of one hash.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}

/// An import under way.
///
/// Batches go out one behind the other; after one that is refused the server
/// decides no other, so what is stored is always the beginning of the file. A
/// repeat asks for each batch whether it was stored, until one was not.
///
/// The last batch, which may have more messages when the file was mended or
/// its export went on, goes out message by message.
struct Importer {
    at: Where,
    client: Client,
    into: Option<String>,
    /// Nothing is remembered or asked for.
    again: bool,
    /// The next batch may have been stored before.
    searching: bool,
    /// Sent and not answered.
    sent: VecDeque<Batch>,
    sent_bytes: usize,
    count: Count,
    progress: Progress,
    /// Bytes of the file read.
    position: u64,
}

impl Importer {
    fn all(&mut self, source: &mut dyn Source) -> Result<()> {
        let mut batch: Option<Batch> = None;
        for number in 0.. {
            let entry = match source.next() {
                Ok(Some(entry)) => entry,
                end => {
                    for one in batch.iter().flat_map(Batch::singles) {
                        self.put(one)?;
                    }
                    self.settle_all()?;
                    return end.map(|_| ());
                }
            };
            self.position = source.bytes_read();
            let mut head = entry.head;
            if let Some(into) = &self.into {
                head.queue.clone_from(into);
            }
            let text = serde_json::to_string(&head)?;
            if text.len() + REQUEST_ROOM > LINE_MAX {
                let why = "its key, attributes and status take more than 1 MiB";
                bail!("{}: {why}", source.place());
            }
            let body = entry.body.as_deref().unwrap_or_default();
            let fits =
                |batch: &Batch| entry.body.is_some() && batch.takes(&head.queue, &text, body);
            if let Some(full) = batch.take_if(|batch| !fits(batch)) {
                self.put(full)?;
            }
            if entry.body.is_none() {
                let mut large = Batch::new(&head.queue, number, source.place());
                large.push(text, &[]);
                self.put_large(&large, &head, source)?;
                continue;
            }
            batch
                .get_or_insert_with(|| Batch::new(&head.queue, number, source.place()))
                .push(text, body);
        }
        Ok(())
    }

    /// Puts a batch, if it was not put before.
    fn put(&mut self, batch: Batch) -> Result<()> {
        if self.searching {
            if self.is_known(&batch)? {
                self.count.before += batch.heads.len() as u64;
                return Ok(());
            }
            let first = batch.singles().next();
            if batch.heads.len() > 1
                && let Some(first) = first
                && self.is_known(&first)?
            {
                return self.put_singly(&batch);
            }
            self.searching = false;
        }
        while self.sent.len() >= WINDOW || self.sent_bytes >= WINDOW_BYTES {
            self.settle()?;
        }
        self.send(batch)
    }

    fn put_singly(&mut self, batch: &Batch) -> Result<()> {
        for one in batch.singles() {
            if self.is_known(&one)? {
                self.count.before += 1;
            } else {
                self.send(one)?;
                self.settle_all()?;
            }
        }
        Ok(())
    }

    /// A message whose body passes in pieces.
    fn put_large(&mut self, one: &Batch, head: &Head, source: &mut dyn Source) -> Result<()> {
        self.settle_all()?;
        if self.searching {
            if self.is_known(one)? {
                self.count.before += 1;
                return source.pieces(&mut std::io::sink());
            }
            self.searching = false;
        }
        let sent = self
            .client
            .send(&one.request(self.again), &mut std::io::empty());
        let sent = sent
            .map_err(anyhow::Error::new)
            .and_then(|()| source.pieces(self.client.writer()));
        if let Err(error) = sent {
            if error.is::<records::BadInput>() {
                // The server drops a message that does not come whole.
                return Err(error);
            }
            let reply = self.client.receive().map_err(|_| error)?;
            return Err(refused(&reply, &one.place));
        }
        let reply = self.client.receive().with_context(|| repeat(&one.place))?;
        if reply.get("duplicate").is_some() {
            self.reconnect()?;
            self.count_single_repeat(one)?;
        } else {
            self.count_stored(&reply, one, head.bytes)?;
        }
        Ok(())
    }

    fn send(&mut self, batch: Batch) -> Result<()> {
        let request = batch.request(self.again);
        let sent = self.client.send(&request, &mut &batch.bodies[..]);
        self.sent_bytes += batch.bodies.len() + batch.head_bytes;
        self.sent.push_back(batch);
        if let Err(error) = sent {
            // A refusal closes the connection, and says why before.
            while !self.sent.is_empty() {
                self.settle()?;
            }
            return Err(error).context("the server closed the connection");
        }
        Ok(())
    }

    fn settle_all(&mut self) -> Result<()> {
        while !self.sent.is_empty() {
            self.settle()?;
        }
        Ok(())
    }

    /// Waits for the oldest batch on the way.
    fn settle(&mut self) -> Result<()> {
        let Some(batch) = self.sent.pop_front() else {
            return Ok(());
        };
        self.sent_bytes -= batch.bodies.len() + batch.head_bytes;
        let reply = self
            .client
            .receive()
            .with_context(|| repeat(&batch.place))?;
        if reply.get("duplicate").is_none() {
            return self.count_stored(&reply, &batch, batch.bodies.len() as u64);
        }
        // What was sent behind it was not decided.
        self.reconnect()?;
        let rest = std::mem::take(&mut self.sent);
        self.sent_bytes = 0;
        self.searching = !self.again;
        match batch.heads.len() {
            1 => self.count_single_repeat(&batch)?,
            count if self.is_known(&batch)? => self.count.before += count as u64,
            // One of them is a repeat to a queue that looks at keys.
            _ => self.put_singly(&batch)?,
        }
        for batch in rest {
            self.put(batch)?;
        }
        Ok(())
    }

    fn count_single_repeat(&mut self, one: &Batch) -> Result<()> {
        match self.is_known(one)? {
            true => self.count.before += 1,
            false => self.count.refused += 1,
        }
        Ok(())
    }

    fn count_stored(&mut self, reply: &Value, batch: &Batch, bytes: u64) -> Result<()> {
        let Some(ids) = reply.get("ids").and_then(Value::as_array) else {
            return Err(refused(reply, &batch.place));
        };
        let mut ids: Vec<u64> = ids.iter().filter_map(Value::as_u64).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        self.count.stored += ids.len() as u64;
        self.count.refused += (all - ids.len()) as u64;
        self.progress.add(ids.len() as u64, bytes, self.position);
        Ok(())
    }

    /// Whether this very batch was stored before. Nothing may be on the way.
    fn is_known(&mut self, batch: &Batch) -> Result<bool> {
        if self.again {
            return Ok(false);
        }
        self.settle_all()?;
        let of = json!({ "queue": batch.queue, "token": batch.token() });
        let request = json!({ "imported": of }).to_string();
        let sent = self.client.send(&request, &mut std::io::empty());
        sent.context("the server closed the connection")?;
        let reply = self.client.receive()?;
        if reply.get("duplicate").is_some() {
            return Ok(true);
        }
        match reply.get("error").and_then(Value::as_str) {
            Some(NOT_KNOWN) => Ok(false),
            _ => Err(refused(&reply, &batch.place)),
        }
    }

    fn reconnect(&mut self) -> Result<()> {
        self.client = Client::connect(&self.at)?;
        Ok(())
    }
}

/// How a question for a batch that is not known is refused.
const NOT_KNOWN: &str = "message too large";

fn refused(reply: &Value, place: &str) -> anyhow::Error {
    let why = reply.get("error").and_then(Value::as_str);
    let why = why.unwrap_or("the server is of another version");
    anyhow!("{why}: nothing from {place} on is stored; repeat the command to go on from there")
}

fn repeat(place: &str) -> String {
    format!("what is from {place} on may be stored or not; repeat the command to go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_as_its_authors_list_it() {
        let mut hash = Fnv::default();
        hash.add(b"foobar");
        assert_eq!(hash.0, 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn a_token_tells_batches_and_their_parts_apart() {
        let batch = |queue: &str, first, heads: &[&str], body: &[u8]| {
            let mut batch = Batch::new(queue, first, "line 1".to_owned());
            heads
                .iter()
                .for_each(|head| batch.push((*head).to_owned(), body));
            batch
        };
        let all = [
            batch("q", 0, &["a", "b"], b"x"),
            batch("q", 0, &["a"], b"x"),
            batch("q", 1, &["a"], b"x"),
            batch("p", 0, &["a"], b"x"),
            batch("q", 0, &["a"], b"y"),
        ];
        let tokens: std::collections::BTreeSet<String> = all.iter().map(Batch::token).collect();
        assert_eq!(tokens.len(), all.len());
        let singles: Vec<Batch> = all[0].singles().collect();
        assert_eq!(singles[0].token(), all[1].token());
        assert_eq!((singles[1].first, &singles[1].bodies[..]), (1, &b"x"[..]));
    }
}
