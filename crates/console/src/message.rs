//! A message: its body, and all that is known of it.

use askama::Template;
use quintet_client::Share;
use quintet_client::trace::TRACEPARENT;
use quintet_types::{Lease, ListState, Message, Ms, Name, Verb};

use super::after::{self, Neighbours};
use super::batches::{self, Member};
use super::body::{self, Node, SHOWN, WHOLE};
use super::frame::Frame;
use super::names::{self, Named, Piece};
use super::queue::May;
use super::run::{self, Log};
use super::{Answer, PageRequest, assets, listing, render, words};
use quintet_api::{Holder, PastAttempt, Path, Problem, blocking, since};

/// A fact: its word, what it is, and what is said below.
struct Fact {
    word: &'static str,
    text: String,
    below: String,
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    id: u64,
    queue: Named,
    state: &'static str,
    may: May,
    can_retry: bool,
    reserved: bool,
    status: Vec<Piece>,
    size: String,
    empty: bool,
    /// Longer than is shown.
    cut: bool,
    /// Shown in parts as yet: it could be shown whole.
    more: bool,
    binary: bool,
    text: Vec<Piece>,
    json: Option<String>,
    tree: Option<Vec<Node>>,
    hex: String,
    facts: Vec<Fact>,
    /// Names and values.
    attributes: Vec<(Vec<Piece>, Vec<Piece>)>,
    /// Where its trace is shown; empty: nobody said where traces are, or it has none.
    trace: String,
    /// Its events, oldest first: when, and what.
    past: Vec<(String, Vec<Piece>)>,
    /// It was tried before, of which not all is known.
    earlier: bool,
    /// Names and sizes.
    files: Vec<(Vec<Piece>, String)>,
    from: Option<Named>,
    batch: Option<Member>,
    neighbours: Neighbours,
    log: Option<Log>,
    log_script: &'static str,
}

/// The first bytes of a body, and the memory that the page takes for them: as they are, as text and
/// as a tree.
async fn head(
    context: &PageRequest,
    message: &Message,
    most: usize,
) -> Result<(Vec<u8>, Option<Share>), Problem> {
    let (client_api, body) = (context.client_api(), message.body.clone());
    let len = usize::try_from(body.len()).unwrap_or(usize::MAX).min(most);
    let room = context.console.api.room(8 * len as u64)?;
    let head = blocking(move || {
        let mut head = vec![0; len];
        let read = client_api.read(&body, 0, &mut head)?;
        head.truncate(read);
        Ok::<_, std::io::Error>(head)
    });
    match head.await? {
        Ok(head) => Ok((head, room)),
        Err(error) => Err(Problem::internal(error.to_string())),
    }
}

/// `/messages/ID`.
pub(super) async fn page(context: PageRequest, Path(id): Path<String>) -> Answer {
    let (message, queue) = context.message(&id).await?;
    let client_api = context.client_api();
    let now = client_api.now();
    let whole = context.query()?.says("whole");
    let most = if whole { WHOLE } else { SHOWN };
    let (head, _room) = head(&context, &message, most).await?;
    let state = ListState::of(&message, now);
    let log = run::log(&context, &message, &queue, state).await?;
    let api = &context.console.api;
    let (requester, mut connections) = (&context.requester, None);
    let held = api.held_by(requester, &message, &queue, &mut connections);
    let held = held.await;
    let tried = api.past_attempts(requester, message.born(), &mut connections);
    let tried = tried.await;
    let over = u64::from(message.reserves).saturating_sub(u64::from(held.is_some()));
    let name = Named::new(&queue);
    let extra = message.extra.as_deref();
    let attributes = extra.map_or(&[][..], |extra| &extra.attrs).iter();
    let files = extra.map_or(&[][..], |extra| &extra.attachments).iter();
    let cut = message.body.len() > most as u64;
    let tree = body::tree(&head).filter(|_| !cut);
    let trace = message.attr(TRACEPARENT.as_bytes());
    let trace = trace.and_then(|parent| trace_link(&client_api.trace_url(), parent));
    let title = format!("{} of {}", message.id.0, name.plain);
    render(&MessagePage {
        frame: context.frame.of(title, "queues"),
        id: message.id.0,
        state: listing::word(state),
        may: May(context.requester.clone(), queue.clone()),
        can_retry: matches!(state, ListState::Buried | ListState::Delayed),
        reserved: state == ListState::Reserved,
        status: names::first_line(message.error()),
        size: words::bytes(message.body.len()),
        empty: message.body.is_empty(),
        cut,
        more: cut && !whole,
        binary: body::is_binary(&head, cut),
        json: match tree {
            None => body::json(&head).filter(|_| !cut),
            Some(_) => None,
        },
        tree,
        trace: trace.unwrap_or_default(),
        earlier: over > tried.len() as u64 || tried.iter().any(|(_, one)| one.by.is_none()),
        past: past(&context, &message, state, held, (over, tried.as_slice())),
        text: body::text(&head),
        hex: body::hex(&head),
        facts: facts(&context, &message, now),
        attributes: attributes
            .map(|(name, value)| (names::pieces(name), names::pieces(value)))
            .collect(),
        files: files
            .map(|file| (names::pieces(&file.name), words::bytes(file.len)))
            .collect(),
        from: message.came_from().as_ref().map(Named::new),
        batch: match message.tie() {
            Some(tie) => Some(batches::of(&context, tie).await),
            None => None,
        },
        neighbours: after::of(&context, &message).await,
        log,
        log_script: &assets::LOG_SCRIPT.name,
        queue: name,
    })
}

