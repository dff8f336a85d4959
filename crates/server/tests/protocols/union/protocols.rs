//! A server with every protocol, and its clients, as alike as their protocols let
//! them be.

use std::fmt::Write as _;

pub(crate) use crate::common::Protocol;
use crate::common::{
    Client, PATIENCE, Put, QueueClient, Server, Start, TakenMessage, binary, eventually, named,
    text,
};

/// Queues of shards 0 to 3 of four; lineup has a listener for each.
pub(crate) const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

pub(crate) const PROTOCOLS: [Protocol; 6] = [
    Protocol::Memcache,
    Protocol::Lineup,
    Protocol::Jobqueue,
    Protocol::Beanstalk,
    Protocol::Pinpriq,
    Protocol::CommandLine,
];

/// Those that take the oldest of a priority.
pub(crate) const FIFO: [Protocol; 5] = [
    Protocol::Memcache,
    Protocol::Lineup,
    Protocol::Jobqueue,
    Protocol::Beanstalk,
    Protocol::CommandLine,
];

/// Those whose takes can wait.
pub(crate) const PATIENT: [Protocol; 5] = [
    Protocol::Memcache,
    Protocol::Jobqueue,
    Protocol::Beanstalk,
    Protocol::Pinpriq,
    Protocol::CommandLine,
];

/// Those whose consumers hold what they took.
pub(crate) const LEASING: [Protocol; 3] =
    [Protocol::Memcache, Protocol::Jobqueue, Protocol::Beanstalk];

/// A running server.
pub(crate) struct House {
    pub(crate) server: Server,
}

/// Runs a test on a server of one shard, and on one of four.
pub(crate) fn in_houses(test: impl Fn(&House, &str)) {
    test(&House::open(1, ""), QUEUES[0]);
    test(&House::open(4, ""), QUEUES[2]);
}

impl House {
    /// `more` is configuration: settings of queues.
    pub(crate) fn open(shards: u32, more: &str) -> Self {
        Self::open_with(shards, more, |_| "")
    }

    /// `options` are lines for the listeners of each protocol.
    pub(crate) fn open_with(shards: u32, more: &str, options: fn(&str) -> &str) -> Self {
        let mut config = format!("shards = {shards}\nio_threads = 2\n{more}\n");
        for protocol in ["memcache", "jobqueue", "beanstalk", "pinpriq"] {
            listen(&mut config, protocol, options(protocol));
        }
        for queue in QUEUES {
            let of_queue = format!("queue = \"{queue}\"\n{}", options("lineup"));
            listen(&mut config, "lineup", &of_queue);
        }
        let server = Start::of(&config).sync("never").serve_as_configured();
        Self { server }
    }

    /// A client of `protocol` for one queue.
    pub(crate) fn guest(&self, protocol: Protocol, queue: &str) -> Guest {
        let mut addresses = self.server.addresses(&binary());
        if protocol == Protocol::Lineup {
            let at = QUEUES.iter().position(|name| *name == queue);
            let mut listeners = self.server.addresses_of("lineup");
            let address = listeners.nth(at.expect("a queue that lineup serves"));
            addresses.set(protocol, address.expect("its listener"));
        }
        let mut client = QueueClient::open(&addresses, protocol, PATIENCE).expect("connected");
        client.choose(queue).expect("chosen");
        Guest {
            queue: queue.to_owned(),
            client,
            held: Vec::new(),
        }
    }

    /// A number of a queue's statistics; 0 if there is no such queue.
    pub(crate) fn number(&self, queue: &str, key: &str) -> u64 {
        self.server.number_of(queue, key).unwrap_or(0)
    }

    /// Asks until a number is as it should be.
    #[track_caller]
    pub(crate) fn await_number(&self, queue: &str, key: &str, expected: u64) {
        let what = format!("{key} of {queue} is {expected}");
        eventually(&what, || {
            (self.number(queue, key) == expected).then_some(())
        });
    }

    /// Sees that nobody gets anything from the queue.
    #[track_caller]
    pub(crate) fn expect_nothing(&self, queue: &str) {
        for protocol in PROTOCOLS {
            let found = self.guest(protocol, queue).take_now();
            assert_eq!(found, None, "{protocol:?}");
        }
    }
}

fn listen(config: &mut String, protocol: &str, options: &str) {
    write!(
        config,
        "[[listen]]\nprotocol = \"{protocol}\"\naddress = \"127.0.0.1:0\"\n{options}\n"
    )
    .expect("strings take all");
}

/// A client of one protocol for one queue.
pub(crate) struct Guest {
    queue: String,
    client: QueueClient,
    /// Messages that it took and has not finished.
    held: Vec<TakenMessage>,
}

impl Guest {
    pub(crate) fn wire(&mut self) -> &mut Client {
        self.client.client()
    }

    /// Puts at the priority this protocol puts at if nobody says; pinpriq, which has
    /// no such priority, at 200.
    #[track_caller]
    pub(crate) fn put(&mut self, body: &str) {
        let priority = if self.client.protocol() == Protocol::Pinpriq {
            200
        } else {
            1024
        };
        self.put_with_priority(priority, body);
    }

