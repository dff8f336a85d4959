//! Leases: their holders, messages and ends.

use askama::Template;
use quintet_client::{Did, Slices};
use quintet_types::{BulkOp, Lease, ListState, Message, MessageId, Ms, Name, Verb};

use super::frame::Frame;
use super::names::{self, Named};
use super::{Answer, PageRequest, Posted, listing, render, words};
use quintet_api::{Holder, Holders, Problem};

/// Rows of a page: a form that selects all of them has fewer than 200 fields (`max_fields`).
const ROWS: usize = 150;
/// Reserved messages looked through for one page at most.
const LOOKED_MAX: u64 = 20_000;
/// Of them in one step.
const SLICE: u32 = 500;
/// A lease that ends within this, ms, is near its end.
const SOON_MS: u64 = 10_000;

/// The leases that the page asks for.
struct Want {
    /// As it was typed; empty: of all queues.
    queue: String,
    /// A part of a peer, of a user or of who else holds one.
    who: String,
}

struct Row {
    /// When it ends, for the order; those without an end are last.
    until: Ms,
    id: u64,
    queue: Named,
    holder: String,
    /// Protocol and user.
    about: String,
    attempts: u32,
    /// Since it was given, or last prolonged.
    held: String,
    left: String,
    soon: bool,
    may_settle: bool,
}

#[derive(Template)]
#[template(path = "leases.html")]
struct Leases {
    frame: Frame,
    facts: Vec<(&'static str, String)>,
    queue: String,
    who: String,
    rows: Vec<Row>,
    /// How many fit, of those that were looked at.
    fit: String,
    /// There are more than were looked at.
    cut: bool,
    /// Where a button leads back to.
    back: String,
}

/// Result of a walk over all leases.
#[derive(Default)]
struct LeaseWalk {
    rows: Vec<Row>,
    examined: u64,
    fit: u64,
    soon: u64,
    longest_ms: u64,
    /// Some were not looked at.
    cut: bool,
}

impl LeaseWalk {
    fn add(&mut self, want: &Want, row: Row, held_ms: Option<u64>) {
        let has = |text: &str| text.contains(&want.who);
        if !has(&row.holder) && !has(&row.about) {
            return;
        }
        self.fit += 1;
        self.soon += u64::from(row.soon);
        self.longest_ms = self.longest_ms.max(held_ms.unwrap_or(0));
        self.rows.push(row);
        if self.rows.len() > ROWS * 4 {
            self.keep_first();
        }
    }

    fn keep_first(&mut self) {
        self.rows.sort_by_key(|row| (row.until, row.id));
        self.rows.truncate(ROWS);
        let weights = self.rows.iter().map(|row| row.queue.weight());
        let fit = names::fitting(weights, names::PAGE_BYTES);
        self.rows.truncate(fit);
    }
}

/// `/leases`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let form = context.query()?;
    let text = |name: &str| form.get(name).unwrap_or_default().trim().to_owned();
    let want = Want {
        queue: text("queue"),
        who: text("who"),
    };
    let holders = context.console.api.holders(&context.requester).await?;
    let mut found = LeaseWalk::default();
    for queue in queues(&context, &want).await? {
        if found.examined >= LOOKED_MAX {
            found.cut = true;
            break;
        }
        walk_queue(&context, &want, &queue, &holders, &mut found).await?;
    }
    found.keep_first();
    render(&shown(&context, want, found))
}

/// Those with leases whose messages the requester may see.
async fn queues(context: &PageRequest, want: &Want) -> Result<Vec<Name>, Problem> {
    if !want.queue.is_empty() {
        let name = Name::of_shown(&want.queue);
        if !name.is_possible() {
            return Err(Problem::field("queue", "a name has 1 to 65,535 bytes"));
        }
        return Ok(vec![name]);
    }
    let mut all = Vec::new();
    let mut next = Some((0, 0));
    while let Some(from) = next {
        let page = context.queues(from).await?;
        let with = page.queues.into_iter().filter(|stats| {
            stats.gauges.reserved > 0 && context.requester.may_to(Verb::Peek, &stats.name)
        });
        all.extend(with.map(|stats| stats.name));
        next = page.next;
    }
    all.sort_unstable();
    Ok(all)
}

