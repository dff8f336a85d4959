//! Storing the messages of a file in order, once.

use std::collections::VecDeque;
use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use quintet_control::Head;
use quintet_types::{CommandError, HELD, MessageId};
use serde_json::Value;

use super::batch::{Batch, Group};
use crate::Where;
use crate::api::{Api, part};
use crate::client::Refused;
use crate::progress::{Progress, count_of};
use crate::records::{BadInput, Entry, Source};
use crate::verbs::CONNECTIONS;

/// Groups of batches of a file on the way at most.
pub(super) const WINDOW: usize = 4;
/// And bytes of their bodies.
const WINDOW_BYTES: usize = 8 << 20;
/// Bytes of the line before the bodies at most.
const LINE_MAX: usize = 1 << 20;
/// Room of a request beside the heads.
const REQUEST_ROOM: usize = 1 << 10;

/// Counts of the messages.
#[derive(Default)]
pub(super) struct Count {
    pub(super) stored: u64,
    pub(super) before: u64,
    pub(super) refused: u64,
    /// Messages of the source that waited for others.
    pub(super) held: u64,
    /// Members of batches of the source.
    pub(super) members: u64,
}

impl Count {
    /// Messages from the beginning that need not be sent again.
    pub(super) fn settled(&self) -> u64 {
        self.stored + self.before + self.refused
    }

    /// Says on standard error what an import did that ended well, or did not.
    pub(super) fn report(&self, well: bool) {
        match self.settled() {
            0 if well => eprintln!("nothing to import"),
            _ => eprintln!("{self}"),
        }
        self.losses();
    }

    /// Says what the copies have not.
    pub(super) fn losses(&self) {
        if self.held > 0 {
            let held = count_of(self.held, "message");
            let stay = match self.held {
                1 => "its copy stays delayed until it is kicked",
                _ => "their copies stay delayed until they are kicked",
            };
            eprintln!(
                "{held} of the source waited for other messages: {stay} \
                 (quintet kick QUEUE --state delayed)"
            );
        }
        if self.members > 0 {
            let members = count_of(self.members, "message");
            eprintln!("{members} of the source belonged to batches, which an import does not make");
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} stored", count_of(self.stored, "message"))?;
        if self.before > 0 {
            let before = self.before;
            let were = if before == 1 { "was" } else { "were" };
            write!(
                f,
                ", {before} {were} stored by an earlier import of this file"
            )?;
        }
        if self.refused > 0 {
            match self.refused {
                1 => write!(f, ", 1 is a duplicate in its queue and not stored")?,
                refused => write!(
                    f,
                    ", {refused} are duplicates in their queue and not stored"
                )?,
            }
        }
        Ok(())
    }
}

/// An import under way.
///
/// Batches go out one behind the other; after one that is refused the server
/// decides no other, so what is stored is always the beginning of the file. A
/// repeat asks for each batch whether it was stored, until one was not.
///
/// While some are on the way, the next ones are gathered and go out together: they share a sync of
/// the log. Batches that are refused together go out again one by one.
///
/// The last batch, which may have more messages when the file was mended or
/// its export went on, goes out message by message.
pub(super) struct Importer<'a> {
    pub(super) at: &'a Where,
    pub(super) client: Api,
    pub(super) into: Option<String>,
    /// Nothing is remembered or asked for.
    pub(super) again: bool,
    /// The next batch may have been stored before.
    pub(super) searching: bool,
    /// Groups of batches on the way at most.
    pub(super) window: usize,
    /// Of the messages that are settled, those that the source knows.
    pub(super) reported: u64,
    /// To be sent together.
    pub(super) gathered: Group,
    /// Sent and not answered.
    pub(super) sent: VecDeque<Group>,
    pub(super) sent_bytes: usize,
    pub(super) count: Count,
    pub(super) progress: Progress,
    /// How far the source is read.
    pub(super) position: u64,
}

