//! Drives a protocol's session over any bytes and checks what must hold. Shared by
//! the random tests here and by the fuzz targets (`fuzz/`).

use std::collections::VecDeque;
use std::sync::LazyLock;

use quintet_sim::world::World;
use quintet_types::{
    Answer, Body, Caller, Command, CommandError, DependantPage, LargeBody, Message, MessageId,
    MessageStats, Ms, Name, NamePage, Outcome, Put, QueuePage, QueueStats, Settings, ShardStats,
    StatsOf, StatsReply, Take,
};
use quintet_wire::{
    ClientRequest, Env, HostRequest, LoginRefused, Logins, Next, Options, Output, Protocol,
    STREAM_OVER, ServerResponse, Session, Step, Tally, Workers,
};

/// Engine time of every run.
pub(crate) const NOW: Ms = Ms(1_700_000_000_000);

/// Room for the longest line or header beside a body held in memory: a key and
/// a queue's name of 16-bit lengths, and what tells them (pinpriq).
const HELD_MAX: u64 = STREAM_OVER + (128 << 10) + 16;

/// Requests decoded before the first reply is written, in the late mode.
const BATCH: usize = 64;

/// Steps a request can be decoded in without consuming anything.
const PARTS_MAX: u32 = 8;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Record of a session's run.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) asks: Vec<String>,
    pub(crate) replies: Vec<u8>,
    pub(crate) closed: bool,
}

/// A session with a host that answers by rote.
struct Driver<'a> {
    session: Box<dyn Session>,
    env: Env<'a>,
    input: Vec<u8>,
    /// Bytes of a streamed body still to come.
    streaming: Option<(u64, u64)>,
    response: VecDeque<ServerResponse>,
    /// Write replies only when a batch is full or input is short.
    late: bool,
    workers: Workers,
    trace: Trace,
}

