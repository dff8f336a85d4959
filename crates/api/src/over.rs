//! Messages of all queues: all, or those that are scheduled, retried or dead.

mod newest;

use std::collections::BTreeMap;

use hyper::Uri;
use quintet_client::{Share, Slices};
use quintet_types::{
    BulkOp, Cursor, Filter, ListState, Message, Name, Order, QueueStats, Verb, hex, unhex,
};

use super::call::{Answer, Call};
use super::problem::Problem;
use super::types::{MessageView, Page};
use super::{Api, PAGE_BYTES, bulk, read};

use quintet_http::{Requester, reply};

/// Slices looked through for a page at most; for the next message of one queue [`SEEKS`].
const SLICES: u32 = 64;
const SEEKS: u32 = 4;
/// Pages of queues looked through for a page of messages at most.
const QUEUE_PAGES: u32 = 64;

quintet_types::named! {
    /// Which messages of all queues.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Group, word {
        /// Not due yet, and never taken.
        Scheduled = "scheduled",
        /// Taken before, and not due yet.
        Retrying = "retrying",
        /// Buried, or a dead letter that is ready.
        Dead = "dead",
        /// In any state that waits.
        All = "all",
    }
}

impl Group {
    /// # Errors
    /// There is none of this name.
    pub fn of(word: &str) -> Result<Self, Problem> {
        let found = Self::ALL.into_iter().find(|group| group.word() == word);
        found.ok_or_else(|| Problem::field("group", "takes scheduled, retrying, dead or all"))
    }

    /// Where [`Group::All`] may have messages of a queue, in the order that they are listed.
    fn selections(stats: &QueueStats) -> Vec<ListState> {
        let gauges = &stats.gauges;
        let all = [
            gauges.ready + gauges.not_selectable,
            gauges.delayed,
            gauges.reserved,
            gauges.buried,
        ];
        let some = all.into_iter().zip(STATES).filter(|(some, _)| *some > 0);
        some.map(|(_, state)| state).collect()
    }
}

/// The states of a queue in the order that they are listed, as cursors number them.
const STATES: [ListState; 4] = [
    ListState::Ready,
    ListState::Delayed,
    ListState::Reserved,
    ListState::Buried,
];

/// The place of a state in this order.
fn turn(state: ListState) -> usize {
    let place = STATES.iter().position(|listed| *listed == state);
    place.unwrap_or(0)
}

/// Where a list goes on.
#[derive(Clone, Debug, Default, PartialEq)]
struct At {
    /// A page of queues: its shard, and the number of its first queue.
    page: (u8, u32),
    /// In that queue, if it has this name, and this state; `None`: it begins.
    inside: Option<(Name, ListState, Cursor)>,
}

impl At {
    fn text(&self) -> String {
        let (shard, at) = self.page;
        let inside = self.inside.as_ref().map(|(queue, state, cursor)| {
            let (queue, state) = (hex(queue.as_bytes()), turn(*state));
            format!("-{queue}-{state}-{}", bulk::cursor_text(*cursor))
        });
        format!("{shard}-{at}{}", inside.unwrap_or_default())
    }

    fn of(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let page = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let Some(hex) = parts.next() else {
            return Some(Self { page, inside: None });
        };
        let queue = Name::new(&unhex(hex)?);
        let state = *STATES.get(parts.next()?.parse::<usize>().ok()?)?;
        let cursor = bulk::cursor(parts.next()?).ok()?;
        Some(Self {
            page,
            inside: Some((queue, state, cursor)),
        })
    }
}

/// The first message of a queue that is not on the page yet.
struct Head {
    queue: Name,
    /// Its share of the memory with it; `None`: it was not found before this place.
    message: Option<(Message, Option<Share>)>,
}

/// The heads by due time and id.
type Heads = BTreeMap<Order, Head>;

/// A page of them: by due time over all queues; the dead ones newest first; all, queue by queue in
/// the order the queues were created.
#[derive(Default)]
pub struct Over {
    pub messages: Vec<(Message, Name)>,
    /// Start of the next page; `None`: that was all.
    pub next: Option<String>,
    /// Their share of the memory.
    room: Vec<Share>,
}

