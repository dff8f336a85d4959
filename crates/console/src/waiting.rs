//! Messages of all queues that are scheduled, retried or dead, and the search for what a body
//! contains.

use askama::Template;
use quintet_types::{ListState, Message, Name, Verb};

use super::frame::Frame;
use super::listing::{self, Line};
use super::names::{Named, PAGE_BYTES, fitting};
use super::{Answer, PageRequest, render};
use quintet_api::Group;

struct Row {
    queue: Named,
    line: Line,
    state: &'static str,
    /// The requester may send it back, or have it tried again.
    may: bool,
}

#[derive(Template)]
#[template(path = "waiting.html")]
struct Waiting {
    frame: Frame,
    group: &'static str,
    says: &'static str,
    order: &'static str,
    groups: [&'static str; 4],
    /// Part of the bodies, as it was typed, and as a part of an address.
    has: String,
    query: String,
    rows: Vec<Row>,
    first: bool,
    next: Option<String>,
}

/// `/waiting`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let query = context.query()?;
    let group = Group::of(query.get("group").unwrap_or("scheduled"))?;
    let has = query.get("has").unwrap_or_default().to_owned();
    let bytes = Name::of_shown(&has);
    let (api, after) = (&context.console.api, query.get("after"));
    let list = |max| api.over(&context.requester, (group, bytes.as_bytes()), after, max);
    let mut over = list(listing::ROWS).await?;
    let mut rows = rows_of(&context, &over.messages);
    let weights = rows
        .iter()
        .map(|row| row.queue.weight() + row.line.weight());
    let fit = fitting(weights, PAGE_BYTES);
    if fit < rows.len() {
        drop(over);
        over = list(u32::try_from(fit).unwrap_or(listing::ROWS)).await?;
        rows = rows_of(&context, &over.messages);
    }
    render(&Waiting {
        frame: context.frame.of("Waiting", "waiting"),
        group: group.word(),
        says: match group {
            Group::Scheduled => "Messages of all queues that are due later and were never taken.",
            Group::Retrying => {
                "Messages of all queues that were taken before and wait for a retry."
            }
            Group::All => "Messages of all queues, in any state.",
            Group::Dead => "Buried messages, and dead letters that no consumer has taken.",
        },
        order: match group {
            Group::Scheduled | Group::Retrying => "next due first",
            Group::Dead => "newest first",
            Group::All => "queue by queue, oldest queue first",
        },
        groups: Group::ALL.map(Group::word),
        query: match has.is_empty() {
            true => String::new(),
            false => {
                let mut pairs = form_urlencoded::Serializer::new(String::new());
                format!("&{}", pairs.append_pair("has", &has).finish())
            }
        },
        has,
        rows,
        first: after.is_some(),
        next: over.next.clone(),
    })
}

fn rows_of(context: &PageRequest, messages: &[(Message, Name)]) -> Vec<Row> {
    let now = context.now();
    let rows = messages.iter().map(|(message, queue)| Row {
        queue: Named::new(queue),
        line: Line::new(message, None, now),
        state: listing::word(ListState::of(message, now)),
        may: match message.came_from() {
            Some(_) => context.requester.may_to(Verb::Move, queue),
            None => context.requester.may_to(Verb::Kick, queue),
        },
    });
    rows.collect()
}
