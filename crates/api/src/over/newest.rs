//! The dead messages of all queues, the newest first.
//!
//! Streams are merged by time: one of all that are buried, by their turn, which is made of the
//! time; and for each shard one of its dead letters that are ready, by their position, which the
//! shard counts up. A stream merges lists: the buried ones of a queue, or its dead letters of one
//! priority. A cursor has the place in each stream. So pages neither repeat nor leave out a message
//! that stays as it is, whatever comes and goes meanwhile.
//!
//! A page costs a search for each queue with buried messages, one or two for each priority of a
//! queue with dead letters, and one for each message of the page.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use quintet_client::{Share, Slices};
use quintet_types::{
    BulkAction, BulkOp, Cursor, Filter, ListState, Message, MessageId, Ms, Name, TURN_SHIFT, Verb,
};

use super::Over;
use crate::problem::Problem;
use crate::{Api, PAGE_BYTES, bulk, read};
use quintet_http::Requester;

/// Slices in which the next message of a list is searched, before the page ends without it.
const SEEKS: u32 = 32;
/// Slices of a page over all lists: dead letters may have a great many priorities. Behind
/// [`MANY`] a list is searched in one slice.
const SLICES: u32 = 100_000;
const MANY: u32 = 5_000;
/// How often a page goes on with a list in which a search found nothing.
const LONGER: u32 = 64;
/// Streams of a cursor at most.
const STREAMS: usize = 257;

/// The turn or position, and the id: a later one is newer.
type Recency = (i64, MessageId);

/// Messages of a queue that stand in order.
#[derive(Clone)]
struct StateList {
    queue: Name,
    /// Buried; else dead letters.
    buried: bool,
    not_selectable: bool,
    priority: u32,
}

struct Head {
    state_list: StateList,
    /// Its share of the memory with it; `None`: it was not found behind this place.
    message: Option<(Message, Option<Share>)>,
}

#[derive(Default)]
struct Stream {
    /// Messages before this place are not listed yet; `None`: no message is listed.
    after: Option<Recency>,
    /// The next message of each list, as many as the page has messages; the newest first.
    heads: BTreeMap<Reverse<Recency>, Head>,
}

/// The end of a search: the priority and place of a message, with its share of the memory. Without
/// one no message fits before this place, and there are more behind it.
type Found = (u32, Recency, Option<(Message, Option<Share>)>);

/// The page of dead messages behind a cursor, `max` at most; see [`Api::over`].
///
/// # Errors
/// The shards' error; or there is no room; or `cursor` is none.
pub(super) async fn page(
    api: &Api,
    requester: &Requester,
    has: &[u8],
    cursor: Option<&str>,
    max: u32,
) -> Result<Over, Problem> {
    let streams = match cursor {
        None => Vec::new(),
        Some(text) => {
            let places = places(text);
            let places = places.ok_or_else(|| Problem::field("cursor", read::NOT_A_CURSOR))?;
            let stream = |after| Stream {
                after,
                ..Stream::default()
            };
            places.into_iter().map(stream).collect()
        }
    };
    let mut newest = Newest {
        api,
        requester,
        has,
        max: max as usize,
        streams,
        cut: false,
        slices: 0,
    };
    newest.begin().await?;
    newest.merge().await
}

struct Newest<'a> {
    api: &'a Api,
    requester: &'a Requester,
    has: &'a [u8],
    max: usize,
    /// That of the buried ones, then those of the shards.
    streams: Vec<Stream>,
    /// Some heads had no room.
    cut: bool,
    slices: u32,
}

