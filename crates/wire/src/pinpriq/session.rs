//! One connection: frames in; groups out, as replies to pops and as deliveries
//! to a subscriber that is ready.

use std::collections::BTreeSet;
use std::sync::Arc;

use quintet_types::{
    Body, Command, CommandError, Expiry, LargeBody, Name, Outcome, Put, PutMore, Take,
};

use super::frame::{self, Frame, Push, Verb};
use super::{Count, Shared};
use crate::bodies::skip;
use crate::foreign::First;
use crate::output::Output;
use crate::owed::Owed;
use crate::session::{ClientRequest, Env, HookReply, Next, ServerResponse, Session, Step};

/// Priority of packets that are never selected: behind all that a push can name.
const PRIORITY_NOT_SELECTABLE: u32 = 256;

/// Protocol state of one connection.
pub(super) struct PinpriqSession {
    shared: Arc<Shared>,
    first: First,
    subscribed: BTreeSet<Name>,
    subscribed_bytes: usize,
    /// The client is ready for a group: a subscription stands, or what it got
    /// is on the way.
    ready: bool,
    /// Bytes still to come of a push that nobody wants.
    unwanted: usize,
    owed: Owed<PinpriqReply>,
}

/// The pending reply to a request.
enum PinpriqReply {
    /// Nothing, whatever came of it.
    Nothing,
    /// Nothing; an error is counted.
    Pushed,
    /// A group, or an empty one.
    Popped,
}

impl PinpriqSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            first: First::new(),
            subscribed: BTreeSet::new(),
            subscribed_bytes: 0,
            ready: false,
            unwanted: 0,
            owed: Owed::new(),
        }
    }

    fn push(&mut self, push: &Push<'_>, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Push as usize);
        let not_selectable = push.priority == 0;
        let put = Put {
            priority: Some(match not_selectable {
                true => PRIORITY_NOT_SELECTABLE,
                false => push.priority.into(),
            }),
            expires: match push.ttl {
                0 => self.shared.ttl_zero,
                ms => Expiry::In(ms.into()),
            },
            more: Some(Box::new(PutMore {
                not_selectable,
                key: Some(Arc::from(push.key)),
                ..PutMore::default()
            })),
            ..Put::new(Name::new(push.queue), Body::new(push.payload))
        };
        let command = Command::Put(put);
        let ask = match self.shared.close_on_command_error {
            true => ClientRequest::EngineOrClose(command),
            false => ClientRequest::Engine(command),
        };
        self.owed.ask(push.len(), ask, PinpriqReply::Pushed)
    }

    /// A take from these queues.
    fn take(&self, queues: impl IntoIterator<Item = Name>) -> Take {
        Take {
            queues: queues.into_iter().collect(),
            ..self.shared.take.clone()
        }
    }

    fn pop(&mut self, used: usize, name: &[u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Pop as usize);
        if name.is_empty() {
            return self.owed.own(used, PinpriqReply::Popped);
        }
        let take = self.take([Name::new(name)]);
        self.owed
            .engine(used, Command::Take(take), PinpriqReply::Popped)
    }

    fn subscribe(&mut self, used: usize, name: &[u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Subscribe as usize);
        if name.is_empty() || self.subscribed.contains(name) {
            return Step::Skip { used };
        }
        let bytes = self.subscribed_bytes + name.len();
        if self.subscribed.len() >= self.shared.subscriptions_max
            || bytes > self.shared.subscribed_bytes_max
        {
            return self.fault(used, env);
        }
        self.subscribed_bytes = bytes;
        self.subscribed.insert(Name::new(name));
        self.subscription_changed(used, name, true)
    }

    fn unsubscribe(&mut self, used: usize, name: &[u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Unsubscribe as usize);
        if !self.subscribed.remove(name) {
            return Step::Skip { used };
        }
        self.subscribed_bytes -= name.len();
        self.subscription_changed(used, name, false)
    }

    /// The subscription, if one stands, goes on with one queue more or less:
    /// there may be many, and clients change them often. One that was served
    /// meanwhile is not to begin anew: the client was ready once.
    fn subscription_changed(&mut self, used: usize, name: &[u8], on: bool) -> Step {
        if !self.ready {
            return Step::Skip { used };
        }
        let queue = Name::new(name);
        let ask = ClientRequest::EngineOrClose(Command::WatchQueue { queue, on });
        self.owed.ask(used, ask, PinpriqReply::Nothing)
    }

    /// The client can take a group. It stands in line from now on, even before
    /// its first subscription.
    fn ready(&mut self, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Ready as usize);
        if self.ready {
            return Step::Skip { used: 1 };
        }
        self.ready = true;
        let take = self.take(self.subscribed.iter().cloned());
        let ask = ClientRequest::EngineOrClose(Command::Watch(Some(Box::new(take))));
        self.owed.ask(1, ask, PinpriqReply::Nothing)
    }

    /// The protocol has no word for an error. Nothing behind it is read.
    fn fault(&mut self, used: usize, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.owed.close(used, PinpriqReply::Nothing)
    }

    /// Drops what has come of a push that nobody wants.
    fn drop_unwanted(&mut self, input: &[u8]) -> Step {
        let used = self.unwanted.min(input.len());
        self.unwanted -= used;
        skip(used)
    }
}