impl Importer<'_> {
    /// True if this end of a connection is one of the server's connections. Who may not look at
    /// them learns that it is none.
    pub(super) fn is_connected(&mut self, here: SocketAddr) -> bool {
        let here = here.to_string();
        let all = Api::connect(self.at).and_then(|mut api| api.list(CONNECTIONS, "id"));
        let mut all = all.unwrap_or_default().into_iter();
        all.any(|one| one["peer"] == *here)
    }

    /// Stores all messages that a source has, and tells it.
    ///
    /// # Errors
    /// The source is not what it should be, the server refuses a message, or it
    /// is gone; all messages before that place are stored.
    pub(super) fn all(&mut self, source: &mut dyn Source) -> Result<()> {
        let done = self.each(source);
        let reported = self.report(source);
        done.and(reported)
    }

    /// Reports the durable messages to the source.
    fn report(&mut self, source: &mut dyn Source) -> Result<()> {
        let settled = self.count.settled();
        let more = settled - std::mem::replace(&mut self.reported, settled);
        match more {
            0 => Ok(()),
            more => source.stored(more),
        }
    }

    fn each(&mut self, source: &mut dyn Source) -> Result<()> {
        let mut batch: Option<Batch> = None;
        for number in 0.. {
            let (entry, text) = match self.next(source) {
                Ok(Some(next)) => next,
                end => {
                    for one in batch.iter().flat_map(Batch::singles) {
                        self.put(one)?;
                    }
                    self.settle_all()?;
                    return end.map(|_| ());
                }
            };
            self.position = source.position();
            let body = entry.body.as_deref().unwrap_or_default();
            let fits =
                |batch: &Batch| entry.body.is_some() && batch.takes(&entry.head.queue, &text, body);
            if let Some(full) = batch.take_if(|batch| !fits(batch)) {
                self.put(full)?;
                self.report(source)?;
            }
            if entry.body.is_none() {
                let mut large = Batch::new(&entry.head.queue, number, source.place());
                large.push(text, &[]);
                self.put_large(large, &entry.head, source)?;
                continue;
            }
            batch
                .get_or_insert_with(|| Batch::new(&entry.head.queue, number, source.place()))
                .push(text, body);
        }
        Ok(())
    }

    /// The next message, and its head as it goes into a request.
    fn next(&mut self, source: &mut dyn Source) -> Result<Option<(Entry, String)>> {
        let Some(mut entry) = source.next()? else {
            return Ok(None);
        };
        if let Some(into) = &self.into {
            entry.head.queue.clone_from(into);
        }
        self.count.held += u64::from(entry.head.due_ms == Some(HELD.0));
        self.count.members += u64::from(entry.head.batch.take().is_some());
        let text = serde_json::to_string(&entry.head)?;
        if text.len() + REQUEST_ROOM > LINE_MAX {
            let why = "its key, attributes and status take more than 1 MiB";
            return Err(BadInput::error(source.place(), why));
        }
        Ok(Some((entry, text)))
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
    fn put_large(&mut self, one: Batch, head: &Head, source: &mut dyn Source) -> Result<()> {
        self.settle_all()?;
        if self.searching {
            if self.is_known(&one)? {
                self.count.before += 1;
                return source.pieces(&mut std::io::sink());
            }
            self.searching = false;
        }
        let path = records(&one.queue);
        let group = Group(vec![one]);
        let sent = self
            .client
            .begin(&path, &group.request(self.again), head.bytes);
        let sent = sent.and_then(|()| source.pieces(&mut self.client.writer()?));
        let reply = match sent {
            Ok(()) => self.client.receive(),
            // The server drops a message that does not come whole.
            Err(error) if error.is::<BadInput>() => return Err(error),
            // An error may come before all was sent.
            Err(error) => match self.client.receive() {
                Err(refused) if refused.is::<Refused>() => Err(refused),
                Ok(_) | Err(_) => Err(error),
            },
        };
        let one = &group.0[0];
        match reply {
            Ok(reply) => self.count_stored(&reply, one, head.bytes),
            Err(error) if is_duplicate(&error) => self.count_single_repeat(one),
            Err(error) => Err(refused(error, &one.place)),
        }
    }

    /// Sends a batch, alone if nothing is on the way.
    fn send(&mut self, batch: Batch) -> Result<()> {
        while self.gathered.is_full_for(&batch) {
            self.flush()?;
        }
        self.gathered.0.push(batch);
        match self.sent.is_empty() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends the gathered batches.
    fn flush(&mut self) -> Result<()> {
        // A refused group goes out again, and batches behind it are gathered anew: the group is
        // taken after that.
        while self.sent.len() >= self.window || self.sent_bytes >= WINDOW_BYTES {
            self.settle()?;
        }
        let group = std::mem::take(&mut self.gathered);
        let Some(first) = group.0.first() else {
            return Ok(());
        };
        let (path, bytes) = (records(&first.queue), group.bytes());
        let request = group.request(self.again);
        let mut sent = self.client.begin(&path, &request, bytes as u64);
        for batch in &group.0 {
            sent = sent.and_then(|()| Ok(self.client.writer()?.write_all(&batch.bodies)?));
        }
        self.sent_bytes += bytes;
        self.sent.push_back(group);
        if sent.is_err() {
            // An error closes the connection, and says why before: that is
            // an error, or all of them are sent again.
            self.settle_all()?;
        }
        Ok(())
    }

    fn settle_all(&mut self) -> Result<()> {
        while !(self.sent.is_empty() && self.gathered.0.is_empty()) {
            match self.sent.is_empty() {
                true => self.flush()?,
                false => self.settle()?,
            }
        }
        Ok(())
    }

    /// Waits for the oldest group on the way.
    fn settle(&mut self) -> Result<()> {
        let Some(mut group) = self.sent.pop_front() else {
            return Ok(());
        };
        let bytes = group.bytes();
        self.sent_bytes -= bytes;
        let Some(first) = group.0.first() else {
            return Ok(());
        };
        let error = match self.client.receive() {
            Ok(reply) => return self.count_stored(&reply, first, bytes as u64),
            Err(error) => error,
        };
        let parts = group.0.len();
        if !is_duplicate(&error) && (parts == 1 || !Refused::is_certain(&error)) {
            return Err(refused(error, &first.place));
        }
        // What was sent behind it was not decided.
        let mut rest = std::mem::take(&mut self.sent);
        rest.push_back(std::mem::take(&mut self.gathered));
        self.sent_bytes = 0;
        self.searching = !self.again && is_duplicate(&error);
        let alone = if parts == 1 { group.0.pop() } else { None };
        match alone {
            Some(one) if one.heads.len() == 1 => self.count_single_repeat(&one)?,
            Some(one) if self.is_known(&one)? => self.count.before += one.heads.len() as u64,
            // One of them is a repeat to a queue that looks at keys.
            Some(one) => self.put_singly(&one)?,
            None => {}
        }
        for batch in group.0 {
            self.put(batch)?;
            self.settle_all()?;
        }
        for batch in rest.into_iter().flat_map(|group| group.0) {
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
        let ids = reply.get("ids").and_then(Value::as_array);
        let ids = ids.with_context(|| repeat(&batch.place))?;
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
        let path = format!("/queues/{}/imports/{}", part(&batch.queue), batch.token());
        match self.client.get(&path) {
            Ok(_) => Ok(true),
            Err(error) if Refused::is(&error, CommandError::NotFound) => Ok(false),
            Err(error) => Err(refused(error, &batch.place)),
        }
    }
}

/// Where messages of a queue go.
fn records(queue: &str) -> String {
    format!("/queues/{}/records", part(queue))
}

fn is_duplicate(error: &anyhow::Error) -> bool {
    Refused::is(error, CommandError::Duplicate(MessageId(0)))
}

fn refused(error: anyhow::Error, place: &str) -> anyhow::Error {
    match Refused::is_certain(&error) {
        true => anyhow!(
            "{error}: nothing from {place} on is stored; repeat the command to continue there"
        ),
        false => error.context(repeat(place)),
    }
}

fn repeat(place: &str) -> String {
    format!("messages from {place} on may be stored or not; repeat the command to continue")
}

#[cfg(test)]
mod tests;
