//! The common part of other servers: messages are taken there, stored here, and deleted there.

use std::collections::VecDeque;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use quintet_control::Head;
use serde_json::Value;

use crate::import::count::Counts;
use crate::records::{Entry, Large, Source};

/// A message that a server holds for the import.
pub(super) struct Taken<H> {
    pub(super) held: H,
    /// Where the message is, for people.
    pub(super) place: String,
    /// Its head and body, or why they cannot be read; without a body [`Server::pieces`] reads it.
    pub(super) message: Result<(Head, Option<Vec<u8>>)>,
}

/// Result of one [`Server::take`].
pub(super) enum Step {
    /// The part may have more messages.
    More,
    /// The part has no more messages for now.
    End,
    /// The server gives no more before the held messages are stored.
    Full,
}

/// A kind of queue server.
pub(super) trait Server {
    /// A queue, or the messages of one state in it.
    type Part;
    /// What names a held message there.
    type Held;
    /// After a pass that found messages there is another, for those that came meanwhile.
    const AGAIN: bool = true;

    /// The parts, in the order in which they are moved.
    ///
    /// # Errors
    /// The server's, or it is gone.
    fn parts(&mut self) -> Result<VecDeque<Self::Part>>;

    /// Takes some messages of a part. `delivered` are held and not stored here yet.
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn take(
        &mut self,
        part: &mut Self::Part,
        delivered: &VecDeque<Self::Held>,
        taken: &mut VecDeque<Taken<Self::Held>>,
    ) -> Result<Step>;

    /// Writes the body, of so many bytes, of a message that was taken without one.
    ///
    /// # Errors
    /// The body cannot be read, or `into` takes no more.
    fn pieces(
        &self,
        _held: &Self::Held,
        (_bytes, _place): (u64, &str),
        _into: &mut dyn Write,
    ) -> Result<()> {
        Ok(())
    }

    /// Deletes messages that are stored here; see [`Peer::twice`] for the number.
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn delete(&mut self, stored: &[Self::Held]) -> Result<u64>;

    /// See [`Peer::give_back`].
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn give_back(&mut self, held: Vec<Self::Held>) -> Result<u64>;

    /// See [`Peer::counts`].
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn counts(&mut self) -> Result<Counts>;

    /// See [`Peer::setups`].
    fn setups(&self) -> Vec<(String, Value)> {
        Vec::new()
    }

    /// See [`Peer::fault`].
    fn fault(&self) -> Option<String> {
        None
    }

    /// See [`Peer::local`].
    fn local(&mut self) -> Option<SocketAddr> {
        None
    }
}

/// Another queue server, from which messages are moved.
///
/// The messages that it gave are held there until [`Source::stored`] says that they are durable
/// here; then they are deleted there. So each is in one place at least, and comes twice if a fault
/// leaves it in both.
pub(in crate::import) trait Peer: Source {
    /// The waiting messages, by queue and state; nothing is taken.
    ///
    /// # Errors
    /// The peer's, or it is gone.
    fn counts(&mut self) -> Result<Counts>;

    /// How the queues that were counted are set up there, as `POST /queues/{queue}` takes it.
    fn setups(&self) -> Vec<(String, Value)>;

    /// False: [`Source::next`] gave nothing because what it gave before should be stored first.
    fn is_through(&self) -> bool;

    /// Gives back what is held and not stored, as it was there; how many messages.
    ///
    /// # Errors
    /// The peer is gone: then it gives them back itself.
    fn give_back(&mut self) -> Result<u64>;

    /// Why the import fails although it went on; ask before [`Self::give_back`].
    fn fault(&self) -> Option<String>;

    /// This end of a connection to it that stands and that it has accepted, if there is one.
    fn local(&mut self) -> Option<SocketAddr>;

    /// How many messages that are stored here somebody else may have taken there meanwhile, as
    /// their time to run was over.
    fn twice(&self) -> u64;
}