impl Session for PinpriqSession {
    fn decode(&mut self, input: &[u8], env: &Env<'_>) -> Step {
        if self.first.is_tls(input) {
            env.tally.bump(Count::Fault as usize);
            // Nothing behind it is read.
            self.unwanted = usize::MAX;
            return self.owed.tls();
        }
        if self.unwanted > 0 {
            return self.drop_unwanted(input);
        }
        match frame::first(input, self.shared.packet_max) {
            Frame::Part => Step::More,
            Frame::Unwanted(len) => {
                env.tally.bump(Count::Push as usize);
                env.tally.bump(Count::Dropped as usize);
                self.unwanted = len;
                self.drop_unwanted(input)
            }
            Frame::Push(push) => self.push(&push, env),
            Frame::Named(verb, name) => {
                let used = frame::NAME_HEAD + name.len();
                match verb {
                    Verb::Pop => self.pop(used, name, env),
                    Verb::Subscribe => self.subscribe(used, name, env),
                    Verb::Unsubscribe => self.unsubscribe(used, name, env),
                }
            }
            Frame::Ready => self.ready(env),
            Frame::Unknown => self.fault(0, env),
        }
    }

    fn encode(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        // There is no word for them, and a push that was dropped in silence would
        // be taken for one that is kept.
        if let Some(CommandError::Unavailable | CommandError::NotPermitted) = response.refused() {
            return Next::Close;
        }
        match (self.owed.pop_or_alert(output), response.outcome()) {
            (Some(PinpriqReply::Pushed), Some(Outcome::Refused(_))) => {
                env.tally.bump(Count::Dropped as usize);
            }
            (Some(PinpriqReply::Nothing | PinpriqReply::Pushed), _) => {}
            (Some(PinpriqReply::Popped), Some(Outcome::Messages(messages))) => {
                env.tally.bump(Count::Hit as usize);
                frame::group(messages, output);
            }
            // A take that is refused has nothing either, as far as this
            // protocol can tell.
            (Some(PinpriqReply::Popped), _) => {
                env.tally.bump(Count::Miss as usize);
                frame::group(&[], output);
            }
            (None, _) => return Next::Close,
        }
        Next::Done
    }

    fn deliver(&mut self, response: &ServerResponse, env: &Env<'_>, output: &mut Output) -> Next {
        self.ready = false;
        if let ServerResponse::Engine(Outcome::Messages(messages), _) = response {
            env.tally.bump(Count::Delivered as usize);
            frame::group(messages, output);
        }
        Next::Done
    }

    /// The protocol has no error replies: a refused pop is empty.
    fn says_no(&self, _: &[u8]) -> bool {
        false
    }

    fn say(&mut self, _: HookReply<'_>, output: &mut Output) -> Next {
        if let Some(PinpriqReply::Popped) = self.owed.pop() {
            frame::group(&[], output);
        }
        Next::Done
    }

    /// No packet is long enough to be streamed.
    fn streamed(&mut self, _: Result<LargeBody, CommandError>) {}

    fn is_as_opened(&self) -> bool {
        let Self {
            shared: _,
            // No packet begins as TLS does.
            first: _,
            subscribed,
            subscribed_bytes: _,
            ready,
            unwanted,
            owed,
        } = self;
        subscribed.is_empty() && !ready && *unwanted == 0 && owed.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.subscribed_bytes + self.subscribed.len() * size_of::<Name>()
    }
}
