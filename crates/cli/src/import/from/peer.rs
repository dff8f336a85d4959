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

/// Head and body of a message, or why they cannot be read; without a body [`Server::pieces`] reads
/// it.
pub(super) type Message = Result<(Head, Option<Vec<u8>>)>;

/// A queue, a state, and the number of messages in it.
pub(super) type Number = (String, &'static str, u64);

/// The messages that a server holds for the import.
pub(in crate::import) struct Hold<H> {
    /// Not given out; each with its place, for people.
    taken: VecDeque<(H, String, Message)>,
    /// Given out and not stored; each with the length of its body.
    delivered: VecDeque<(H, u64)>,
}

impl<H> Hold<H> {
    pub(super) fn new() -> Self {
        let (taken, delivered) = (VecDeque::new(), VecDeque::new());
        Self { taken, delivered }
    }

    /// A message was taken at this place.
    pub(super) fn push(&mut self, held: H, place: String, message: Message) {
        self.taken.push_back((held, place, message));
    }

    /// True if some of the messages wait to be stored.
    pub(super) fn is_waiting(&self) -> bool {
        !self.delivered.is_empty()
    }

    /// Their names at the server, in the order in which they were taken; none is left.
    pub(super) fn drain(&mut self) -> Vec<H> {
        let taken = self.taken.drain(..).map(|(held, ..)| held);
        let delivered = self.delivered.drain(..).map(|(held, _)| held);
        delivered.chain(taken).collect()
    }
}

/// A kind of queue server.
pub(in crate::import) trait Server {
    /// A queue, or the messages of one state in it.
    type Part;
    /// The name of a held message there.
    type Held;
    /// After a pass that found messages there is another, for those that came meanwhile.
    const AGAIN: bool = true;
    /// So many messages, and bytes of bodies, are held and not stored at most.
    const AHEAD: (usize, u64) = (usize::MAX, u64::MAX);

    /// The parts, in the order in which they are moved.
    ///
    /// # Errors
    /// The server's, or it is gone.
    fn parts(&mut self) -> Result<VecDeque<Self::Part>>;

    /// Takes some messages of a part; none also because others should be stored first. False: the
    /// part has no more for now.
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn take(&mut self, part: &mut Self::Part, hold: &mut Hold<Self::Held>) -> Result<bool>;

    /// Writes the body of a message that was taken without one: its length in bytes and its place
    /// are known.
    ///
    /// # Errors
    /// The body cannot be read, or it cannot be written.
    fn pieces(&self, _held: &Self::Held, _of: (u64, &str), _to: &mut dyn Write) -> Result<()> {
        Ok(())
    }

    /// Deletes messages that are stored here; how many of them others may have, see
    /// [`Mover::twice`].
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn delete(&mut self, stored: &[Self::Held]) -> Result<u64>;

    /// See [`Mover::give_back`].
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn give_back(&mut self, held: Vec<Self::Held>) -> Result<u64>;

    /// See [`Mover::counts`].
    ///
    /// # Errors
    /// As of [`Server::parts`].
    fn numbers(&mut self) -> Result<Vec<Number>>;

    /// How the queues that were counted are set up there, as `POST /queues/{queue}` takes it.
    fn setups(&self) -> Vec<(String, Value)> {
        Vec::new()
    }

    /// The reason why the import fails although it went on; ask before [`Server::give_back`].
    fn fault(&self) -> Option<String> {
        None
    }

    /// This end of a connection to it that stands and that it has accepted, if there is one.
    fn local(&mut self) -> Option<SocketAddr> {
        None
    }
}

/// The messages of a server, which are moved part by part.
///
/// The messages that it gave are held there until [`Source::stored`] says that they are durable
/// here; then they are deleted there. So each is in one place at least, and comes twice if a fault
/// leaves it in both.
pub(in crate::import) struct Mover<S: Server> {
    pub(in crate::import) server: S,
    /// Ends the import in good order.
    stop: Arc<AtomicBool>,
    /// Nothing more is given. False: [`Source::next`] gave nothing because the messages before
    /// should be stored first.
    pub(in crate::import) through: bool,
    /// Still to be gone through; the first is the one in hand.
    parts: VecDeque<S::Part>,
    /// Something was found since the parts were listed.
    found: bool,
    hold: Hold<S::Held>,
    /// Place of the message that was given last.
    place: String,
    /// Its body, if it is long and was taken with it.
    large: Large,
    /// Its body comes from [`Server::pieces`].
    is_streamed: bool,
    /// Messages given out.
    passed: u64,
    /// Messages stored here that somebody else may have taken there meanwhile, as their time to run
    /// was over.
    pub(in crate::import) twice: u64,
}

impl<S: Server> Mover<S> {
    /// Lists the parts.
    ///
    /// # Errors
    /// As of [`Server::parts`].
    pub(in crate::import) fn begin(mut server: S, stop: Arc<AtomicBool>) -> Result<Self> {
        Ok(Self {
            parts: server.parts()?,
            server,
            stop,
            through: false,
            found: false,
            hold: Hold::new(),
            place: String::new(),
            large: Large::default(),
            is_streamed: false,
            passed: 0,
            twice: 0,
        })
    }

    /// The waiting messages, by queue and state; nothing is taken.
    ///
    /// # Errors
    /// As of [`Server::parts`].
    pub(in crate::import) fn counts(&mut self) -> Result<Counts> {
        let mut counts = Counts::default();
        for (queue, state, messages) in self.server.numbers()? {
            counts.add(&queue, state, messages);
        }
        Ok(counts)
    }

    /// Gives back what is held and not stored, as it was there; how many messages.
    ///
    /// # Errors
    /// The server is gone: then it gives them back itself.
    pub(in crate::import) fn give_back(&mut self) -> Result<u64> {
        self.through = true;
        self.server.give_back(self.hold.drain())
    }

    fn give(&mut self, held: S::Held, message: Message) -> Result<Entry> {
        let bytes = message.as_ref().map_or(0, |(head, _)| head.bytes);
        // Also one that cannot be read: it is given back.
        self.hold.delivered.push_back((held, bytes));
        let (head, body) = message?;
        self.passed += 1;
        self.is_streamed = body.is_none();
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
            if let Some((held, place, message)) = self.hold.taken.pop_front() {
                self.place = place;
                return self.give(held, message).map(Some);
            }
            let delivered = &self.hold.delivered;
            let bytes: u64 = delivered.iter().map(|(_, bytes)| bytes).sum();
            if delivered.len() >= S::AHEAD.0 || bytes >= S::AHEAD.1 {
                return Ok(None);
            }
            let Some(part) = self.parts.front_mut() else {
                if !S::AGAIN || !self.found {
                    self.through = true;
                } else if !self.hold.is_waiting() {
                    // What was put, given back or became due meanwhile.
                    self.found = false;
                    self.parts = self.server.parts()?;
                } else {
                    // They may be there until they are stored here.
                    return Ok(None);
                }
                continue;
            };
            let more = self.server.take(part, &mut self.hold)?;
            if !more {
                self.parts.pop_front();
            }
            if !self.hold.taken.is_empty() {
                self.found = true;
            } else if more && self.hold.is_waiting() {
                return Ok(None);
            }
        }
    }

    fn pieces(&mut self, into: &mut dyn Write) -> Result<()> {
        match self.hold.delivered.back() {
            Some((held, bytes)) if self.is_streamed => {
                self.server.pieces(held, (*bytes, &self.place), into)
            }
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
        let count = count.min(self.hold.delivered.len());
        let stored = self.hold.delivered.drain(..count);
        let stored: Vec<S::Held> = stored.map(|(held, _)| held).collect();
        self.twice += self.server.delete(&stored)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use quintet_host::locked;

    use super::*;

    /// The requests that a server got.
    type Log = Arc<Mutex<Vec<String>>>;

    /// Passes over one part, whose messages are numbers; 0 cannot be read.
    struct Numbers {
        log: Log,
        passes: VecDeque<Vec<u64>>,
    }

    impl Server for Numbers {
        type Part = Vec<u64>;
        type Held = u64;
        const AHEAD: (usize, u64) = (3, u64::MAX);

        fn parts(&mut self) -> Result<VecDeque<Vec<u64>>> {
            locked(&self.log).push("parts".to_owned());
            Ok(self.passes.pop_front().into_iter().collect())
        }

        fn take(&mut self, part: &mut Vec<u64>, hold: &mut Hold<u64>) -> Result<bool> {
            for &number in part.iter() {
                let head = Head {
                    id: number,
                    ..Head::default()
                };
                let message = match number {
                    0 => Err(anyhow::anyhow!("not read")),
                    _ => Ok((head, Some(Vec::new()))),
                };
                hold.push(number, format!("number {number}"), message);
            }
            Ok(false)
        }

        fn delete(&mut self, stored: &[u64]) -> Result<u64> {
            locked(&self.log).push(format!("delete {stored:?}"));
            Ok(0)
        }

        fn give_back(&mut self, held: Vec<u64>) -> Result<u64> {
            locked(&self.log).push(format!("give back {held:?}"));
            Ok(held.len() as u64)
        }

        fn numbers(&mut self) -> Result<Vec<Number>> {
            Ok(Vec::new())
        }
    }

    fn mover(passes: &[&[u64]]) -> (Mover<Numbers>, Log) {
        let log = Log::default();
        let numbers = Numbers {
            log: Arc::clone(&log),
            passes: passes.iter().map(|pass| pass.to_vec()).collect(),
        };
        (Mover::begin(numbers, Arc::default()).unwrap(), log)
    }

    fn id(mover: &mut Mover<Numbers>) -> Option<u64> {
        mover.next().unwrap().map(|entry| entry.head.id)
    }

    #[test]
    fn a_server_is_searched_again_when_all_that_it_gave_is_stored() {
        let (mut mover, log) = mover(&[&[1, 2], &[3]]);
        assert_eq!(id(&mut mover), Some(1));
        assert_eq!(id(&mut mover), Some(2));
        assert_eq!((id(&mut mover), mover.through), (None, false));
        mover.stored(2).unwrap();
        assert_eq!(id(&mut mover), Some(3));
        mover.stored(1).unwrap();
        assert_eq!((id(&mut mover), mover.through), (None, true));
        assert_eq!(mover.give_back().unwrap(), 0);
        let log = locked(&log).join(", ");
        let wanted = "parts, delete [1, 2], parts, delete [3], parts, give back []";
        assert_eq!(log, wanted);
    }

    #[test]
    fn a_message_that_cannot_be_read_is_given_back_with_those_behind_it() {
        let (mut mover, log) = mover(&[&[1, 0, 2]]);
        assert_eq!(id(&mut mover), Some(1));
        let error = mover.next().err().unwrap();
        assert_eq!(
            (error.to_string(), mover.place()),
            ("not read".to_owned(), "number 0".to_owned())
        );
        mover.stored(1).unwrap();
        assert_eq!(mover.give_back().unwrap(), 2);
        assert_eq!(
            locked(&log).join(", "),
            "parts, delete [1], give back [0, 2]"
        );
        assert!(mover.next().unwrap().is_none());
    }

    #[test]
    fn no_more_is_held_than_the_limit_and_nothing_after_a_stop() {
        let (mut mover, _) = mover(&[&[1, 2, 3, 4], &[5]]);
        for number in 1..=4 {
            assert_eq!(id(&mut mover), Some(number));
        }
        assert_eq!(id(&mut mover), None, "four are held");
        mover.stored(4).unwrap();
        assert_eq!(id(&mut mover), Some(5));
        let stop = Arc::new(AtomicBool::new(true));
        let numbers = Numbers {
            log: Log::default(),
            passes: [vec![1]].into(),
        };
        let mut mover = Mover::begin(numbers, stop).unwrap();
        assert_eq!((id(&mut mover), mover.through), (None, true));
    }
}
