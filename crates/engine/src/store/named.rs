//! Reserved messages by their own names. An index over `leases`: always in memory, as what is
//! reserved is.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Durable;
use quintet_types::{Lease, Message, MessageId, Ms};

/// Name, since when its lease has run, message.
pub(super) type Named = BTreeSet<(Arc<[u8]>, Ms, MessageId)>;

/// Since when a lease has run, or was begun anew; one without a deadline has run for ever.
fn since(lease: &Lease) -> Ms {
    Ms(lease
        .until
        .map_or(0, |until| until.0.saturating_sub(lease.span_ms)))
}

fn entry(message: &Message, lease: &Lease) -> Option<(Arc<[u8]>, Ms, MessageId)> {
    let name = message.name()?.clone();
    Some((name, since(lease), message.id))
}

/// A message is reserved.
pub(super) fn enter(named: &mut Named, message: &Message, lease: Option<&Lease>) {
    if let Some(entry) = lease.and_then(|lease| entry(message, lease)) {
        let new = named.insert(entry);
        assert!(
            new,
            "a reserved message has left the name of its lease before"
        );
    }
}

/// It is not any more.
pub(super) fn leave(named: &mut Named, message: &Message, lease: Option<&Lease>) {
    if let Some(entry) = lease.and_then(|lease| entry(message, lease)) {
        let was = named.remove(&entry);
        assert!(was, "a reserved message is known by its name");
    }
}

impl Durable {
    /// A message that a purge took is freed.
    pub(super) fn unname(&mut self, slot: u32, message: &Message) {
        leave(&mut self.named, message, self.leases.get(&slot));
    }

    /// Reserved messages of this name, first the one whose lease has run longest.
    pub(crate) fn reserved_as(&self, name: &[u8]) -> impl Iterator<Item = MessageId> + '_ {
        let name: Arc<[u8]> = Arc::from(name);
        let from = (name.clone(), Ms(0), MessageId(0));
        let own = self.named.range(from..).take_while(move |at| at.0 == name);
        // Those that a purge took are here until they are freed.
        own.map(|at| at.2).filter(|&id| self.slot(id).is_some())
    }

    /// A lease was begun anew.
    pub(super) fn named_anew(&mut self, slot: u32, before: Lease) {
        let message = self.messages.at(slot);
        if message.name().is_some() {
            leave(&mut self.named, message, Some(&before));
            enter(&mut self.named, message, self.leases.get(&slot));
        }
    }

    /// # Errors
    /// The first disagreement, in words.
    pub(super) fn verify_named(&self) -> Result<(), String> {
        let mut named = Named::new();
        for (slot, message) in self.messages.iter() {
            enter(&mut named, message, self.leases.get(&slot));
        }
        match named == self.named {
            true => Ok(()),
            false => Err(format!("named {:?}, not {named:?}", self.named)),
        }
    }
}