impl Newest<'_> {
    /// Finds the head of each list.
    async fn begin(&mut self) -> Result<(), Problem> {
        let mut from = Some((0, 0));
        while let Some(page) = from {
            // A page has queues of one shard.
            let stream = 1 + usize::from(page.0);
            let page = self.api.queue_page(self.requester, page).await?;
            if self.streams.len() <= stream {
                self.streams.resize_with(stream + 1, Stream::default);
            }
            for stats in &page.queues {
                if !self.requester.may_to(Verb::Peek, &stats.name) {
                    continue;
                }
                let state_list = |buried, not_selectable| StateList {
                    queue: stats.name.clone(),
                    buried,
                    not_selectable,
                    priority: u32::MAX,
                };
                let gauges = &stats.gauges;
                if gauges.buried > 0 {
                    let state_list = StateList {
                        priority: 0,
                        ..state_list(true, false)
                    };
                    self.add_lists(0, state_list).await?;
                }
                if stats.totals.moved_in > 0 && gauges.ready > 0 {
                    self.add_lists(stream, state_list(false, false)).await?;
                }
                if stats.totals.moved_in > 0 && gauges.not_selectable > 0 {
                    self.add_lists(stream, state_list(false, true)).await?;
                }
            }
            from = page.next;
        }
        Ok(())
    }

    /// Adds the heads of a list and of those before it.
    async fn add_lists(&mut self, stream: usize, mut state_list: StateList) -> Result<(), Problem> {
        let top = (i64::MAX, MessageId(u64::MAX));
        let begin = self.streams[stream].after.unwrap_or(top);
        let mut before = begin;
        loop {
            let Some((priority, place, message)) = self.seek(&state_list, before).await? else {
                return Ok(());
            };
            state_list.priority = priority;
            if place >= begin {
                // Pages before had it.
                before = begin;
                continue;
            }
            let buried = state_list.buried;
            let head = Head {
                state_list: state_list.clone(),
                message,
            };
            self.add(stream, place, head);
            if buried {
                return Ok(());
            }
            before = (i64::MIN, MessageId(0));
        }
    }

    fn add(&mut self, stream: usize, place: Recency, head: Head) {
        let heads = &mut self.streams[stream].heads;
        heads.insert(Reverse(place), head);
        if heads.len() > self.max {
            heads.pop_last();
            self.cut = true;
        }
    }

    /// The newest message of a list, or of those with a lower number, before this place in it.
    async fn seek(
        &mut self,
        state_list: &StateList,
        before: Recency,
    ) -> Result<Option<Found>, Problem> {
        let (state, filter) = match state_list.buried {
            true => (ListState::Buried, Filter::default()),
            false => (
                ListState::Ready,
                Filter {
                    dead: true,
                    ..Filter::default()
                },
            ),
        };
        let bulk_op = BulkOp {
            filter: Filter {
                body: (!self.has.is_empty()).then(|| self.has.into()),
                ..filter
            },
            action: BulkAction::ShowBack,
            after: Some(Cursor {
                not_selectable: state_list.not_selectable,
                order: (state_list.priority, before.0, before.1),
            }),
            ..BulkOp::show(state_list.queue.clone(), state, 1)
        };
        let seeks = if self.slices > MANY { 1 } else { SEEKS };
        let mut slices = Slices::of(bulk_op).at_most(u64::MAX, seeks);
        while let Some(bulk_op) = slices.slice() {
            self.slices += 1;
            if self.slices > SLICES {
                let why = "too many queues and priorities: list the dead messages queue by queue";
                return Err(Problem::field("group", why));
            }
            let bulk_done = self.api.bulk_done(self.requester, bulk_op.clone()).await;
            let (bulk_done, room) = match bulk_done {
                // It was deleted since its numbers were read.
                Err(problem) if problem.status == 404 => return Ok(None),
                bulk_done => bulk_done?,
            };
            slices.done(&bulk_done);
            if let Some(message) = bulk_done.messages.into_iter().next() {
                let (priority, place) = state_list.place(&message);
                return Ok(Some((priority, place, Some((message, room)))));
            }
        }
        let at = slices.bulk_op.after.map(|after| after.order);
        Ok(at.map(|(priority, position, id)| (priority, (position, id), None)))
    }

    async fn merge(&mut self) -> Result<Over, Problem> {
        let (mut found, mut bytes, mut longer) = (Over::default(), 0, 0);
        while let Some(stream) = self.next_stream() {
            let Some((Reverse(place), head)) = self.streams[stream].heads.pop_first() else {
                break;
            };
            self.streams[stream].after = Some(place);
            let Some((message, room)) = head.message else {
                longer += 1;
                // Heads that had no room may be newer than what a longer search finds.
                if longer <= LONGER && !self.cut {
                    self.go_on(stream, place, head.state_list).await?;
                    continue;
                }
                found.next = Some(self.cursor());
                return Ok(found);
            };
            bytes += message.size() + bulk::name_bytes(&head.state_list.queue);
            found
                .messages
                .push((message, head.state_list.queue.clone()));
            found.room.extend(room);
            self.go_on(stream, place, head.state_list).await?;
            let is_full = found.messages.len() >= self.max || bytes >= PAGE_BYTES;
            let is_more = self.cut || self.next_stream().is_some();
            if is_full && is_more {
                found.next = Some(self.cursor());
                return Ok(found);
            }
        }
        Ok(found)
    }

    /// Adds the next head of a list.
    async fn go_on(
        &mut self,
        stream: usize,
        place: Recency,
        state_list: StateList,
    ) -> Result<(), Problem> {
        let Some((priority, place, message)) = self.seek(&state_list, place).await? else {
            return Ok(());
        };
        // Else it is of another list, which has its own head.
        if priority == state_list.priority {
            self.add(
                stream,
                place,
                Head {
                    state_list,
                    message,
                },
            );
        }
        Ok(())
    }

    /// The stream whose head is the newest.
    fn next_stream(&self) -> Option<usize> {
        let heads = self.streams.iter().enumerate();
        let times = heads.filter_map(|(at, stream)| {
            let (Reverse(place), head) = stream.heads.first_key_value()?;
            let time = match &head.message {
                _ if at == 0 => Ms(u64::try_from(place.0).unwrap_or(0) >> TURN_SHIFT),
                Some((message, _)) => bulk::since(message),
                None => Ms(u64::MAX),
            };
            Some((time, Reverse(at)))
        });
        times.max().map(|(_, Reverse(at))| at)
    }

    fn cursor(&self) -> String {
        let places = self.streams.iter().map(|stream| match stream.after {
            Some((place, id)) => format!("{place}_{}", id.0),
            None => String::new(),
        });
        places.collect::<Vec<_>>().join(".")
    }
}

