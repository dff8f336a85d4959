//! A client: what it asks next, of what it knows.

use quintet_sim::Random;
use quintet_sim::history::{Answer, CallId, ClientRequest};
use quintet_types::{
    BackTo, Body, By, Command, Effect, Guard, How, LeaseOwner, LeaseRequest, LeaseTime, MessageId,
    Name, Outcome, Put, Take, Transaction, Wait, When,
};

/// Bytes of a large body: more than one entry of the stream holds.
const LARGE: usize = 300_000;
/// Queues there are; of some in every shard.
pub(super) const QUEUES: [&str; 3] = ["a", "b", "c"];

/// A client, and what its connection has.
#[derive(Default)]
pub(super) struct Client {
    /// Its connection, and the node it is to, by its life's number.
    pub(super) connection: Option<(u64, u64)>,
    /// The outcome that it waits for.
    pub(super) requested: Option<PendingCall>,
    /// Its leases: body, id and queue of each.
    held: Vec<(u64, MessageId, u8)>,
}

/// A command on its way.
pub(super) struct PendingCall {
    pub(super) call: CallId,
    ask: ClientRequest,
    queue: u8,
    /// So many more of the client's turns it is waited for.
    pub(super) patience: u64,
}

impl Client {
    /// Its next command; so many times in 20 that is to store this body, which may be `large`.
    pub(super) fn next(
        &mut self,
        random: &mut Random,
        body: u64,
        puts: u64,
        large: bool,
    ) -> (u8, ClientRequest, Command) {
        if let Some(at) = random.below(3 * self.held.len() as u64 + 2).checked_sub(2)
            && let Some((body, id, queue)) = self.held.get(random.index(self.held.len()))
        {
            let release = at % 6 == 0;
            let ask = if release {
                ClientRequest::Release(*body)
            } else {
                ClientRequest::Finish(*body)
            };
            return (*queue, ask, settle(*id, release));
        }
        let queue = random.index(QUEUES.len());
        let number = u8::try_from(queue).unwrap_or(u8::MAX);
        if random.chance(puts, 20) {
            let bytes = match random.below(40) {
                0 if large => LARGE,
                _ => 8 + random.index(120),
            };
            let put = put(queue, body, bytes);
            let put = match random.chance(1, 6) {
                true => hooked(put, body),
                false => put,
            };
            return (number, ClientRequest::Put(body), put);
        }
        let removes = random.chance(1, 4);
        let wait = [Wait::No, Wait::No, Wait::For(random.below(400))][random.index(3)];
        (
            number,
            ClientRequest::Take { removes },
            take(queue, removes, wait),
        )
    }

    pub(super) fn asks(&mut self, call: CallId, queue: u8, ask: ClientRequest, patience: u64) {
        self.requested = Some(PendingCall {
            call,
            ask,
            queue,
            patience,
        });
    }

    /// It is answered, if it still waits for this.
    pub(super) fn answered(
        &mut self,
        call: CallId,
        outcome: &Outcome,
    ) -> Option<(ClientRequest, Answer)> {
        let requested = self.requested.take_if(|requested| requested.call == call)?;
        let answer = answer(outcome);
        if let Outcome::Messages(messages) = outcome
            && requested.ask == (ClientRequest::Take { removes: false })
        {
            let got = messages.iter();
            let got = got.map(|message| (number(&message.body), message.id, requested.queue));
            self.held.extend(got);
        }
        if let ClientRequest::Finish(body) | ClientRequest::Release(body) = requested.ask {
            self.held.retain(|(held, ..)| *held != body);
        }
        Some((requested.ask, answer))
    }

    /// Its connection is gone.
    pub(super) fn lose(&mut self) -> Option<(u64, u64)> {
        self.requested = None;
        self.held.clear();
        self.connection.take()
    }
}

pub(super) fn number(body: &Body) -> u64 {
    let bytes = body.as_small().and_then(|bytes| bytes.first_chunk());
    u64::from_le_bytes(*bytes.expect("a body of ours"))
}

fn answer(outcome: &Outcome) -> Answer {
    if let Outcome::Put { id, .. } = outcome {
        Answer::Stored(id.0)
    } else if let Outcome::Transaction {
        then: Some(outcome),
        ..
    } = outcome
    {
        answer(outcome)
    } else if let Outcome::Messages(messages) = outcome {
        assert_eq!(messages.len(), 1, "one was requested");
        Answer::Got(number(&messages[0].body))
    } else if *outcome == Outcome::Empty {
        Answer::Empty
    } else if *outcome == Outcome::Done {
        Answer::Done
    } else if let Outcome::Refused(_) = outcome {
        Answer::Refused
    } else {
        panic!("{outcome:?}")
    }
}

fn put(queue: usize, body: u64, bytes: usize) -> Command {
    let mut text = body.to_le_bytes().to_vec();
    text.resize(bytes, 1);
    Command::Put(Put::new(Name::from(QUEUES[queue]), Body::new(&text)))
}

/// The same as a hook has it that sets an entry of a table, mostly of another shard; of every other
/// one the hook has looked whether there is one.
fn hooked(put: Command, body: u64) -> Command {
    let table = Name::from(QUEUES[usize::try_from(body % 3).unwrap_or(0)]);
    let guarded = body.is_multiple_of(2);
    let key: Box<[u8]> = match guarded {
        true => body.to_le_bytes().into(),
        false => vec![u8::try_from(body % 5).unwrap_or(0)].into(),
    };
    let guard = Guard::Table {
        table: table.clone(),
        key: key.clone(),
        version: None,
    };
    let set = Effect::Set {
        table,
        key,
        value: Some(body.to_le_bytes().into()),
        ttl_ms: None,
    };
    Command::Transaction(Box::new(Transaction {
        guards: guarded.then_some(guard).into_iter().collect(),
        effects: vec![set],
        then: Some(Box::new(put)),
    }))
}

/// A take of one message.
pub(super) fn take(queue: usize, removes: bool, wait: Wait) -> Command {
    take_from(QUEUES[queue], removes, wait)
}

/// A take of one message from a queue of this name.
pub(super) fn take_from(queue: &str, removes: bool, wait: Wait) -> Command {
    let lease = LeaseRequest {
        owner: LeaseOwner::Connection,
        time: LeaseTime::OwnTtr,
        back_to: BackTo::Position,
        held_max: 0,
    };
    Command::Take(Take {
        queues: std::iter::once(Name::from(queue)).collect(),
        lease: (!removes).then_some(lease),
        wait,
        messages_max: 1,
        ..Take::default()
    })
}

fn settle(id: MessageId, release: bool) -> Command {
    let how = match release {
        true => How::Release {
            priority: None,
            due: When::Now,
            back_to: None,
        },
        false => How::Finish,
    };
    Command::Settle {
        id,
        by: By::Owner,
        how,
    }
}