impl Driver<'_> {
    fn feed(&mut self, piece: &[u8]) {
        self.input.extend_from_slice(piece);
        // What is decoded goes at the end, at once: else all of a long input is moved each time.
        let (mut at, mut parts) = (0, 0);
        while !self.trace.closed {
            if let Some((len, left)) = self.streaming {
                let come = left.min((self.input.len() - at) as u64);
                at += come as usize;
                self.streaming = Some((len, left - come));
                if come < left {
                    break;
                }
                self.streaming = None;
                self.session.streamed(if len.is_multiple_of(7) {
                    Err(CommandError::QueueFull)
                } else {
                    Ok(LargeBody::new(1, len, 0))
                });
            }
            let before = at;
            match self.session.decode(&self.input[at..], &self.env) {
                Step::More => {
                    let held = self.input.len() - at;
                    assert!(held as u64 <= HELD_MAX, "{held} bytes are held back");
                    break;
                }
                Step::Skip { used } => {
                    assert!(used > 0, "a skip that skips nothing");
                    at += used;
                    continue;
                }
                Step::Stream { used, len, queue } => {
                    at += used;
                    self.trace.asks.push(format!("stream {len} {queue}"));
                    self.streaming = Some((len, len));
                }
                Step::ClientRequest { used, ask } => {
                    at += used;
                    self.ask(ask);
                }
            }
            parts = if at == before { parts + 1 } else { 0 };
            assert!(parts <= PARTS_MAX, "decoding gets nowhere");
        }
        self.input.drain(..at);
        self.write();
    }

    fn ask(&mut self, ask: ClientRequest) {
        self.trace.asks.push(format!("{ask:?}"));
        let turn = self.trace.asks.len() as u64;
        // As in a server: numbers are those of the moment they are asked for.
        let alone = matches!(
            ask,
            ClientRequest::EngineAlone(_)
                | ClientRequest::Worker(_)
                | ClientRequest::Proof(_)
                | ClientRequest::Unknown(_)
                | ClientRequest::Login(_)
                | ClientRequest::Host(
                    HostRequest::Stats | HostRequest::Listener | HostRequest::Noted(..)
                )
        );
        let or_close = matches!(ask, ClientRequest::EngineOrClose(_));
        let close = matches!(ask, ClientRequest::Close);
        let response = match ask {
            ClientRequest::Engine(command)
            | ClientRequest::EngineOrClose(command)
            | ClientRequest::EngineAlone(command)
            | ClientRequest::EngineSynced(command) => {
                ServerResponse::Engine(outcome(&command, turn), Name::from("queue"))
            }
            ClientRequest::Host(HostRequest::Stats) => ServerResponse::Server(Box::default()),
            ClientRequest::Host(
                HostRequest::Reload
                | HostRequest::Config
                | HostRequest::Listener
                | HostRequest::Noted(..),
            ) => ServerResponse::Host(Ok("a\nb".to_owned())),
            ClientRequest::Worker(ask) => ServerResponse::Worker(self.workers.answer(ask, NOW)),
            ClientRequest::Proof(true) => ServerResponse::Login(Ok(())),
            ClientRequest::Proof(false) => ServerResponse::Login(Err(LoginRefused::Wrong)),
            ClientRequest::Login(_) if turn.is_multiple_of(3) => {
                ServerResponse::Login(Err(LoginRefused::Wrong))
            }
            ClientRequest::Login(_) => {
                self.env.logins = Logins::Open;
                ServerResponse::Login(Ok(()))
            }
            ClientRequest::Host(HostRequest::Shutdown) => {
                ServerResponse::Host(Err("no\nno".to_owned()))
            }
            ClientRequest::Host(HostRequest::Foreign(_))
            | ClientRequest::Own
            | ClientRequest::Unknown(_)
            | ClientRequest::Close => ServerResponse::Own,
        };
        let close =
            close || or_close && matches!(response, ServerResponse::Engine(Outcome::Refused(_), _));
        self.response.push_back(response);
        if !self.late || alone || close || self.response.len() >= BATCH {
            self.write();
        }
        self.trace.closed |= close;
    }

    /// Writes all replies that are due.
    fn write(&mut self) {
        let mut output = Output::new();
        let mut again = 0;
        while let Some(response) = self.response.pop_front() {
            match self.session.encode(&response, &self.env, &mut output) {
                Next::Done | Next::Noted(..) => {}
                Next::Close => {
                    self.trace.closed = true;
                    self.response.clear();
                }
                Next::Again(command) => {
                    again += 1;
                    let outcome = outcome(&command, again % 5);
                    let response = ServerResponse::Engine(outcome, Name::from("queue"));
                    self.response.push_front(response);
                }
            }
        }
        self.trace.replies.extend_from_slice(output.bytes());
    }
}

/// An answer that depends only on the command and its number.
fn outcome(command: &Command, turn: u64) -> Outcome {
    match command {
        Command::Put(_) => match turn % 9 {
            0 => Outcome::Refused(CommandError::QueueFull),
            1 => Outcome::Refused(CommandError::Duplicate(MessageId(1))),
            _ => Outcome::Put {
                id: MessageId(turn),
                fresh: true,
            },
        },
        Command::Take(take) => taken(take, turn),
        Command::ReserveId { .. } | Command::Peek(_) if !turn.is_multiple_of(3) => {
            Outcome::Messages([MESSAGE.clone()].into_iter().collect())
        }
        Command::BurnId | Command::Remembered { .. } => Outcome::Put {
            id: MessageId(turn),
            fresh: false,
        },
        Command::Stats(of) => Outcome::Stats(Box::new(numbers(of))),
        Command::SettleHeld { .. } => Outcome::Count(turn % 2),
        Command::FlushExpired(_) => Outcome::Count(turn),
        Command::Kick { max, .. } => Outcome::Count(turn.min(*max)),
        Command::Drop(_) | Command::Flush { .. } if turn.is_multiple_of(2) => {
            Outcome::Refused(CommandError::QueueNotFound)
        }
        Command::ReserveId { .. }
        | Command::Peek(_)
        | Command::Settle { .. }
        | Command::Delete { .. }
        | Command::Refer { .. }
            if turn.is_multiple_of(3) =>
        {
            Outcome::Refused(CommandError::NotFound)
        }
        _ => Outcome::Done,
    }
}

