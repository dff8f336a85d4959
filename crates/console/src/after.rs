//! The messages that one waits for, and those that wait for it.

use quintet_types::{Message, MessageId, Parent};

use super::names::Named;
use super::{PageRequest, listing};

/// Parents that are shown at most.
const PARENTS_SHOWN: usize = 10;
/// Messages that wait which are shown at most. With the message itself the graph has 20 nodes.
const BEHIND_SHOWN: usize = 9;

/// A message beside the one of the page.
pub(super) struct Neighbour {
    pub(super) id: u64,
    pub(super) state: &'static str,
    /// Its queue; `None`: it is gone, or may not be seen.
    pub(super) queue: Option<Named>,
}

/// The messages that one waits for, and those that wait for it.
#[derive(Default)]
pub(super) struct Neighbours {
    pub(super) before: Vec<Neighbour>,
    /// More parents than are shown.
    pub(super) more: usize,
    pub(super) behind: Vec<Neighbour>,
    /// There are more that wait than are shown.
    pub(super) more_behind: bool,
}

impl Neighbours {
    pub(super) fn any(&self) -> bool {
        !(self.before.is_empty() && self.behind.is_empty() && !self.more_behind)
    }
}

/// The neighbours of a message. Of those that wait for it only such as may be seen.
pub(super) async fn of(context: &PageRequest, message: &Message) -> Neighbours {
    let after = message
        .extra
        .as_ref()
        .and_then(|extra| extra.after.as_ref());
    let parents = after.map_or(&[][..], |after| &after.parents);
    let mut found = Neighbours {
        more: parents.len().saturating_sub(PARENTS_SHOWN),
        ..Neighbours::default()
    };
    for Parent { id, state } in parents.iter().take(PARENTS_SHOWN) {
        found.before.push(Neighbour {
            id: id.0,
            state: state.word(),
            queue: find(context, *id).await,
        });
    }
    let api = &context.console.api;
    // One more, to know whether there are more.
    let (begin, max) = ((0, MessageId(0)), BEHIND_SHOWN as u32 + 1);
    let behind = api.dependents(&context.requester, message.id, begin, max);
    if let Ok((behind, next)) = behind.await {
        found.more_behind = behind.len() > BEHIND_SHOWN || next.is_some();
        let behind = behind.into_iter().take(BEHIND_SHOWN);
        found.behind = behind
            .map(|one| Neighbour {
                id: one.id.0,
                state: listing::word(one.state),
                queue: Some(Named::new(&one.queue)),
            })
            .collect();
    }
    found
}

/// The queue of another message, if it may be seen.
async fn find(context: &PageRequest, id: MessageId) -> Option<Named> {
    let (_, queue) = context.message(&id.0.to_string()).await.ok()?;
    Some(Named::new(&queue))
}