/// Where the trace of a `traceparent` is shown, if that is one and there is such a place.
fn trace_link(template: &str, parent: &[u8]) -> Option<String> {
    let parent = std::str::from_utf8(parent).ok()?;
    let parts: Vec<&str> = parent.split('-').collect();
    let hex = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let [_, trace, span, _] = parts[..] else {
        return None;
    };
    (!template.is_empty() && hex(trace, 32) && hex(span, 16)).then(|| {
        let link = template.replace("{trace_id}", trace);
        link.replace("{span_id}", span)
    })
}

/// The known events of a message, oldest first.
fn past(
    context: &PageRequest,
    message: &Message,
    state: ListState,
    held: Option<(Holder, Lease)>,
    (over, tried): (u64, &[(Ms, PastAttempt)]),
) -> Vec<(String, Vec<Piece>)> {
    let client_api = context.client_api();
    let ahead = client_api.ahead();
    let mut all = vec![(message.created, "put".as_bytes().to_vec())];
    let mut then = |at: Ms, says: &str, why: &[u8]| {
        // Names in it are in their notation already.
        let mut text = Name::of_shown(says).as_bytes().to_vec();
        if !why.is_empty() {
            text.extend_from_slice(b": ");
            text.extend_from_slice(why.split(|byte| *byte == b'\n').next().unwrap_or_default());
        }
        all.push((at, text));
    };
    let tries = |count: u64| words::of(count, "attempt", "attempts");
    for (at, attempt) in tried {
        // After a restart its time is that of a part of the log.
        then(message.created.max(*at), &attempt.text, b"");
    }
    let (at, error) = (since(message), message.error());
    if let Some(from) = message.came_from() {
        let before = message.attr(b"dead_letter_attempts").map(names::plain);
        let before = before.and_then(|text| text.parse().ok()).unwrap_or(0);
        let from = names::plain(from.as_bytes());
        let says = format!("became a dead letter of {from} after {}", tries(before));
        then(at, &says, error);
    }
    let (says, why) = match state {
        ListState::Buried => ("buried", error),
        ListState::Archived => ("done", error),
        ListState::Ready | ListState::Delayed | ListState::Reserved | ListState::Prepared => {
            match message.failures() > 0 {
                true => ("last failure", error),
                false => ("last change", &b""[..]),
            }
        }
    };
    // The attempt that goes on is none of those that failed.
    if over > 0 || says == "buried" {
        let at = tried.last().map_or(at, |(last, _)| at.max(*last));
        then(at, &format!("{says}, after {}", tries(over)), why);
    }
    if let Some((holder, lease)) = held {
        let says = format!("attempt {} by {}", message.reserves, holder.text);
        // A lease without an end does not say when it began.
        then(lease.since.max(message.created), &says, b"");
        if let Some(until) = lease.until {
            then(until, "its lease ends", b"");
        }
    }
    if let Some(due) = message.due().filter(|due| *due > client_api.now()) {
        then(due, "due", b"");
    }
    all.sort_by_key(|(at, _)| *at);
    let shown = all.into_iter().map(|(at, text)| {
        let moment = words::moment(ahead.wall_at(at).0);
        (moment, names::pieces(&text))
    });
    shown.collect()
}

fn facts(context: &PageRequest, message: &Message, now: Ms) -> Vec<Fact> {
    let ahead = context.client_api();
    let wall = move |at: Ms| {
        // What is stored is engine time; people read the wall clock.
        let ahead = ahead.ahead();
        words::moment(ahead.wall_at(at).0)
    };
    let extra = message.extra.as_deref();
    let fact = |word, text, below| Fact { word, text, below };
    let plain = |word, text| fact(word, text, String::new());
    let (age, put) = (now.since(message.created), wall(message.created));
    let mut all = vec![fact("Age", words::duration(age), format!("put {put}"))];
    if let Some(due) = message.due().filter(|due| *due > now) {
        all.push(fact("Due in", words::duration(due.since(now)), wall(due)));
    }
    all.push(plain("Attempts", words::count(u64::from(message.reserves))));
    if let Some(extra) = extra {
        for (word, number) in [
            ("Expired leases", extra.timeouts),
            ("Released", extra.releases),
            ("Buried", extra.buries),
            ("Kicked", extra.kicks),
        ] {
            if number > 0 {
                all.push(plain(word, words::count(u64::from(number))));
            }
        }
    }
    all.push(plain("Priority", message.priority.to_string()));
    if let Some(key) = message.key() {
        all.push(plain("Message group", names::plain(key)));
    }
    all.push(plain(
        "Time to run",
        match message.ttr_ms {
            None => "queue default".to_owned(),
            Some(0) => "no limit".to_owned(),
            Some(ms) => words::duration(ms),
        },
    ));
    all.push(match message.expires() {
        None => plain("Expires", "never".to_owned()),
        Some(at) => fact("Expires in", words::duration(at.since(now)), wall(at)),
    });
    all
}