impl Api {
    /// Messages of all queues whose messages may be seen, `max` at most; with `has` those whose
    /// body contains it. A page that looked through much ends earlier, even without a message.
    ///
    /// # Errors
    /// The shards' error; or there is no room; or `cursor` is none.
    pub async fn over(
        &self,
        requester: &Requester,
        (group, has): (Group, &[u8]),
        cursor: Option<&str>,
        max: u32,
    ) -> Result<Over, Problem> {
        if matches!(group, Group::Scheduled | Group::Retrying) {
            return self.by_due_time(requester, (group, has), cursor, max).await;
        }
        if group == Group::Dead {
            return newest::page(self, requester, has, cursor, max).await;
        }
        let at = cursor.map(|text| {
            let none = || Problem::field("cursor", read::NOT_A_CURSOR);
            At::of(text).ok_or_else(none)
        });
        let mut at = at.transpose()?.unwrap_or_default();
        let mut found = Over::default();
        let (mut slices, mut bytes) = (0, 0);
        for _ in 0..QUEUE_PAGES {
            let page = self.queue_page(requester, at.page).await?;
            let mut inside = at.inside.take();
            let (shard, first) = at.page;
            for stats in &page.queues {
                if !requester.may_to(Verb::Peek, &stats.name) {
                    continue;
                }
                // The page begins with it, if it is still there.
                let resumes = inside
                    .take()
                    .filter(|(queue, ..)| stats.id.0 == first && *queue == stats.name);
                let mut selections = Group::selections(stats);
                if let Some((_, state, _)) = &resumes {
                    // Nothing may be left in it.
                    selections.retain(|listed| turn(*listed) >= turn(*state));
                }
                for state in selections {
                    let after = resumes.as_ref().filter(|(_, resumed, _)| *resumed == state);
                    let bulk_op = BulkOp {
                        filter: Filter {
                            body: (!has.is_empty()).then(|| has.into()),
                            ..Filter::default()
                        },
                        after: after.map(|(.., cursor)| *cursor),
                        ..BulkOp::show(stats.name.clone(), state, 0)
                    };
                    let spent = (&mut slices, &mut bytes);
                    let end = self.add(requester, bulk_op, spent, &mut found, max).await?;
                    if let Some(end) = end {
                        at.page = (shard, stats.id.0);
                        at.inside = Some((stats.name.clone(), state, end));
                        found.next = Some(at.text());
                        return Ok(found);
                    }
                }
            }
            match page.next {
                Some(next) => at.page = next,
                None => return Ok(found),
            }
        }
        found.next = Some(at.text());
        Ok(found)
    }

    /// Adds messages of one state of a queue to a page. Where to go on, if that ends the page.
    async fn add(
        &self,
        requester: &Requester,
        mut bulk_op: BulkOp,
        (slices, bytes): (&mut u32, &mut u64),
        found: &mut Over,
        max: u32,
    ) -> Result<Option<Cursor>, Problem> {
        loop {
            let left = max - u32::try_from(found.messages.len()).unwrap_or(max);
            bulk_op.max = bulk::rows(&bulk_op.queue, left);
            let (bulk_done, room) = match self.bulk_done(requester, bulk_op.clone()).await {
                // It was deleted since its numbers were read.
                Err(problem) if problem.status == 404 => return Ok(None),
                bulk_done => bulk_done?,
            };
            found.room.extend(room);
            *slices += 1;
            for message in bulk_done.messages {
                *bytes += message.size() + bulk::name_bytes(&bulk_op.queue);
                found.messages.push((message, bulk_op.queue.clone()));
            }
            let full = found.messages.len() >= max as usize || *bytes >= PAGE_BYTES;
            match bulk_done.next {
                Some(next) if full || *slices >= SLICES => return Ok(Some(next)),
                Some(next) => bulk_op.after = Some(next),
                // What stands behind it is behind everything of this state.
                None if full => {
                    return Ok(Some(Cursor {
                        not_selectable: true,
                        order: (u32::MAX, i64::MAX, quintet_types::MessageId(u64::MAX)),
                    }));
                }
                None => return Ok(None),
            }
        }
    }

    /// [`Api::over`] of messages that are not due: queues are merged. No more heads are held than
    /// the page has messages.
    async fn by_due_time(
        &self,
        requester: &Requester,
        requested: (Group, &[u8]),
        cursor: Option<&str>,
        max: u32,
    ) -> Result<Over, Problem> {
        let mut after = cursor.map(bulk::cursor).transpose()?;
        let (mut heads, most) = (Heads::new(), max as usize);
        let (mut from, mut cut) = (Some((0, 0)), false);
        while let Some(page) = from {
            let page = self.queue_page(requester, page).await?;
            for stats in &page.queues {
                let some = stats.gauges.delayed > 0 && requester.may_to(Verb::Peek, &stats.name);
                if some {
                    self.seek(requester, requested, stats.name.clone(), after, &mut heads)
                        .await?;
                }
                if heads.len() > most {
                    heads.pop_last();
                    cut = true;
                }
            }
            from = page.next;
        }
        let (mut found, mut bytes) = (Over::default(), 0);
        let mut last = None;
        while let Some((order, head)) = heads.pop_first() {
            let not_selectable = false;
            after = Some(Cursor {
                not_selectable,
                order,
            });
            last = after;
            let Some((message, room)) = head.message else {
                // What stands behind it in its queue is not known yet.
                break;
            };
            bytes += message.size() + bulk::name_bytes(&head.queue);
            found.messages.push((message, head.queue.clone()));
            found.room.extend(room);
            self.seek(requester, requested, head.queue, after, &mut heads)
                .await?;
            if heads.is_empty() && !cut {
                return Ok(found);
            }
            if found.messages.len() >= most || bytes >= PAGE_BYTES {
                break;
            }
        }
        found.next = last.map(bulk::cursor_text);
        Ok(found)
    }

