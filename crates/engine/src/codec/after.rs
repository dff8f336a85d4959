//! Dependencies: facts, and the messages for which another one is held.

use super::read::Reader;
use super::write::Writer;
use super::{FactError, FactKind};
use quintet_types::{After, Coded as _, MessageId, Parent};

use crate::fact::Fact;

/// Layout in `docs/log-format.md`, "Dependencies".
pub(super) fn write(w: &mut Writer<'_>, after: &After) {
    w.coded(after.on);
    w.coded(after.if_failed);
    w.time(after.due);
    w.number(after.parents.len() as u64);
    for parent in &after.parents {
        w.number(parent.id.0);
        w.coded(parent.state);
    }
}

pub(super) fn read(r: &mut Reader<'_>) -> Result<After, FactError> {
    let (on, if_failed, due) = (r.coded()?, r.coded()?, r.time()?);
    let mut parents: Vec<Parent> = Vec::new();
    for _ in 0..r.number()? {
        let parent = Parent {
            id: MessageId(r.number()?),
            state: r.coded()?,
        };
        // By id, each once: they are searched.
        if parents.last().is_some_and(|last| last.id >= parent.id) {
            return Err(FactError::BadField("parents"));
        }
        parents.push(parent);
    }
    Ok(After {
        parents: parents.into(),
        on,
        if_failed,
        due,
    })
}

/// The fields of a fact about dependencies.
pub(super) fn write_fact(w: &mut Writer<'_>, fact: &Fact) {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others are written elsewhere"
    )]
    match fact {
        Fact::Awaits { child, after } => {
            w.number(child.0);
            w.flag(after.is_some());
            if let Some(after) = after {
                write(w, after);
            }
        }
        Fact::ParentEnded { parent, succeeded } => {
            w.number(parent.0);
            w.flag(*succeeded);
        }
        Fact::ParentTold {
            child,
            parent,
            succeeded,
        } => {
            w.number(child.0);
            w.number(parent.0);
            w.flag(*succeeded);
        }
        Fact::Freed { at, after } => {
            w.at(at);
            write(w, after);
        }
        Fact::Watched {
            parent,
            shard,
            state,
        } => {
            w.number(parent.0);
            w.byte(*shard);
            w.flag(state.is_some());
            if let Some(state) = state {
                w.coded(*state);
            }
        }
        _ => {}
    }
}

/// Reads a fact about messages that wait for others; `kind` is one of these.
pub(super) fn read_fact(r: &mut Reader<'_>, kind: FactKind) -> Result<Fact, FactError> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others are read elsewhere"
    )]
    Ok(match kind {
        FactKind::Awaits => Fact::Awaits {
            child: MessageId(r.number()?),
            after: match r.flag()? {
                true => Some(Box::new(read(r)?)),
                false => None,
            },
        },
        FactKind::ParentEnded => Fact::ParentEnded {
            parent: MessageId(r.number()?),
            succeeded: r.flag()?,
        },
        FactKind::ParentTold => Fact::ParentTold {
            child: MessageId(r.number()?),
            parent: MessageId(r.number()?),
            succeeded: r.flag()?,
        },
        FactKind::Freed => Fact::Freed {
            at: r.at()?,
            after: Box::new(read(r)?),
        },
        FactKind::Watched => Fact::Watched {
            parent: MessageId(r.number()?),
            shard: r.byte()?,
            state: match r.flag()? {
                true => Some(r.coded()?),
                false => None,
            },
        },
        _ => return Err(FactError::UnknownOperation(kind.byte())),
    })
}
