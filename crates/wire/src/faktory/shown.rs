//! Messages as workers are shown them.

use quintet_types::{BATCH, Body, Message, Ms, Name};

use super::failure;
use super::job::{self, Beside};
use super::json;

/// A message as a worker is shown it.
pub(super) fn job_shown(message: &Message, queue: &Name, jobtype: &str, now: Ms) -> String {
    let beside = Beside {
        failure: failure::of(message, now),
        enqueued: message.due().unwrap_or(message.created),
        batch: callback_of(message),
    };
    if let (Some(_), Body::Small(bytes)) = (message.name(), &message.body)
        && let Ok(text) = std::str::from_utf8(bytes)
        && job::is_stored(text)
    {
        return job::shown(text, &beside);
    }
    let queue = json::text_of(queue.as_bytes());
    let jid = match message.name() {
        Some(name) => json::text_of(name).into_owned(),
        None => job::foreign_jid(message.id),
    };
    let about = (message.id, jid, &*queue, message.created);
    let body = message.body.as_small();
    job::shown(
        &job::foreign(about, body, message.body.len(), jobtype),
        &beside,
    )
}

/// The batch whose callback it is.
fn callback_of(message: &Message) -> Option<String> {
    let attrs = &message.extra.as_ref()?.attrs;
    let (_, batch) = attrs.iter().find(|(name, _)| **name == *BATCH)?;
    Some(json::text_of(batch).into_owned())
}
