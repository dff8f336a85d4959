//! Messages of one state, a page at a time.

use quintet_client::Slices;
use quintet_types::{Bound, BulkOp, Filter, Lease, ListState, Message, Ms, Name, State};

use super::names::{self, Named, Piece};
use super::{PageRequest, words};
use quintet_api::{Problem, cursor, cursor_text, since};
use quintet_http::Form;

/// Messages of a page.
pub(super) const ROWS: u32 = 50;
/// Slices looked through for one page at most; each bears looking at in one step.
const SLICES: u32 = 16;

/// Kinds of errors on a page.
const KINDS: usize = 50;

/// A state: its word in addresses and on pages.
pub(super) const STATES: [(ListState, &str); 6] = [
    (ListState::Ready, "ready"),
    (ListState::Delayed, "delayed"),
    (ListState::Reserved, "reserved"),
    (ListState::Buried, "buried"),
    (ListState::Prepared, "prepared"),
    (ListState::Archived, "done"),
];

/// Which messages of a queue: the fields of forms and addresses.
#[derive(Clone, Debug)]
pub(super) struct Which {
    pub(super) state: ListState,
    /// The body contains this, with bytes as `\xNN`.
    pub(super) has: String,
    pub(super) key: String,
    /// Put so long ago, or earlier, as it was typed.
    pub(super) older: String,
    /// The error is of this kind, with bytes as `\xNN`.
    pub(super) error: String,
    older_ms: u64,
}

impl Which {
    /// # Errors
    /// A field is not what it should be.
    pub(crate) fn of(form: &Form) -> Result<Self, Problem> {
        let text = |name: &str| form.get(name).unwrap_or_default().to_owned();
        let older = text("older");
        let older_ms = match older.is_empty() {
            true => Ok(0),
            false => words::typed_duration(&older),
        };
        Ok(Self {
            state: state(form.get("state").unwrap_or("ready"))?,
            has: text("has"),
            key: text("key"),
            error: text("error"),
            older,
            older_ms: older_ms.map_err(|why| Problem::field("older", why))?,
        })
    }

    pub(super) fn filter(&self) -> Filter {
        let bytes = |text: &str| {
            let name = Name::of_shown(text);
            (!text.is_empty()).then(|| name.as_bytes().into())
        };
        Filter {
            body: bytes(&self.has),
            key: bytes(&self.key),
            error: bytes(&self.error),
            older_ms: self.older_ms,
            ..Filter::default()
        }
    }

    pub(super) fn is_filtered(&self) -> bool {
        !self.has.is_empty() || !self.key.is_empty() || !self.error.is_empty() || self.older_ms > 0
    }

    /// The filter, as a sentence: `Only messages whose body contains “503”.`
    pub(super) fn in_words(&self) -> String {
        let mut all = Vec::new();
        if !self.has.is_empty() {
            all.push(format!("whose body contains “{}”", self.has));
        }
        if !self.key.is_empty() {
            all.push(format!("of the message group “{}”", self.key));
        }
        if !self.error.is_empty() {
            all.push(format!("that failed with “{}”", self.error));
        }
        if self.older_ms > 0 {
            all.push(format!(
                "put {} ago or earlier",
                words::duration(self.older_ms)
            ));
        }
        match all.is_empty() {
            true => String::new(),
            false => format!("Only messages {}.", all.join(", ")),
        }
    }

    /// The query of an address that asks for these.
    pub(crate) fn query(&self, after: Option<&str>) -> String {
        words::query(&[
            ("state", word(self.state)),
            ("has", &*self.has),
            ("key", &*self.key),
            ("error", &*self.error),
            ("older", &*self.older),
            ("after", after.unwrap_or_default()),
        ])
    }
}

/// A state by its word.
///
/// # Errors
/// There is none.
pub(super) fn state(word: &str) -> Result<ListState, Problem> {
    let state = STATES.iter().find(|(_, known)| *known == word);
    let state = state.ok_or_else(|| {
        Problem::field(
            "state",
            "takes ready, delayed, reserved, buried, prepared or done",
        )
    })?;
    Ok(state.0)
}

pub(crate) fn word(state: ListState) -> &'static str {
    let found = STATES.iter().find(|(known, _)| *known == state);
    found.map_or("", |(_, word)| word)
}

/// A message's line.
pub(super) struct Line {
    pub(super) id: u64,
    pub(super) body: Vec<Piece>,
    /// In place of the body.
    pub(super) instead: &'static str,
    /// The last report about it.
    pub(super) status: Vec<Piece>,
    pub(super) key: Vec<Piece>,
    pub(super) from: Option<Named>,
    /// Of a dead letter and of a buried one: since when it is that.
    pub(super) since: String,
    pub(super) attempts: String,
    pub(super) age: String,
    /// Of a delayed one: until it is due; of a reserved one: until its lease ends.
    pub(super) left: String,
    pub(super) holder: String,
    pub(super) size: String,
}