/// Walks through the leases of a queue, slice by slice.
async fn walk_queue(
    context: &PageRequest,
    want: &Want,
    queue: &Name,
    holders: &Holders,
    found: &mut LeaseWalk,
) -> Result<(), Problem> {
    let may_settle = context.requester.may_to(Verb::Settle, queue);
    let mut slices = Slices::of(BulkOp::show(queue.clone(), ListState::Reserved, SLICE));
    while let Some(bulk_op) = slices.slice() {
        let bulk_done = match context.bulk_op(bulk_op).await {
            Ok(bulk_done) => bulk_done,
            // It was deleted since its numbers were read.
            Err(problem) if problem.status == 404 && want.queue.is_empty() => return Ok(()),
            Err(problem) => return Err(problem),
        };
        let now = context.now();
        for (message, lease) in bulk_done.messages.iter().zip(&bulk_done.leases) {
            let held_ms = held(lease, now);
            let api = &context.console.api;
            let by = (lease.client_id, lease.bound);
            let holder = api.holder(&context.requester, by, holders);
            let row = row(message, lease, queue, holder, now);
            found.add(want, Row { may_settle, ..row }, held_ms);
        }
        found.examined += bulk_done.examined;
        slices.done(&bulk_done);
        if !slices.whole && found.examined >= LOOKED_MAX {
            found.cut = true;
            break;
        }
    }
    Ok(())
}

/// How long a lease is held, ms; `None`: it does not say.
fn held(lease: &Lease, now: Ms) -> Option<u64> {
    let left = lease.until?.since(now);
    Some(lease.span_ms.saturating_sub(left))
}

fn row(message: &Message, lease: &Lease, queue: &Name, holder: Holder, now: Ms) -> Row {
    let (holder, about) = match (&holder.protocol, holder.connection) {
        (None, _) => (listing::holder(lease), String::new()),
        (Some(_), None) => (holder.text, "over HTTP".to_owned()),
        (Some(_), Some(_)) => {
            let peer = holder.peer.unwrap_or_else(|| "this machine".to_owned());
            (names::plain(peer.as_bytes()), holder.text)
        }
    };
    let left = lease.until.map(|until| until.since(now));
    Row {
        until: lease.until.unwrap_or(Ms(u64::MAX)),
        id: message.id.0,
        queue: Named::new(queue),
        holder,
        about,
        attempts: message.reserves,
        held: held(lease, now).map_or_else(|| words::NONE.to_owned(), words::duration),
        left: left.map_or_else(|| "with its holder".to_owned(), words::duration),
        soon: left.is_some_and(|left| left < SOON_MS),
        may_settle: false,
    }
}

/// `POST /leases/do/release`: the leases that were selected end.
pub(crate) async fn release(Posted(context, fields): Posted) -> Answer {
    let (app, api) = (&context.console.app, &context.console.api);
    let (mut ended, mut over, mut refused) = (0, 0, Vec::new());
    for id in fields.form.all("id") {
        let id = id
            .parse()
            .map_err(|_| Problem::field("id", "takes the id of a message, a number"))?;
        match api.release(&context.requester, MessageId(id)).await {
            Ok(()) => ended += 1,
            Err(problem) if matches!(problem.code, "not_reserved" | "not_found") => over += 1,
            Err(problem) => refused.push(format!(" {id}: {}.", problem.detail)),
        }
    }
    let mut note = match (ended, over, refused.len()) {
        (0, 0, 0) => "Nothing was selected: select rows first.".to_owned(),
        _ => format!("{} ended.", words::of(ended, "lease", "leases")),
    };
    if over > 0 {
        note += &format!(" {} ended before.", words::of(over, "had", "had"));
    }
    note.extend(refused);
    let mut response = app.back(&fields.form, "leases", note);
    response.extensions_mut().insert(Did::to(ended));
    Ok(response)
}

fn shown(context: &PageRequest, want: Want, found: LeaseWalk) -> Leases {
    let query = words::query(&[("queue", &*want.queue), ("who", &*want.who)]);
    let path = format!("{}leases", context.frame.root);
    Leases {
        frame: context.frame.of("Leases", "leases"),
        facts: vec![
            ("Leases", words::count(found.fit)),
            ("Longest held", words::duration(found.longest_ms)),
            ("End within 10 s", words::count(found.soon)),
        ],
        queue: want.queue,
        who: want.who,
        fit: words::of(found.fit, "lease", "leases"),
        rows: found.rows,
        cut: found.cut,
        back: match query.is_empty() {
            true => path,
            false => format!("{path}?{query}"),
        },
    }
}
