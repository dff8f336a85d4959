//! A server with every voice, and its clients, as alike as their protocols let
//! them be.

use std::fmt::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use crate::common::{Client, PATIENCE, Server, Start, quintet, text};

/// Queues of shards 0 to 3 of four; lineup has a listener for each.
pub(crate) const QUEUES: [&str; 4] = ["a", "b", "c", "d"];

/// Who puts and takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Voice {
    Memcache,
    Lineup,
    Jobqueue,
    Beanstalk,
    Pinpriq,
    CommandLine,
}

pub(crate) const VOICES: [Voice; 6] = [
    Voice::Memcache,
    Voice::Lineup,
    Voice::Jobqueue,
    Voice::Beanstalk,
    Voice::Pinpriq,
    Voice::CommandLine,
];

/// Those that take the oldest of a rank.
pub(crate) const FIFO: [Voice; 5] = [
    Voice::Memcache,
    Voice::Lineup,
    Voice::Jobqueue,
    Voice::Beanstalk,
    Voice::CommandLine,
];

/// Those whose takes can wait.
pub(crate) const PATIENT: [Voice; 5] = [
    Voice::Memcache,
    Voice::Jobqueue,
    Voice::Beanstalk,
    Voice::Pinpriq,
    Voice::CommandLine,
];

/// Those whose takers hold what they took.
pub(crate) const LEASING: [Voice; 3] = [Voice::Memcache, Voice::Jobqueue, Voice::Beanstalk];

/// A running server on a directory of its own.
pub(crate) struct House {
    pub(crate) server: Server,
    _folder: tempfile::TempDir,
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

    /// `options` are lines for the listeners of each voice.
    pub(crate) fn open_with(shards: u32, more: &str, options: fn(&str) -> &str) -> Self {
        let mut config = format!("shards = {shards}\nio_threads = 2\n{more}\n");
        for voice in ["memcache", "jobqueue", "beanstalk", "pinpriq"] {
            listen(&mut config, voice, options(voice));
        }
        for queue in QUEUES {
            let of_queue = format!("queue = \"{queue}\"\n{}", options("lineup"));
            listen(&mut config, "lineup", &of_queue);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let start = Start {
            sync: Some("never"),
            config: Some(&config),
            ..Start::default()
        };
        let server = Server::start_as_configured(&folder.path().join("data"), start);
        Self {
            server,
            _folder: folder,
        }
    }

    /// A client of `voice` for one queue.
    pub(crate) fn guest(&self, voice: Voice, queue: &str) -> Guest<'_> {
        let mut client = match voice {
            Voice::Memcache => Some(self.server.client_of("memcache")),
            Voice::Lineup => Some(self.lineup(queue)),
            Voice::Jobqueue => Some(self.server.client_of("jobqueue")),
            Voice::Beanstalk => Some(self.server.client_of("beanstalk")),
            Voice::Pinpriq => Some(self.server.client_of("pinpriq")),
            Voice::CommandLine => None,
        };
        if voice == Voice::Beanstalk
            && let Some(client) = &mut client
        {
            client.send(format!("use {queue}\r\nwatch {queue}\r\nignore default\r\n").as_bytes());
            client.expect(format!("USING {queue}\r\nWATCHING 2\r\nWATCHING 1\r\n").as_bytes());
        }
        Guest {
            house: self,
            voice,
            queue: queue.to_owned(),
            client,
            child: None,
            held: Vec::new(),
        }
    }

    fn lineup(&self, queue: &str) -> Client {
        let at = QUEUES.iter().position(|name| *name == queue);
        let lines = self.server.lines.iter();
        let mut addresses = lines.filter_map(|line| line.strip_prefix("listening lineup "));
        let address = addresses.nth(at.expect("a queue that lineup serves"));
        Client::tcp(address.expect("its listener"))
    }

    /// A number of a queue's statistics; 0 if there is no such queue.
    pub(crate) fn number(&self, queue: &str, key: &str) -> u64 {
        let stats = text(&self.server.run(&["stats", queue, "--json"]).stdout);
        let start = format!("\"{key}\":");
        let Some((_, after)) = stats.split_once(start.as_str()) else {
            return 0;
        };
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }

    /// Asks until a number is as it should be.
    #[track_caller]
    pub(crate) fn await_number(&self, queue: &str, key: &str, expected: u64) {
        let began = Instant::now();
        while self.number(queue, key) != expected {
            assert!(
                began.elapsed() < PATIENCE,
                "{key} of {queue} is {}, not {expected}",
                self.number(queue, key)
            );
        }
    }

    /// Sees that nobody gets anything from the queue.
    #[track_caller]
    pub(crate) fn expect_nothing(&self, queue: &str) {
        for voice in VOICES {
            let found = self.guest(voice, queue).take_now();
            assert_eq!(found, None, "{voice:?}");
        }
    }
}

fn listen(config: &mut String, voice: &str, options: &str) {
    write!(
        config,
        "[[listen]]\nvoice = \"{voice}\"\naddress = \"127.0.0.1:0\"\n{options}\n"
    )
    .expect("strings take all");
}

/// A client of one voice for one queue.
pub(crate) struct Guest<'a> {
    house: &'a House,
    voice: Voice,
    queue: String,
    /// None on the command line.
    pub(crate) client: Option<Client>,
    /// A command that waits.
    child: Option<Child>,
    /// Ids of what it holds.
    held: Vec<u64>,
}

impl Guest<'_> {
    pub(crate) fn wire(&mut self) -> &mut Client {
        self.client.as_mut().expect("a connection")
    }

    /// Puts at the rank this voice puts at if nobody says; pinpriq, which has
    /// no such rank, at 200.
    #[track_caller]
    pub(crate) fn put(&mut self, body: &str) {
        let rank = if self.voice == Voice::Pinpriq {
            200
        } else {
            1024
        };
        self.put_ranked(rank, body);
    }

    /// Puts at a rank. Memcache has only 1024, pinpriq only 1 to 255.
    #[track_caller]
    pub(crate) fn put_ranked(&mut self, rank: u32, body: &str) {
        let (queue, len) = (self.queue.clone(), body.len());
        match self.voice {
            Voice::Memcache => {
                assert_eq!(rank, 1024);
                self.wire().put(&queue, body.as_bytes());
            }
            Voice::Lineup => {
                let request = format!("PUSH {rank} {len}\r\n{body}\r\n");
                self.ask(request.as_bytes(), b"+OK\r\n");
            }
            Voice::Jobqueue => {
                self.add(rank, 60, body);
            }
            Voice::Beanstalk => {
                self.job(rank, 0, 60, body);
            }
            Voice::Pinpriq => self.push(rank, 0, body, body),
            Voice::CommandLine => {
                let rank = rank.to_string();
                let put = ["put", &queue, body, "--rank", &rank];
                assert!(self.house.server.run(&put).status.success());
            }
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, request: &[u8], reply: &[u8]) {
        let client = self.wire();
        client.send(request);
        client.expect(reply);
    }

    /// Jobqueue: ADD; its id.
    #[track_caller]
    pub(crate) fn add(&mut self, priority: u32, ttp: u32, body: &str) -> u64 {
        let mut request = [b"ADD\0", self.queue.as_bytes(), b"\0"].concat();
        let len = u32::try_from(body.len()).expect("short");
        for number in [priority, ttp, len] {
            request.extend_from_slice(&number.to_le_bytes());
        }
        request.extend_from_slice(body.as_bytes());
        self.ask(&request, b"ADDED\0");
        self.number64()
    }

    fn number64(&mut self) -> u64 {
        let bytes = self.wire().exact(8);
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }

    fn number32(&mut self) -> u32 {
        let bytes = self.wire().exact(4);
        u32::from_le_bytes(bytes.try_into().expect("four bytes"))
    }

    /// Beanstalk: put; its id.
    #[track_caller]
    pub(crate) fn job(&mut self, rank: u32, delay: u32, ttr: u32, body: &str) -> u64 {
        let request = format!("put {rank} {delay} {ttr} {}\r\n{body}\r\n", body.len());
        self.ask(request.as_bytes(), b"INSERTED ");
        let line = text(&self.wire().until(b"\r\n"));
        line.trim_end().parse().expect("an id")
    }

    /// Pinpriq: push, and all that came before is decided.
    #[track_caller]
    pub(crate) fn push(&mut self, priority: u32, ttl_ms: u16, key: &str, body: &str) {
        let len = |text: &str| u16::try_from(text.len()).expect("short").to_be_bytes();
        let mut request = vec![0x70];
        request.extend_from_slice(&len(&self.queue));
        request.extend_from_slice(&ttl_ms.to_be_bytes());
        request.push(u8::try_from(priority).expect("a priority of pinpriq"));
        for text in [key, body] {
            request.extend_from_slice(&len(text));
        }
        for text in [key, body, &self.queue] {
            request.extend_from_slice(text.as_bytes());
        }
        request.extend_from_slice(b"\x50\0\x0bnobody here");
        self.ask(&request, b"\0\0");
    }

    /// Pinpriq: reads a group; keys and bodies.
    pub(crate) fn group(&mut self) -> Vec<(String, String)> {
        let count = self.number16();
        let packet = |_| {
            let (key, body) = (self.number16(), self.number16());
            let key = text(&self.wire().exact(key));
            (key, text(&self.wire().exact(body)))
        };
        (0..count).map(packet).collect()
    }

    fn number16(&mut self) -> usize {
        let bytes = self.wire().exact(2);
        u16::from_be_bytes(bytes.try_into().expect("two bytes")).into()
    }

    /// Pinpriq: takes a group.
    pub(crate) fn pop(&mut self) -> Vec<(String, String)> {
        let request = self.named(0x50);
        self.wire().send(&request);
        self.group()
    }

    /// A pinpriq request about the queue.
    pub(crate) fn named(&self, opcode: u8) -> Vec<u8> {
        let len = u16::try_from(self.queue.len())
            .expect("short")
            .to_be_bytes();
        [&[opcode], &len[..], self.queue.as_bytes()].concat()
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
        let queue = self.queue.clone();
        match self.voice {
            Voice::Memcache => {
                self.wire().send(format!("get {queue}\r\n").as_bytes());
                self.value()
            }
            Voice::Lineup => {
                self.wire().send(b"POP\r\n");
                let line = text(&self.wire().until(b"\r\n"));
                let len = line.trim_end().strip_prefix('$')?;
                let body = self.wire().exact(len.parse().expect("a length"));
                self.wire().expect(b"\r\n");
                Some(text(&body))
            }
            Voice::Jobqueue | Voice::Beanstalk => {
                let body = self.hold()?;
                self.finish();
                Some(body)
            }
            Voice::Pinpriq => {
                let mut group = self.pop();
                assert!(group.len() < 2, "companions: {group:?}");
                group.pop().map(|(_, body)| body)
            }
            Voice::CommandLine => {
                let output = self.house.server.run(&["take", &queue]);
                taken(&output)
            }
        }
    }

    /// Memcache: the reply to a get.
    #[track_caller]
    pub(crate) fn value(&mut self) -> Option<String> {
        let client = self.wire();
        let line = text(&client.until(b"\r\n"));
        if line == "END\r\n" {
            return None;
        }
        let len = line.trim_end().rsplit(' ').next().expect("a length");
        let body = client.exact(len.parse().expect("VALUE"));
        client.expect(b"\r\nEND\r\n");
        Some(text(&body))
    }

    /// Takes and keeps.
    #[track_caller]
    pub(crate) fn hold(&mut self) -> Option<String> {
        let queue = self.queue.clone();
        match self.voice {
            Voice::Memcache => {
                self.wire().send(format!("get {queue}/open\r\n").as_bytes());
                self.value()
            }
            Voice::Jobqueue => {
                let request = reserve(&queue, 1);
                self.wire().send(&request);
                self.reserved().map(|(body, _)| body)
            }
            Voice::Beanstalk => {
                self.wire().send(b"reserve-with-timeout 0\r\n");
                self.reserved().map(|(body, _)| body)
            }
            other => panic!("{other:?} holds nothing"),
        }
    }

    /// Jobqueue and beanstalk: the reply to a reserve; the ttp, of jobqueue.
    #[track_caller]
    pub(crate) fn reserved(&mut self) -> Option<(String, u32)> {
        if self.voice == Voice::Beanstalk {
            let line = text(&self.wire().until(b"\r\n"));
            let Some(numbers) = line.trim_end().strip_prefix("RESERVED ") else {
                assert_eq!(line, "TIMED_OUT\r\n");
                return None;
            };
            let (id, len) = numbers.split_once(' ').expect("two numbers");
            self.held.push(id.parse().expect("an id"));
            let body = self.wire().exact(len.parse().expect("a length"));
            self.wire().expect(b"\r\n");
            return Some((text(&body), 0));
        }
        let word = text(&self.wire().until(b"\0"));
        if word != "RESERVED\0" {
            assert_eq!(word, "TIMEOUT\0");
            return None;
        }
        let id = self.number64();
        self.held.push(id);
        let (_rank, ttp) = (self.number32(), self.number32());
        self.wire().expect(b"reserved\0");
        let len = self.number32() as usize;
        Some((text(&self.wire().exact(len)), ttp))
    }

    /// The id of what it took last and holds.
    pub(crate) fn held(&self) -> u64 {
        *self.held.last().expect("something held")
    }

    /// Finishes what it took last and holds.
    #[track_caller]
    pub(crate) fn finish(&mut self) {
        match self.voice {
            Voice::Memcache => {
                let request = format!("get {}/close\r\n", self.queue);
                self.ask(request.as_bytes(), b"END\r\n");
            }
            Voice::Jobqueue => {
                let id = self.held.pop().expect("something held");
                self.delete(id, b"OK\0");
            }
            Voice::Beanstalk => {
                let id = self.held.pop().expect("something held");
                self.ask(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n");
            }
            other => panic!("{other:?} holds nothing"),
        }
    }

    /// Jobqueue: DELETE.
    #[track_caller]
    pub(crate) fn delete(&mut self, id: u64, reply: &[u8]) {
        self.ask(&[b"DELETE\0", &id.to_le_bytes()[..]].concat(), reply);
    }

    /// Begins to wait for a message, without limit as far as it can.
    pub(crate) fn wait(&mut self) {
        let queue = self.queue.clone();
        match self.voice {
            Voice::Memcache => {
                let request = format!("get {queue}/t=120000\r\n");
                self.wire().send(request.as_bytes());
            }
            Voice::Jobqueue => self.wire().send(&reserve(&queue, 0)),
            Voice::Beanstalk => self.wire().send(b"reserve\r\n"),
            Voice::Pinpriq => {
                let subscribe = self.named(0x73);
                self.wire().send(&subscribe);
                self.wire().send(b"\x41");
            }
            Voice::CommandLine => {
                let child = self.command(&["take", &queue, "--wait", "2m"]);
                self.child = Some(child);
            }
            Voice::Lineup => panic!("lineup does not wait"),
        }
    }

    fn command(&self, args: &[&str]) -> Child {
        let mut command: Command = quintet(args);
        command
            .arg("--data")
            .arg(&self.house.server.data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs")
    }

    /// What it waited for; finishes it.
    #[track_caller]
    pub(crate) fn waited(&mut self) -> String {
        match self.voice {
            Voice::Memcache => self.value().expect("a message"),
            Voice::Jobqueue | Voice::Beanstalk => {
                let (body, _) = self.reserved().expect("a message");
                self.finish();
                body
            }
            Voice::Pinpriq => {
                let group = self.group();
                assert_eq!(group.len(), 1, "{group:?}");
                group.into_iter().map(|(_, body)| body).collect()
            }
            Voice::CommandLine => {
                let child = self.child.take().expect("a command that waits");
                let output = child.wait_with_output().expect("its end");
                taken(&output).expect("a message")
            }
            Voice::Lineup => panic!("lineup does not wait"),
        }
    }
}

/// What `quintet take` printed, if there was a message.
fn taken(output: &Output) -> Option<String> {
    match output.status.code() {
        Some(0) => Some(text(&output.stdout)),
        Some(4) => None,
        _ => panic!("{}", text(&output.stderr)),
    }
}

/// Jobqueue: RESERVE.
pub(crate) fn reserve(queue: &str, timeout: u32) -> Vec<u8> {
    let timeout = &timeout.to_le_bytes()[..];
    [b"RESERVE\0", queue.as_bytes(), b"\0", timeout].concat()
}

impl Drop for Guest<'_> {
    /// Hangs up, on the command line too. Errors: it has ended already.
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
