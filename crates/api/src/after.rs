//! Dependencies in requests and replies.

use quintet_types::{AfterOn, IfFailed, Message, MessageId, PutAfter};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::Problem;

/// A message to wait for.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Before {
    /// By its id.
    Id(u64),
    /// A tracked message, by its own name; of several the one that was put last.
    Name(String),
}

/// Ends that count.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// That it has succeeded.
    Success,
    /// Any.
    End,
}

/// Fate of a message once one that it waits for has failed.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It fails too: the dead-letter rule of its queue applies.
    Fail,
    /// It stays held, until it is kicked or deleted.
    Hold,
    /// It runs when the others have ended.
    Run,
}

impl From<On> for AfterOn {
    fn from(on: On) -> Self {
        match on {
            On::Success => Self::Success,
            On::End => Self::End,
        }
    }
}

impl From<Fate> for IfFailed {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Fail => Self::Fail,
            Fate::Hold => Self::Hold,
            Fate::Run => Self::Run,
        }
    }
}

/// A message for which another one waits, or waited.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ShownParent {
    pub(super) id: u64,
    /// `waiting`, `done` or `failed`.
    pub(super) state: &'static str,
}

/// The messages that a new one waits for, of a message that is `field` in its request.
///
/// # Errors
/// It says how to wait, and not for what.
pub(super) fn of_new(
    before: Vec<Before>,
    (on, if_failed): (Option<On>, Option<Fate>),
    field: &str,
) -> Result<Option<Box<PutAfter>>, Problem> {
    if before.is_empty() {
        let asks = [("on", on.is_some()), ("if_failed", if_failed.is_some())];
        return match asks.into_iter().find(|(_, is)| *is) {
            Some((name, _)) => Err(Problem::field(
                &format!("{field}{name}"),
                "needs the field after beside it: the messages to wait for",
            )),
            None => Ok(None),
        };
    }
    let mut after = PutAfter {
        on: on.map(Into::into).unwrap_or_default(),
        if_failed: if_failed.map(Into::into).unwrap_or_default(),
        ..PutAfter::default()
    };
    for before in before {
        match before {
            Before::Id(id) => after.ids.push(MessageId(id)),
            Before::Name(name) => after.names.push(name.into_bytes().into()),
        }
    }
    Ok(Some(Box::new(after)))
}

/// The messages that one waits for, or waited.
pub(super) fn shown(message: &Message) -> Vec<ShownParent> {
    let after = message
        .extra
        .as_ref()
        .and_then(|extra| extra.after.as_ref());
    let parents = after.into_iter().flat_map(|after| &after.parents);
    let parents = parents.map(|parent| ShownParent {
        id: parent.id.0,
        state: parent.state.word(),
    });
    parents.collect()
}
