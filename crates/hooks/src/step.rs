//! The reads and requests of a call so far.

use quintet_types::{
    Caller, Command, Effect, Guard, Message, MessageId, MessageVersion, Name, Outcome, Put,
    Transaction,
};

use crate::host::Host;
use crate::register::Registered;
use quintet_policy::Limits;

/// The data that the functions of `quintet` work on.
pub(crate) struct Work {
    pub(crate) host: Box<dyn Host>,
    pub(crate) caller: Caller,
    pub(crate) step: Step,
    pub(crate) limits: Limits,
    /// The file is being loaded: events may be named, nothing may be done.
    pub(crate) loading: Option<Registered>,
}

impl Work {
    /// Asks as the server, which may see everything: no client needs a right for what a hook does.
    pub(crate) fn ask(&mut self, command: Command) -> (Option<Outcome>, Name) {
        self.host
            .ask_at_once(Caller::server(self.caller.client_id), command)
    }

    /// As [`Step::add`].
    pub(crate) fn add(&mut self, effect: Effect, bytes: usize) -> Result<(), String> {
        self.step.add(effect, bytes, &self.limits)
    }
}

/// One step in the making.
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) guards: Vec<Guard>,
    pub(crate) effects: Vec<Effect>,
    /// Messages that this step removes, cancels or moves: not seen by later reads.
    pub(crate) gone: Vec<MessageId>,
    /// Increments of counters, taken back if the step is not taken.
    pub(crate) counted: Vec<(Box<[u8]>, i64)>,
    bytes: usize,
}

impl Step {
    pub(crate) fn clear(&mut self) {
        self.guards.clear();
        self.effects.clear();
        self.gone.clear();
        self.counted.clear();
        self.bytes = 0;
    }

    /// True if there is nothing to submit.
    pub(crate) fn is_quiet(&self) -> bool {
        self.effects.is_empty()
    }

    /// The messages it puts.
    pub(crate) fn puts(&self) -> Vec<Put> {
        let mut puts = Vec::new();
        for effect in &self.effects {
            if let Effect::Put(put) = effect {
                puts.push(put.clone());
            }
        }
        puts
    }

    /// The step as a command's first parts; leaves it empty but for what was
    /// counted.
    pub(crate) fn transaction(&mut self) -> Transaction {
        Transaction {
            guards: std::mem::take(&mut self.guards),
            effects: std::mem::take(&mut self.effects),
            then: None,
        }
    }

    /// The message was looked at and has to be the same still.
    pub(crate) fn saw(&mut self, message: &Message) {
        let known = self
            .guards
            .iter()
            .any(|guard| matches!(guard, Guard::Message { id, .. } if *id == message.id));
        if !known {
            self.guards.push(Guard::Message {
                id: message.id,
                seen: Some(MessageVersion::of(message)),
            });
        }
    }

    /// The value to which this step has set an entry of a table.
    pub(crate) fn own_entry(&self, table: &Name, key: &[u8]) -> Option<Option<&[u8]>> {
        self.effects.iter().rev().find_map(|effect| {
            let Effect::Set {
                table: of,
                key: own,
                value,
                ..
            } = effect
            else {
                return None;
            };
            (of == table && **own == *key).then_some(value.as_deref())
        })
    }

    /// Adds an effect of so many bytes.
    ///
    /// # Errors
    /// It is one too many.
    pub(crate) fn add(
        &mut self,
        effect: Effect,
        bytes: usize,
        limits: &Limits,
    ) -> Result<(), String> {
        if self.effects.len() >= limits.effects_max {
            return Err(format!(
                "one call can make at most {} requests",
                limits.effects_max
            ));
        }
        self.bytes += bytes;
        if self.bytes > limits.effect_bytes_max {
            return Err(format!(
                "one call can store at most {} bytes",
                limits.effect_bytes_max
            ));
        }
        if let Effect::Delete(id) | Effect::Cancel(id, _) | Effect::Move { id, .. } = &effect {
            self.gone.push(*id);
        }
        self.effects.push(effect);
        Ok(())
    }
}
