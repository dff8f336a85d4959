//! Batches: messages that are counted together, how far they are, and what is put
//! when all have run and when all have succeeded.

use askama::Template;
use quintet_types::{
    Batch, BatchId, BatchRequest, Callback, CallbackState, Command, Event, Ms, Outcome, Role, Tie,
};

use super::frame::Frame;
use super::names::{self, Named, Piece};
use super::overview::Figure;
use super::{Answer, PageRequest, Posted, Two, render, words};
use quintet_api::{Path, Problem, batches_after, list_batches};

/// Rows of a page, and batches asked for at once: each may have 64 KiB of callbacks.
const ROWS: u32 = 50;
/// So often a page asks.
const SLICES: usize = 40;

/// Which batches: words of the address, and of the page.
const ONLY: [(&str, &str); 4] = [
    ("", "All"),
    ("open", "Open"),
    ("committed", "Committed"),
    ("done", "Done"),
];

/// State of a batch: a word, one of [`ONLY`].
fn state(batch: &Batch) -> &'static str {
    match (batch.progress.open, batch.progress.success) {
        (true, _) => "open",
        (false, CallbackState::No) => "committed",
        (false, CallbackState::Put | CallbackState::Done) => "done",
    }
}

/// Where one of its callbacks stands.
fn stands(batch: &Batch, event: Event) -> &'static str {
    let (callback_state, callback) = match event {
        Event::Complete => (batch.progress.complete, &batch.made.complete),
        Event::Success => (batch.progress.success, &batch.made.success),
    };
    match (
        callback_state,
        callback,
        batch.progress.next() == Some(event),
    ) {
        (CallbackState::No, Some(_), true) => "waits for room in its queue",
        (CallbackState::No, ..) => "not yet",
        (CallbackState::Put, ..) => "put",
        (CallbackState::Done, Some(_), _) => "finished",
        (CallbackState::Done, None, _) => "yes",
    }
}

struct Row {
    id: String,
    description: Vec<Piece>,
    parent: Option<String>,
    state: &'static str,
    total: Figure,
    pending: Figure,
    failed: Figure,
    complete: &'static str,
    success: &'static str,
    age: String,
}

impl Row {
    fn new(batch: &Batch, now: Ms) -> Self {
        let progress = &batch.progress;
        Self {
            id: batch.id.to_string(),
            description: names::first_line(&batch.made.description),
            parent: batch.made.parent.map(|parent| parent.to_string()),
            state: state(batch),
            total: Figure::new(progress.total),
            pending: Figure::new(progress.pending),
            failed: Figure::new(progress.failed),
            complete: stands(batch, Event::Complete),
            success: stands(batch, Event::Success),
            age: words::duration(now.since(batch.created)),
        }
    }
}

#[derive(Template)]
#[template(path = "batches.html")]
struct Batches {
    frame: Frame,
    has: String,
    only: &'static str,
    filtered: bool,
    /// Words of the address, of the page, and whether it is the one.
    choices: Vec<(&'static str, &'static str, bool)>,
    rows: Vec<Row>,
    looked: String,
    /// The query of the first page, if this is another.
    first: Option<String>,
    /// The query of what comes after.
    next: Option<String>,
}

