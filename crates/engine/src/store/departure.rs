//! How a message changes that goes to another queue.

use quintet_types::{Extra, Message, Ms, Name, Role, State, Transfer};

/// Makes it what arrives in another queue: ready, and, unless somebody
/// asked for the move, with the reason in its attributes.
pub(super) fn depart(message: &mut Message, from: Option<&Name>, why: Transfer, now: Ms) {
    message.state = State::Ready;
    let attempts = message.reserves;
    let extra = message.extra_mut();
    (extra.due, extra.delay_ms) = (None, 0);
    extra.changed = now;
    let is_dead_letter = |name: &[u8]| name.starts_with(DEAD_LETTER);
    if why == Transfer::Redriven {
        extra.expires = None;
        extra.failures = 0;
        extra.attrs.retain(|(name, _)| !is_dead_letter(name));
        message.reserves = 0;
        // A client has sent it back: it is no dead letter any more.
        return;
    }
    let reason: &[u8] = match why {
        Transfer::Command | Transfer::Redriven => return,
        Transfer::DeadLetter => b"attempts",
        Transfer::Expired => b"expired",
        Transfer::Failures => b"failures",
    };
    if why.is_dead_letter() {
        fail(extra);
    }
    // It was recorded when it left.
    extra.reply = None;
    extra.expires = None;
    extra.attrs.retain(|(name, _)| !is_dead_letter(name));
    if extra.failures > 0 {
        let failures = std::mem::take(&mut extra.failures).to_string();
        set_attr(extra, b"dead_letter_failures", failures.as_bytes());
        if !extra.status.is_empty() {
            let error = std::mem::take(&mut extra.status);
            set_attr(extra, b"dead_letter_error", &error);
        }
    }
    set_attr(extra, b"dead_letter_reason", reason);
    let attempts = attempts.to_string();
    set_attr(extra, b"dead_letter_attempts", attempts.as_bytes());
    if let Some(from) = from {
        set_attr(extra, b"dead_letter_queue", from.as_bytes());
    }
    message.reserves = 0;
}

/// Its try failed, as its batch counts it.
pub(super) fn fail(extra: &mut Extra) {
    if let Some(tie) = &mut extra.batch
        && tie.role == Role::Member
    {
        tie.role = Role::Failed;
    }
}

/// Names of the attributes that tell where a dead letter came from begin so.
const DEAD_LETTER: &[u8] = b"dead_letter_";

fn set_attr(extra: &mut Extra, name: &[u8], value: &[u8]) {
    match extra
        .attrs
        .binary_search_by(|(other, _)| other.as_ref().cmp(name))
    {
        Ok(at) => extra.attrs[at].1 = value.into(),
        Err(at) => extra.attrs.insert(at, (name.into(), value.into())),
    }
}
