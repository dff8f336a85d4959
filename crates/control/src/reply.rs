//! Replies of the control channel.

use quintet_types::{Outcome, Refusal};
use quintet_wire::{Given, Output};
use serde_json::{Value, json};

/// The code of a hook's refusal; those of the engine are [`Refusal::code`].
const DENIED: &str = "denied";

/// Writes one reply, a line.
pub(crate) fn write(given: &Given, output: &mut Output) {
    let line = match given {
        Given::Engine(outcome, _) => engine(outcome),
        Given::Host(Ok(text)) => json!({ "done": text }),
        Given::Host(Err(why)) => json!({ "error": why }),
        Given::Login(Ok(())) => json!({ "done": "" }),
        Given::Login(Err(refused)) => json!({ "error": refused.text() }),
        Given::Server(_) | Given::Worker(_) | Given::Own => json!({}),
    };
    end_line(output, &line);
}

/// Writes a line of JSON.
pub(crate) fn end_line(output: &mut Output, value: &Value) {
    output.put(value.to_string().as_bytes());
    output.put(b"\n");
}

fn engine(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Done => json!({ "done": "" }),
        Outcome::Put { id, fresh } => json!({ "id": id.0, "fresh": fresh }),
        Outcome::PutMany(ids) => json!({ "ids": ids.iter().map(|id| id.0).collect::<Vec<_>>() }),
        // Nothing asks for these.
        Outcome::Cancelled
        | Outcome::Messages(_)
        | Outcome::Empty
        | Outcome::DeadlineSoon
        | Outcome::Count(_)
        | Outcome::Swept(_)
        | Outcome::Compound { .. }
        | Outcome::Entries(_)
        | Outcome::Dropped(_)
        | Outcome::Batch(_)
        | Outcome::Batches(..)
        | Outcome::Tracked(_)
        | Outcome::Stats(_) => json!({}),
        Outcome::Refused(refusal) => {
            let (text, code) = (refusal.text(), refusal.code());
            let mut told = json!({ "error": text, "code": code });
            if let Refusal::Duplicate(id) = refusal {
                told["duplicate"] = id.0.into();
            }
            told
        }
        Outcome::Denied(text) => json!({ "error": text, "code": DENIED }),
    }
}