/// `/batches`.
pub(super) async fn page(context: PageRequest) -> Answer {
    let form = context.query()?;
    let has = form.get("has").unwrap_or_default().trim().to_owned();
    let supplied = form.get("only").unwrap_or_default();
    let only = ONLY.iter().position(|(word, _)| *word == supplied);
    let only = only.unwrap_or(0);
    let fits = |batch: &Batch| {
        (only == 0 || state(batch) == ONLY[only].0)
            && (has.is_empty()
                || batch.id.to_string() == has
                || String::from_utf8_lossy(&batch.made.description).contains(&has))
    };
    let after = form.get("after");
    let ask = list_batches(after, ROWS);
    let wrong = "use the value of next from the page before";
    let mut ask = ask.ok_or_else(|| Problem::field("after", wrong))?;
    let now = context.now();
    let (mut rows, mut looked) = (Vec::new(), 0);
    let mut next = None;
    for _ in 0..SLICES {
        let Outcome::Batches(found, more) = context.ask(Command::Batch(ask)).await? else {
            return Err(Problem::unexpected());
        };
        looked += found.len() as u64;
        rows.extend(
            found
                .iter()
                .filter(|batch| fits(batch))
                .map(|batch| Row::new(batch, now)),
        );
        next = more;
        let left = ROWS.saturating_sub(u32::try_from(rows.len()).unwrap_or(ROWS));
        match next {
            Some((shard, after)) if left > 0 => {
                // No more than there is room for, so that the next page begins behind it.
                ask = BatchRequest::List {
                    shard,
                    after,
                    max: left,
                };
            }
            _ => break,
        }
    }
    let query = |place: Option<&str>| {
        let after = ("after", place.unwrap_or_default());
        words::query(&[("only", ONLY[only].0), ("has", &*has), after])
    };
    render(&Batches {
        frame: context.frame.of("Batches", "batches").live(""),
        choices: ONLY
            .iter()
            .enumerate()
            .map(|(at, (word, text))| (*word, *text, at == only))
            .collect(),
        filtered: only > 0 || !has.is_empty(),
        rows,
        looked: words::count(looked),
        first: after.is_some().then(|| query(None)),
        next: next.map(|next| query(Some(&batches_after(next)))),
        only: ONLY[only].0,
        has,
    })
}

/// The message for an event of a batch.
struct Call {
    /// The event.
    when: &'static str,
    queue: Named,
    about: String,
    stands: &'static str,
}

impl Call {
    fn new(batch: &Batch, event: Event, callback: &Callback) -> Self {
        let mut about = words::bytes(callback.body.len() as u64);
        if let Some(name) = &callback.name {
            about += &format!(", named {}", names::plain(name));
        }
        Self {
            when: match event {
                Event::Complete => "When all have run",
                Event::Success => "When all have succeeded",
            },
            queue: Named::new(&callback.queue),
            about,
            stands: stands(batch, event),
        }
    }
}