    /// Adds the first message of a queue behind this place, if there is one.
    async fn seek(
        &self,
        requester: &Requester,
        (group, has): (Group, &[u8]),
        queue: Name,
        after: Option<Cursor>,
        heads: &mut Heads,
    ) -> Result<(), Problem> {
        let bulk_op = BulkOp {
            filter: Filter {
                tried: Some(group == Group::Retrying),
                body: (!has.is_empty()).then(|| has.into()),
                ..Filter::default()
            },
            after,
            ..BulkOp::show(queue, ListState::Delayed, 1)
        };
        let mut slices = Slices::of(bulk_op).at_most(u64::MAX, SEEKS);
        while let Some(bulk_op) = slices.slice() {
            let (bulk_done, room) = match self.bulk_done(requester, bulk_op.clone()).await {
                // It was deleted since its numbers were read.
                Err(problem) if problem.status == 404 => return Ok(()),
                bulk_done => bulk_done?,
            };
            slices.done(&bulk_done);
            if let Some(message) = bulk_done.messages.into_iter().next() {
                let due = message
                    .due()
                    .map_or(0, |due| i64::try_from(due.0).unwrap_or(i64::MAX));
                let order = (0, due, message.id);
                let message = Some((message, room));
                let queue = slices.bulk_op.queue;
                heads.insert(order, Head { queue, message });
                return Ok(());
            }
        }
        if let Some(next) = slices.bulk_op.after {
            let (queue, message) = (slices.bulk_op.queue, None);
            heads.insert(next.order, Head { queue, message });
        }
        Ok(())
    }
}

/// Lists messages of all queues that are `scheduled` (not due yet, never taken), `retrying` (taken
/// before, not due yet), the next due first over all queues; `dead` (buried, or a ready dead letter),
/// the newest first over all queues; or `all`, queue by queue. With `contains` those whose body
/// contains it. A page may have fewer than `max`, even none, and a cursor.
#[utoipa::path(get, path = "/api/v1/messages", operation_id = "list_over_queues", tag = "messages",
    params(("group" = String, Query, description = "scheduled, retrying, dead or all"),
        ("contains" = Option<String>, Query, description = "in the body"),
        ("max" = Option<u64>, Query), ("cursor" = Option<String>, Query, description = "of the page before")),
    responses((status = 200, body = Page)))]
pub(super) async fn list(Call { api, requester }: Call, uri: Uri) -> Answer {
    let query = read::Query::of(&uri, &["group", "contains", "max", "cursor"], &[])?;
    let group = Group::of(query.get("group").unwrap_or_default())?;
    let max = read::page_size(&query)?;
    let has = query.get("contains").unwrap_or_default().as_bytes();
    let over = api
        .over(&requester, (group, has), query.get("cursor"), max)
        .await?;
    let now = api.client_api.now();
    let messages = over.messages.iter();
    Ok(reply::document(&Page {
        messages: messages
            .map(|(message, queue)| MessageView::of(message, queue, now))
            .collect(),
        cursor: over.next.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let order = (7, -9, quintet_types::MessageId(3));
        let cursor = Cursor {
            not_selectable: false,
            order,
        };
        for inside in [
            None,
            Some((Name::new(b"a-\xff\"b"), ListState::Buried, cursor)),
            Some((Name::new(b"q"), ListState::Ready, cursor)),
        ] {
            let at = At {
                page: (3, 512),
                inside,
            };
            assert_eq!(At::of(&at.text()), Some(at));
        }
        for none in [
            "",
            "1",
            "x-1",
            "1-1-zz-1-0_1_1_1",
            "1-1-61-1",
            "1-1-61-4-0_1_1_1",
            "1-1-é-1-0_1_1_1",
        ] {
            assert_eq!(At::of(none), None, "{none}");
        }
    }
}