impl StateList {
    /// The priority and place of a message in this list, or in one before it.
    fn place(&self, message: &Message) -> (u32, Recency) {
        if self.buried {
            let turn = message.extra.as_deref().map_or(0, |extra| extra.bury_order);
            return (0, (i64::try_from(turn).unwrap_or(i64::MAX), message.id));
        }
        let (priority, position, id) = message.order();
        (priority, (position, id))
    }
}

/// The places of a cursor.
fn places(text: &str) -> Option<Vec<Option<Recency>>> {
    let place = |part: &str| match part {
        "" => Some(None),
        _ => {
            let (place, id) = part.split_once('_')?;
            Some(Some((place.parse().ok()?, MessageId(id.parse().ok()?))))
        }
    };
    let places: Option<Vec<_>> = text.split('.').take(STREAMS + 1).map(place).collect();
    places.filter(|places| places.len() <= STREAMS && places.iter().any(Option::is_some))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_has_a_place_for_each_stream() {
        let place = |at, id| Some((at, MessageId(id)));
        assert_eq!(places("7_3"), Some(vec![place(7, 3)]));
        let some = vec![None, place(-9, 3), None];
        assert_eq!(places(".-9_3."), Some(some));
        for none in ["", ".", "7", "x_1", "0-1", "1_2_3", "0_1_1_1"] {
            assert_eq!(places(none), None, "{none}");
        }
        assert_eq!(places(&".1_1".repeat(STREAMS)), None);
    }
}