    /// Puts at a priority. Memcache has only 1024, pinpriq only 1 to 255.
    #[track_caller]
    pub(crate) fn put_with_priority(&mut self, priority: u32, body: &str) {
        assert!(self.client.protocol() != Protocol::Memcache || priority == 1024);
        self.put_with(body, priority, 0, 60, 0, body);
    }

    #[track_caller]
    fn put_with(
        &mut self,
        body: &str,
        priority: u32,
        delay_s: u32,
        lease_s: u32,
        ttl: u32,
        key: &str,
    ) -> u64 {
        let put = Put {
            priority: Some(priority),
            delay_s,
            lease_s,
            ttl,
            key: key.as_bytes(),
        };
        let put = self.client.put(&self.queue, body.as_bytes(), put);
        put.expect("a reply").expect("stored")
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: &[u8], reply: &[u8]) {
        self.wire().ask(request, reply);
    }

    /// Jobqueue: ADD; its id.
    #[track_caller]
    pub(crate) fn add(&mut self, priority: u32, ttp: u32, body: &str) -> u64 {
        self.put_with(body, priority, 0, ttp, 0, "")
    }

    /// Beanstalk: put; its id.
    #[track_caller]
    pub(crate) fn job(&mut self, priority: u32, delay: u32, ttr: u32, body: &str) -> u64 {
        self.put_with(body, priority, delay, ttr, 0, "")
    }

    /// Pinpriq: push, and all that came before is decided.
    #[track_caller]
    pub(crate) fn push(&mut self, priority: u32, ttl_ms: u16, key: &str, body: &str) {
        self.put_with(body, priority, 0, 0, ttl_ms.into(), key);
    }

    /// Pinpriq: reads a group; keys and bodies.
    pub(crate) fn group(&mut self) -> Vec<(String, String)> {
        let group = self.client.group().expect("a group").into_iter();
        group.map(|(key, body)| (text(&key), text(&body))).collect()
    }

    /// Pinpriq: takes a group.
    pub(crate) fn pop(&mut self) -> Vec<(String, String)> {
        let request = self.named(0x50);
        self.wire().send(&request);
        self.group()
    }

    /// A pinpriq request about the queue.
    pub(crate) fn named(&self, opcode: u8) -> Vec<u8> {
        named(opcode, &self.queue)
    }

    /// Takes what must be there, and finishes it.
    #[track_caller]
    pub(crate) fn take(&mut self) -> String {
        self.take_now().expect("a message")
    }

    /// Takes, waiting no longer than its protocol makes it (a second, for
    /// jobqueue), and finishes.
    #[track_caller]
    pub(crate) fn take_now(&mut self) -> Option<String> {
        let taken = self.client.take(&self.queue, true).expect("a reply");
        self.finished(taken)
    }

    /// A message, finished where the protocol holds what it took; or in so many words that there is
    /// none.
    #[track_caller]
    fn finished(&mut self, taken: Option<TakenMessage>) -> Option<String> {
        let protocol = self.client.protocol();
        let Some(taken) = taken else {
            let says_so = LEASING.contains(&protocol);
            assert!(
                !says_so || self.client.reported_empty(),
                "{protocol:?} refused"
            );
            return None;
        };
        if matches!(protocol, Protocol::Jobqueue | Protocol::Beanstalk) {
            self.finish_taken(&taken);
        }
        Some(text(&taken.body))
    }

    #[track_caller]
    fn finish_taken(&mut self, taken: &TakenMessage) {
        let done = self.client.finish(&self.queue, taken);
        assert!(done.expect("a reply"), "it was no longer held");
    }

    /// Takes and keeps.
    #[track_caller]
    pub(crate) fn hold(&mut self) -> Option<String> {
        let taken = self.client.take(&self.queue, false).expect("a reply");
        self.held(taken).map(|(body, _)| body)
    }

    #[track_caller]
    fn held(&mut self, taken: Option<TakenMessage>) -> Option<(String, u32)> {
        let protocol = self.client.protocol();
        assert!(LEASING.contains(&protocol), "{protocol:?} holds nothing");
        let Some(taken) = taken else {
            assert!(self.client.reported_empty(), "{protocol:?} refused");
            return None;
        };
        let message = (text(&taken.body), taken.ttp);
        self.held.push(taken);
        Some(message)
    }

    /// Jobqueue: the reply to a reserve, and the ttp.
    #[track_caller]
    pub(crate) fn reserved(&mut self) -> Option<(String, u32)> {
        let taken = self.client.taken().expect("a reply");
        self.held(taken)
    }

    /// The id of what it took last and holds.
    pub(crate) fn held_id(&self) -> u64 {
        self.held.last().expect("something held").lease
    }

    /// Finishes what it took last and holds.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        let taken = self.held.pop().expect("something held");
        self.finish_taken(&taken);
    }

    /// Jobqueue: DELETE.
    #[track_caller]
    pub(crate) fn delete(&mut self, id: u64, reply: &[u8]) {
        self.ask(&[b"DELETE\0", &id.to_le_bytes()[..]].concat(), reply);
    }

    /// Begins to wait for a message, without limit as far as it can.
    pub(crate) fn wait(&mut self) {
        self.client.wait(&self.queue).expect("sent");
    }

    /// Receives the message it waited for, and finishes it.
    #[track_caller]
    pub(crate) fn waited(&mut self) -> String {
        let taken = self.client.taken().expect("a reply");
        self.finished(taken).expect("a message")
    }
}
