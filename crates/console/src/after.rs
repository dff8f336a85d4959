//! The messages that one waits for, and those that wait for it.

use quintet_types::{Command, Message, MessageId, Outcome, Parent, StatsOf, StatsReply};

use super::names::Named;
use super::{PageRequest, listing};

/// Parents that are shown at most.
const PARENTS_SHOWN: usize = 20;

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
}

impl Neighbours {
    pub(super) fn any(&self) -> bool {
        !(self.before.is_empty() && self.behind.is_empty())
    }
}

/// The neighbours of a message. Of those that wait for it only such as may be seen.
pub(super) async fn of(asked: &PageRequest, message: &Message) -> Neighbours {
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
            queue: look(asked, *id).await.map(|(queue, _)| queue),
        });
    }
    let stats = Command::Stats(StatsOf::Message(message.id));
    let asked_stats = asked.console.api.ask(&asked.requester, stats).await;
    let Ok((Outcome::Stats(stats), _)) = asked_stats else {
        return found;
    };
    let StatsReply::Message(stats) = *stats else {
        return found;
    };
    for id in stats.dependants {
        if let Some((queue, state)) = look(asked, id).await {
            found.behind.push(Neighbour {
                id: id.0,
                state,
                queue: Some(queue),
            });
        }
    }
    found
}

/// The queue and the state of another message, if it may be seen.
async fn look(asked: &PageRequest, id: MessageId) -> Option<(Named, &'static str)> {
    let (message, queue) = asked.message(&id.0.to_string()).await.ok()?;
    let now = asked.console.api.client_api().now();
    let state = listing::word(listing::state_of(&message, now));
    Some((Named::new(&queue), state))
}