/// The messages of a server, part by part.
pub(super) struct Mover<S: Server> {
    server: S,
    /// Ends the import in good order.
    stop: Arc<AtomicBool>,
    /// Nothing more is given.
    through: bool,
    /// Still to be gone through; the first is the one in hand.
    parts: VecDeque<S::Part>,
    /// Something was found since the parts were listed.
    found: bool,
    /// Not given out.
    taken: VecDeque<Taken<S::Held>>,
    /// Given out and not stored.
    delivered: VecDeque<S::Held>,
    /// Place of the message that was given last.
    place: String,
    /// Its body, if it is long and was taken with it.
    large: Large,
    /// Its length, if the server writes the body.
    streamed: Option<u64>,
    /// Messages given out.
    passed: u64,
    twice: u64,
}

impl<S: Server + 'static> Mover<S> {
    /// Lists the parts.
    ///
    /// # Errors
    /// As of [`Server::parts`].
    pub(super) fn begin(mut server: S, stop: Arc<AtomicBool>) -> Result<Box<dyn Peer>> {
        Ok(Box::new(Self {
            parts: server.parts()?,
            server,
            stop,
            through: false,
            found: false,
            taken: VecDeque::new(),
            delivered: VecDeque::new(),
            place: String::new(),
            large: Large::default(),
            streamed: None,
            passed: 0,
            twice: 0,
        }))
    }
}

impl<S: Server> Mover<S> {
    fn give(&mut self, taken: Taken<S::Held>) -> Result<Entry> {
        self.place = taken.place;
        // Also one that cannot be read: it is given back.
        self.delivered.push_back(taken.held);
        let (head, body) = taken.message?;
        self.passed += 1;
        self.streamed = body.is_none().then_some(head.bytes);
        Ok(match body {
            Some(body) => self.large.entry(head, body),
            None => Entry { head, body: None },
        })
    }
}

impl<S: Server> Source for Mover<S> {
    fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            self.through |= self.stop.load(Ordering::Relaxed);
            if self.through {
                return Ok(None);
            }
            if let Some(taken) = self.taken.pop_front() {
                return self.give(taken).map(Some);
            }
            let Some(part) = self.parts.front_mut() else {
                if !S::AGAIN || !self.found {
                    self.through = true;
                } else if self.delivered.is_empty() {
                    // What was put, given back or became due meanwhile.
                    self.found = false;
                    self.parts = self.server.parts()?;
                } else {
                    // They may be there until they are stored here.
                    return Ok(None);
                }
                continue;
            };
            let step = self.server.take(part, &self.delivered, &mut self.taken)?;
            self.found |= !self.taken.is_empty();
            match step {
                Step::More => {}
                Step::End => drop(self.parts.pop_front()),
                Step::Full if self.taken.is_empty() && !self.delivered.is_empty() => {
                    return Ok(None);
                }
                Step::Full => {}
            }
        }
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        match (self.streamed, self.delivered.back()) {
            (Some(bytes), Some(held)) => self.server.pieces(held, (bytes, &self.place), into),
            _ => self.large.write(into),
        }
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn position(&self) -> u64 {
        self.passed
    }

    fn stored(&mut self, messages: u64) -> Result<()> {
        let count = usize::try_from(messages).unwrap_or(usize::MAX);
        let count = count.min(self.delivered.len());
        let stored: Vec<S::Held> = self.delivered.drain(..count).collect();
        self.twice += self.server.delete(&stored)?;
        Ok(())
    }
}

impl<S: Server> Peer for Mover<S> {
    fn counts(&mut self) -> Result<Counts> {
        self.server.counts()
    }

    fn setups(&self) -> Vec<(String, Value)> {
        self.server.setups()
    }

    fn is_through(&self) -> bool {
        self.through
    }

    fn give_back(&mut self) -> Result<u64> {
        self.through = true;
        let taken = self.taken.drain(..).map(|taken| taken.held);
        let held: Vec<S::Held> = self.delivered.drain(..).chain(taken).collect();
        self.server.give_back(held)
    }

    fn fault(&self) -> Option<String> {
        self.server.fault()
    }

    fn local(&mut self) -> Option<SocketAddr> {
        self.server.local()
    }

    fn twice(&self) -> u64 {
        self.twice
    }
}