fn numbers(of: &StatsOf) -> StatsReply {
    match of {
        StatsOf::Shard => StatsReply::Shard(ShardStats::default()),
        StatsOf::Queues { .. } => StatsReply::Queues(QueuePage::default()),
        StatsOf::Names { .. } => StatsReply::Names(NamePage::default()),
        StatsOf::Queue(name) => StatsReply::Queue(QueueStats {
            name: name.clone(),
            ..QueueStats::default()
        }),
        StatsOf::Setup(_) => StatsReply::Setup(Box::default()),
        StatsOf::Dependants { .. } => StatsReply::Dependants(DependantPage::default()),
        StatsOf::HeldKeys(_) => StatsReply::HeldKeys(Vec::new()),
        StatsOf::Message(_) => StatsReply::Message(MessageStats {
            message: MESSAGE.clone(),
            queue: Name::from("queue"),
            delayed: false,
            left_ms: 0,
            age_ms: 0,
            logged: true,
            ttr_ms: 0,
        }),
    }
}

/// A message as an engine hands it out.
static MESSAGE: LazyLock<Message> = LazyLock::new(|| {
    let mut world = World::with(Settings::default()).at(NOW);
    let mut submit = |command| world.submit(Caller::default(), command);
    submit(Command::Put(Put {
        queue: Name::from("queue"),
        body: Body::new(b"body"),
        flags: 3,
        ..Put::default()
    }));
    let answer = submit(Command::Take(Take {
        queues: [Name::from("queue")].into(),
        ..Take::default()
    }));
    match answer {
        Answer::Now(Outcome::Messages(messages), _) => messages[0].clone(),
        other => panic!("no message: {other:?}"),
    }
});

fn taken(take: &Take, turn: u64) -> Outcome {
    match turn % 5 {
        _ if take.queues.is_empty() => Outcome::Empty,
        0 => Outcome::Empty,
        1 if take.deadline_soon_ms.is_some() => Outcome::DeadlineSoon,
        1 if take.lease.is_some() => Outcome::Refused(CommandError::HeldLimit),
        _ => Outcome::Messages([MESSAGE.clone()].into_iter().collect()),
    }
}

/// Runs a session of `protocol` over `input`, cut up as `pieces` says (its
/// answers are lengths, 0 means the rest).
pub(crate) fn run(
    protocol: &Protocol,
    input: &[u8],
    logins: Logins,
    late: bool,
    mut pieces: impl FnMut() -> usize,
) -> Trace {
    let tally = Tally::new();
    let listener =
        (protocol.listener)(&Options::new(protocol.options)).expect("the defaults are allowed");
    let mut driver = Driver {
        session: listener.open(),
        env: Env {
            now: NOW,
            tally: &tally,
            logins,
        },
        input: Vec::new(),
        streaming: None,
        response: VecDeque::new(),
        late,
        workers: Workers::new(),
        trace: Trace::default(),
    };
    let mut rest = input;
    while !rest.is_empty() {
        let len = match pieces() {
            0 => rest.len(),
            len => len.min(rest.len()),
        };
        let (piece, after) = rest.split_at(len);
        driver.feed(piece);
        rest = after;
    }
    driver.session.half_closed();
    driver.trace
}

/// Runs `input` whole and in pieces, and compares.
pub(crate) fn check(protocol: &Protocol, input: &[u8], random: &mut Random) {
    for logins in [Logins::Off, Logins::Open, Logins::Needed] {
        let whole = run(protocol, input, logins, false, || 0);
        let late = run(protocol, input, logins, true, || 0);
        assert_eq!(late, whole, "late replies differ");
        if input.len() < 2000 {
            let single = run(protocol, input, logins, false, || 1);
            assert_eq!(single, whole, "single bytes differ");
        }
        let size = 1 + random.below(input.len().max(1));
        let pieces = run(protocol, input, logins, true, || 1 + random.below(size));
        assert_eq!(pieces, whole, "pieces differ");
    }
}

/// [`check`] for a fuzz target: the pieces depend on the input alone.
#[allow(dead_code, reason = "the random tests cut inputs up otherwise")]
pub(crate) fn check_protocol(protocol: Option<&Protocol>, input: &[u8]) {
    let protocol = protocol.expect("a registered protocol");
    check(protocol, input, &mut Random(input.len() as u64));
}