impl Line {
    pub(super) fn new(message: &Message, lease: Option<&Lease>, now: Ms) -> Self {
        let body = message.body.as_small();
        let from = message.came_from();
        let tried = message.attr(b"dead_letter_attempts");
        let tried = tried.filter(|_| from.is_some());
        let left = match lease {
            Some(lease) => lease.until,
            None => message.due().filter(|due| *due > now),
        };
        let left = left.map(|at| words::duration(at.since(now)));
        Self {
            id: message.id.0,
            body: body.map(names::first_line).unwrap_or_default(),
            instead: match body {
                Some([]) => "empty body",
                Some(_) => "",
                None => "long body",
            },
            status: names::first_line(message.error()),
            key: message
                .key()
                .map(|key| names::first_line(key))
                .unwrap_or_default(),
            since: match from.is_some() || message.state == State::Buried {
                true => words::duration(now.since(since(message))),
                false => String::new(),
            },
            attempts: tried.map_or_else(|| message.reserves.to_string(), names::plain),
            from: from.as_ref().map(Named::new),
            age: words::duration(now.since(message.created)),
            left: left.unwrap_or_else(|| words::NONE.to_owned()),
            holder: lease.map(holder).unwrap_or_default(),
            size: words::bytes(message.body.len()),
        }
    }

    /// About so many bytes of a page: what may be long.
    pub(super) fn weight(&self) -> usize {
        let from = self.from.as_ref().map_or(0, Named::weight);
        names::html_len(&self.body) + names::html_len(&self.status) + from
    }
}

/// The holder of a lease in words: a connection, a script, or a time.
pub(crate) fn holder(lease: &Lease) -> String {
    match (lease.bound, lease.client_id.0) {
        (_, 0) => "no client: the lease is from before a restart".to_owned(),
        (Bound::Connection, client_id) => format!("connection {client_id}"),
        (Bound::Process, _) => "a script".to_owned(),
        (Bound::Time, client_id) => format!("{client_id}, until the lease ends"),
    }
}

/// A page of messages.
#[derive(Default)]
pub(super) struct Page {
    pub(super) lines: Vec<Line>,
    /// Messages that were looked at.
    pub(super) examined: u64,
    /// Start of the next page; `None`: that was all.
    pub(super) next: Option<String>,
}

/// Lists those that fit.
pub(super) async fn list(
    context: &PageRequest,
    queue: &Name,
    which: &Which,
    after: Option<&str>,
) -> Result<Page, Problem> {
    let page = first(context, queue, which, after, ROWS).await?;
    let fit = names::fitting(page.lines.iter().map(Line::weight), names::PAGE_BYTES);
    if fit == page.lines.len() {
        return Ok(page);
    }
    let rows = u32::try_from(fit).unwrap_or(ROWS);
    first(context, queue, which, after, rows).await
}

/// The first of them, so many at most.
async fn first(
    context: &PageRequest,
    queue: &Name,
    which: &Which,
    after: Option<&str>,
    rows: u32,
) -> Result<Page, Problem> {
    let bulk_op = BulkOp {
        filter: which.filter(),
        after: after.map(cursor).transpose()?,
        ..BulkOp::show(queue.clone(), which.state, rows)
    };
    let mut slices = Slices::of(bulk_op).at_most(rows.into(), SLICES);
    let mut page = Page::default();
    while let Some(bulk_op) = slices.slice() {
        let bulk_done = context.bulk_op(bulk_op).await?;
        let now = context.now();
        let leases = bulk_done
            .leases
            .iter()
            .map(Some)
            .chain(std::iter::repeat(None));
        let lines = bulk_done.messages.iter().zip(leases);
        page.lines
            .extend(lines.map(|(message, lease)| Line::new(message, lease, now)));
        page.examined += bulk_done.examined;
        slices.done(&bulk_done);
    }
    page.next = slices.bulk_op.after.map(cursor_text);
    Ok(page)
}

/// Messages of a page that failed in the same way.
pub(super) struct Kind {
    pub(super) error: Vec<Piece>,
    pub(super) count: String,
    pub(super) newest: u64,
    pub(super) since: String,
    pub(super) from: Option<Named>,
    /// The query of those alone; empty: nobody said why, so that there is none.
    pub(super) query: String,
}

/// Counts those that fit by their errors, and says of how many.
pub(super) async fn kinds(
    context: &PageRequest,
    queue: &Name,
    which: &Which,
) -> Result<(Vec<Kind>, String), Problem> {
    let bulk_op = BulkOp {
        filter: which.filter(),
        ..BulkOp::show(queue.clone(), which.state, 0)
    };
    let api = &context.console.api;
    let (kinds, examined, next) = api.errors(&context.requester, bulk_op).await?;
    let now = api.client_api().now();
    let kinds = kinds.into_iter().take(KINDS).map(|kind| {
        let only = Which {
            error: names::plain(&kind.kind),
            ..which.clone()
        };
        Kind {
            error: names::pieces(&kind.kind),
            count: words::count(kind.count),
            newest: kind.newest.0,
            since: words::duration(now.since(kind.at)),
            from: kind.from.as_ref().map(Named::new),
            query: match kind.kind.is_empty() {
                true => String::new(),
                false => only.query(None),
            },
        }
    });
    let mut kinds: Vec<Kind> = kinds.collect();
    let weights = kinds.iter().map(|kind| {
        let from = kind.from.as_ref().map_or(0, Named::weight);
        names::html_len(&kind.error) + kind.query.len() + from
    });
    let fit = names::fitting(weights, names::PAGE_BYTES);
    kinds.truncate(fit);
    let of = match next {
        None => format!("all {}", words::count(examined)),
        Some(_) => format!("the first {}", words::count(examined)),
    };
    Ok((kinds, of))
}