#[derive(Template)]
#[template(path = "batch.html")]
struct BatchPage {
    frame: Frame,
    id: String,
    description: Vec<Piece>,
    state: &'static str,
    open: bool,
    /// It may be opened again.
    reopens: bool,
    figures: Vec<(&'static str, String)>,
    /// Succeeded, of all there ever were.
    done: u64,
    total: u64,
    parent: Option<String>,
    children: Option<String>,
    age: String,
    made: String,
    gone_in: String,
    gone: String,
    calls: Vec<Call>,
}

fn id_of(part: &str) -> Result<BatchId, Problem> {
    BatchId::parse(part).ok_or_else(Problem::no_such_page)
}

/// `/batches/ID`.
pub(super) async fn show(context: PageRequest, Path(part): Path<String>) -> Answer {
    let batch = context.batch(BatchRequest::Show(id_of(&part)?)).await?;
    let client_api = context.client_api();
    let now = client_api.now();
    // What is stored is engine time; people read the wall clock.
    let ahead = client_api.ahead();
    let wall = |at: Ms| words::moment(ahead.wall_at(at).0);
    let progress = &batch.progress;
    let children = match (progress.children_running, progress.children_pending) {
        (_, 0) => None,
        (running, pending) => Some(format!(
            "{} not succeeded, {} not run yet",
            words::of(pending, "has", "have"),
            words::of(running, "has", "have")
        )),
    };
    let made = &batch.made;
    let calls = [
        (Event::Complete, &made.complete),
        (Event::Success, &made.success),
    ];
    let calls = calls.into_iter().filter_map(|(event, callback)| {
        let callback = callback.as_ref()?;
        Some(Call::new(&batch, event, callback))
    });
    let id = batch.id.to_string();
    let done = progress.total.saturating_sub(progress.pending);
    let cancelled = format!("count as {}", made.cancelled.word());
    let stood = |event| stands(&batch, event).to_owned();
    let (run, succeeded) = (stood(Event::Complete), stood(Event::Success));
    render(&BatchPage {
        frame: context.frame.of(format!("Batch {id}"), "batches").live(""),
        description: names::first_line(&made.description),
        state: state(&batch),
        open: progress.open,
        reopens: !progress.open && progress.success == CallbackState::No,
        figures: vec![
            ("Messages", words::count(progress.total)),
            ("Pending", words::count(progress.pending)),
            ("Failed", words::count(progress.failed)),
            ("Cancelled messages", cancelled),
            ("Succeeded", words::count(done)),
            ("All have run", run),
            ("All have succeeded", succeeded),
        ],
        done,
        total: progress.total,
        parent: made.parent.map(|parent| parent.to_string()),
        children,
        age: words::duration(now.since(batch.created)),
        made: wall(batch.created),
        gone_in: words::duration(progress.until.since(now)),
        gone: wall(progress.until),
        calls: calls.collect(),
        id,
    })
}

#[derive(Template)]
#[template(path = "batch_ask.html")]
struct Forget {
    frame: Frame,
    id: String,
    description: Vec<Piece>,
    rows: Vec<(&'static str, String)>,
    button: String,
}

/// `/batches/ID/ask/forget`.
pub(super) async fn question(context: PageRequest, Path((part, act)): Two) -> Answer {
    if act != "forget" {
        return Err(Problem::no_such_page());
    }
    let batch = context.batch(BatchRequest::Show(id_of(&part)?)).await?;
    let progress = &batch.progress;
    let waits = [
        (Event::Complete, progress.complete, &batch.made.complete),
        (Event::Success, progress.success, &batch.made.success),
    ];
    let mut rows: Vec<(&'static str, String)> = waits
        .into_iter()
        .filter(|(_, callback_state, callback)| {
            *callback_state == CallbackState::No && callback.is_some()
        })
        .map(|(event, ..)| match event {
            Event::Complete => ("When all have run", "nothing is put".to_owned()),
            Event::Success => ("When all have succeeded", "nothing is put".to_owned()),
        })
        .collect();
    if let Some(parent) = batch
        .made
        .parent
        .filter(|_| progress.success == CallbackState::No)
    {
        rows.push(("Parent", format!("{parent} never succeeds")));
    }
    let pending = words::of(progress.pending, "message", "messages");
    rows.push(("Pending", format!("{pending}: kept as ordinary messages")));
    let id = batch.id.to_string();
    render(&Forget {
        frame: context.frame.of(format!("Forget batch {id}"), "batches"),
        description: names::first_line(&batch.made.description),
        rows,
        button: format!(
            "Forget the batch of {}",
            words::of(progress.total, "message", "messages")
        ),
        id,
    })
}

/// `POST /batches/ID/do/ACT`.
pub(super) async fn steer(Path((part, act)): Two, Posted(context, _): Posted) -> Answer {
    let id = id_of(&part)?;
    let (ask, note) = match act.as_str() {
        "commit" => (
            BatchRequest::Commit(id),
            "Committed: no more messages can be added. Callbacks are put when their time comes.",
        ),
        "open" => (
            BatchRequest::Open(id),
            "Open: messages can be added. No callback is put until the batch is committed.",
        ),
        "forget" => {
            context.batch(BatchRequest::Forget(id)).await?;
            let note = "is forgotten. Its messages stay as ordinary messages.";
            return context.redirect("batches", format!("Batch {part} {note}"));
        }
        _ => return Err(Problem::no_such_page()),
    };
    context.batch(ask).await?;
    context.redirect(&format!("batches/{part}"), note)
}

/// Role of a message in its batch.
pub(super) struct Member {
    pub(super) id: String,
    pub(super) role: &'static str,
    /// It is there and may be seen.
    pub(super) there: bool,
}

/// The batch of a message.
pub(crate) async fn of(context: &PageRequest, tie: Tie) -> Member {
    let seen = context.batch(BatchRequest::Show(tie.batch)).await;
    Member {
        id: tie.batch.to_string(),
        role: match tie.role {
            Role::Member => "the message has not run yet",
            Role::Failed => "the message has run and failed",
            Role::Complete => "callback: all have run",
            Role::Success => "callback: all have succeeded",
        },
        there: seen.is_ok(),
    }
}
