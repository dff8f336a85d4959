//! Errors of the shards in sentences: the reason, and the next step.

use quintet_types::{
    AFTER_MAX, CommandError, HELD_KEYS_MAX, KEY_BYTES_MAX, MESSAGE_NAME_BYTES_MAX,
};

/// The sentence for a problem. It begins with the short text that protocols show.
pub(crate) fn detail(command_error: CommandError) -> String {
    let text = command_error.text();
    let next = match command_error {
        CommandError::Duplicate(id) if id.0 > 0 => {
            return format!("{text}: message {} has the same deduplication id", id.0);
        }
        CommandError::Duplicate(_) => "an earlier message has the same deduplication id",
        CommandError::AfterNotFound(id) if id.0 > 0 => {
            return format!(
                "{text}: message {} never existed, or its end is forgotten",
                id.0
            );
        }
        CommandError::AfterNotFound(_) => {
            "no tracked message has this name, or its outcome is forgotten"
        }
        CommandError::AfterTooMany => {
            return format!("{text}: {AFTER_MAX} for a message, 10000 for a request");
        }
        CommandError::TooManyHeldKeys => {
            return format!("{text}: {HELD_KEYS_MAX} is the limit");
        }
        CommandError::BadMessageName => {
            return format!(
                "{text}: it has 1 to {MESSAGE_NAME_BYTES_MAX} bytes, and a tracked message needs one"
            );
        }
        CommandError::BadName => "it has 1 to 65535 bytes",
        CommandError::QueueFull => "it has messages_max messages or bytes_max bytes",
        CommandError::MessageTooLarge => {
            return format!(
                "{text}: the body is longer than message_bytes_max of the queue, or the key or \
                 deduplication id than {KEY_BYTES_MAX} bytes"
            );
        }
        CommandError::NotFound => "it is gone or never existed, or its state does not allow this",
        CommandError::TokenUsed(_) => "give each request its own Idempotency-Key",
        CommandError::Draining => "it rejects puts until `quintet undrain` or its next start",
        CommandError::NoSpace => "free disk space; takes and deletes still work",
        CommandError::NoMemory => "memory_max is reached; take messages, or raise it",
        CommandError::TooManyQueues => "queues_max is reached; drop queues, or raise it",
        CommandError::UserQueues => "queues_max of its [[limit]] is reached",
        CommandError::UserBytes => "bytes_stored_max of its [[limit]] is reached",
        CommandError::TooManyWaiters => "waiters_max is reached",
        CommandError::NotPermitted => "the user needs a [[grant]] with the right for this",
        CommandError::TablesFull => "tables_bytes_max is reached",
        CommandError::SnapshotFull => {
            "snapshot_bytes_max is reached; drop queues or batches, or raise it"
        }
        CommandError::BatchNotFound => "it is done or forgotten, or the id is wrong",
        CommandError::BatchClosed => "open it again to add messages",
        CommandError::BatchWithoutCallback => "give it complete or success, or both",
        CommandError::BatchTooLarge => {
            "its description and callbacks are longer than batch_bytes_max"
        }
        CommandError::TooManyBatches => "batches_max is reached; commit or forget batches",
        CommandError::DedupeFull => "dedupe_memory is full",
        CommandError::KeysUnused => "set groups, key_in_flight_max or key_take_rate to hold keys",
        CommandError::Conflict => "send the request again",
        CommandError::Awaited => "they know it by its id, which would change",
        CommandError::Unavailable => "too few servers of the log respond; send the request again",
        CommandError::QueueNotFound
        | CommandError::QueueExists
        | CommandError::LeaseOver
        | CommandError::HeldLimit
        | CommandError::QueueDown
        | CommandError::TagsFull
        | CommandError::Locked
        | CommandError::AlreadyCancelled
        | CommandError::AlreadyDone
        | CommandError::NoKey
        | CommandError::AfterItself
        | CommandError::Unknown => return text.to_owned(),
    };
    format!("{text}: {next}")
}
