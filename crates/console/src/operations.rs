//! Operations: on a queue, on a message, and long ones, which go on in the server when
//! their page is left.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use askama::Template;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_client::{ACT_REST, ACT_STEP, Did, Slices};
use quintet_types::{
    BulkAction, BulkOp, By, Cancel, Command, CommandError, Filter, HOLD_MAX_MS, How, ListState,
    MessageId, Ms, Name, Operation, Outcome, QueueStats, When,
};

use super::ask::{self, BulkOperation, Question};
use super::frame::Frame;
use super::names::{self, Named};
use super::queue::number;
use super::{Answer, PageRequest, Posted, Two, queue_of, render, words};
use quintet_api::{DURATION_MAX_MS, Path, Problem};
use quintet_http::{DoneWith, Form, Requester, locked, reply};

/// All but what is reserved.
pub(super) const STATES: [ListState; 5] = [
    ListState::Ready,
    ListState::Delayed,
    ListState::Buried,
    ListState::Prepared,
    ListState::Archived,
];

/// How many messages a queue has, apart from those under a lease.
pub(super) fn waiting(stats: &QueueStats) -> u64 {
    let states = STATES.iter();
    states.map(|state| number(&stats.gauges, *state)).sum()
}

/// Long operations that are remembered.
const JOBS_MAX: usize = 256;
/// An operation that is over by then is shown on the page it came from.
const SHORT: Duration = Duration::from_millis(500);

/// Operations on many messages.
#[derive(Default)]
pub(super) struct Jobs {
    count: AtomicU64,
    all: Mutex<VecDeque<Arc<Job>>>,
}

pub(super) struct Job {
    number: u64,
    requester: Requester,
    operation: BulkOperation,
    queue: Name,
    /// Engine time.
    began: Ms,
    counted: u64,
    done: AtomicU64,
    passed: AtomicU64,
    stop: AtomicBool,
    /// Set at its end; with why, if it could not go on.
    end: OnceLock<Option<String>>,
}

impl Jobs {
    fn begin(&self, context: &PageRequest, question: &Question) -> Arc<Job> {
        let job = Arc::new(Job {
            number: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            requester: context.requester.clone(),
            operation: question.operation,
            queue: question.queue.clone(),
            began: context.now(),
            counted: question.counted,
            done: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            end: OnceLock::new(),
        });
        let mut all = locked(&self.all);
        if all.len() >= JOBS_MAX {
            all.pop_front();
        }
        all.push_back(Arc::clone(&job));
        job
    }

    /// The operation of this number, for the user that began it.
    fn get(&self, number: &str, context: &PageRequest) -> Result<Arc<Job>, Problem> {
        let number: u64 = number.parse().map_err(|_| Problem::no_such_page())?;
        let mut mine = self.of(context).into_iter();
        let job = mine.find(|job| job.number == number);
        job.ok_or_else(Problem::no_such_page)
    }

    /// The user's operations, newest first.
    fn of(&self, context: &PageRequest) -> Vec<Arc<Job>> {
        let who = context.requester.principal();
        let all = locked(&self.all);
        let mine = all.iter().rev();
        let mine = mine.filter(|job| job.requester.principal() == who);
        mine.cloned().collect()
    }
}

impl Job {
    /// Writes down its end, where the line of the request cannot name it.
    fn record(&self, context: &PageRequest, status: u16) {
        let (number, word) = (self.number, self.operation.word());
        let act = format!("act {number}: {word} {}", self.queue);
        let did = Did::to(self.done.load(Ordering::Relaxed));
        context.note((self.operation.operation(false), &act), (status, did));
    }

    /// Summary of the result so far.
    fn note(&self) -> String {
        let done = self.done.load(Ordering::Relaxed);
        let mut note = match (self.operation, self.queue.to_string()) {
            (BulkOperation::Drop, name) => format!("The queue {name} is deleted."),
            (operation, _) => format!(
                "{} {}.",
                words::of(done, "message", "messages"),
                operation.done()
            ),
        };
        let passed = self.passed.load(Ordering::Relaxed);
        if passed > 0 {
            note += &format!(
                " {} skipped: moved or changed meanwhile.",
                words::count(passed)
            );
        }
        match self.end.get() {
            Some(Some(why)) => format!("{note} It could not continue: {why}."),
            Some(None) if self.stop.load(Ordering::Relaxed) => format!("{note} Stopped."),
            _ => note,
        }
    }
}

/// `POST /queues/NAME/do/ACT`. The response has the operation, for the audit.
pub(super) async fn on_queue(
    context: PageRequest,
    Path((part, word)): Path<(String, String)>,
    request: Request,
) -> Response {
    let done = do_on_queue(context, &part, &word, request).await;
    let mut response = done.into_response();
    let operation = match word.as_str() {
        "pause" => Operation::Pause,
        "resume" => Operation::Resume,
        "hold" | "unhold" => Operation::HoldKey,
        _ => return response,
    };
    response.extensions_mut().insert(operation);
    response
}

async fn do_on_queue(
    context: PageRequest,
    part: &str,
    operation: &str,
    request: Request,
) -> Answer {
    let queue = queue_of(part)?;
    let fields = context.form(request).await?;
    let app = &context.console.app;
    let back = format!("queues/{part}");
    let for_ms = match operation {
        "pause" => {
            let typed = fields.form.get("for").unwrap_or_default();
            match typed.is_empty() {
                true => None,
                false => Some(time(
                    typed,
                    DURATION_MAX_MS,
                    "Write 10s, 5m or 2h, up to 3660d.",
                )?),
            }
        }
        "resume" => Some(0),
        "hold" | "unhold" => {
            let note = hold_key(&context, &queue, &fields.form, operation == "hold").await?;
            return Ok(app.back(&fields.form, &back, note));
        }
        _ => return answered(&context, &queue, operation, &fields.form).await,
    };
    let pause = Command::Pause {
        queue: queue.clone(),
        for_ms,
    };
    context.ask(pause).await?;
    let mut still = false;
    if for_ms == Some(0) {
        let setup = context.setup(&queue).await?;
        still = setup.settings.paused;
        if setup.own.paused == Some(true) {
            let clear = [("paused".to_owned(), None)];
            let api = &context.console.api;
            let setup = api.change(&context.requester, &queue, &clear, None).await?;
            still = setup.settings.paused;
        }
    }
    let note = match for_ms {
        Some(0) if still => "The queue stays paused: its setting paused is true.".to_owned(),
        Some(0) => "Resumed: consumers get messages again.".to_owned(),
        Some(ms) => format!(
            "Paused for {}: consumers wait, puts continue.",
            words::duration(ms)
        ),
        None => "Paused until it is resumed: consumers wait, puts continue.".to_owned(),
    };
    Ok(app.back(&fields.form, &back, note))
}

/// The time of a form, in ms.
///
/// # Errors
/// It is none, or longer than that: `why` tells what to write.
fn time(typed: &str, most: u64, why: &str) -> Result<u64, Problem> {
    let time = words::typed_duration(typed).ok();
    let time = time.filter(|ms| (1..=most).contains(ms));
    time.ok_or_else(|| Problem::field("Time", why))
}

/// Holds the key of a form, or ends its hold.
async fn hold_key(
    context: &PageRequest,
    queue: &Name,
    form: &Form,
    holds: bool,
) -> Result<String, Problem> {
    let key = form.get("key").unwrap_or_default();
    // A key that is held may have bytes that a browser would send differently.
    let key = match holds {
        true => key.as_bytes().to_vec(),
        false => BASE64_STANDARD.decode(key).unwrap_or_default(),
    };
    if key.is_empty() {
        let why = "Write the key of one.";
        return Err(Problem::field("Message group", why));
    }
    let for_ms = match holds {
        false => 0,
        true => {
            let typed = form.get("for").unwrap_or_default();
            time(
                typed,
                HOLD_MAX_MS,
                "Write a duration up to 7d, such as 30s.",
            )?
        }
    };
    let hold = Command::Hold {
        queue: queue.clone(),
        key: Some(key.as_slice().into()),
        for_ms,
    };
    context.ask(hold).await?;
    let seen = names::seen(&String::from_utf8_lossy(&key));
    if for_ms == 0 {
        return Ok(format!("The message group {seen} is no longer held."));
    }
    // A longer hold stays. The clock may count one more millisecond.
    let api = &context.console.api;
    let held = api.held_keys(&context.requester, queue).await;
    let held = held.unwrap_or_default();
    let held = held.iter().find(|held| *held.key == *key);
    let left = held.map(|held| held.until.since(api.client_api().now()));
    let left = left.filter(|ms| *ms > for_ms + 1).unwrap_or(for_ms);
    let time = words::duration(left);
    Ok(format!("The message group {seen} is held for {time}."))
}

/// Does what was asked, if the answer is to that question.
async fn answered(context: &PageRequest, queue: &Name, operation: &str, form: &Form) -> Answer {
    let console = &context.console;
    let part = names::in_address(queue);
    let token = form.get("token").unwrap_or_default();
    let now = console.api.client_api().now();
    let question = console
        .questions
        .take(token, context.requester.principal(), now);
    let Some(question) = question.filter(|question| question.queue == *queue) else {
        let note = "Nothing was done: the page was used already or is older than 10 minutes. \
                    Confirm again.";
        return context.redirect(&format!("queues/{part}/ask/{operation}"), note);
    };
    if question.typed && form.get("name") != Some(queue.to_string().as_str()) {
        let note = "Nothing was done: the typed name does not match. Type it as shown.";
        return context.redirect(&format!("queues/{part}/ask/{operation}"), note);
    }
    let moves = question.operation == BulkOperation::Move;
    let to = moves.then(|| target(form, queue)).transpose()?;
    if question.ids.is_empty() && question.operation != BulkOperation::Drop {
        let mut counted = 0;
        for state in &question.states {
            counted += ask::count(context, &question, *state).await?.0;
        }
        if counted > question.counted + question.counted / 10 {
            let note = "Nothing was done: the number of messages has risen by more than a \
                        tenth. Confirm again.";
            return context.redirect(&format!("queues/{part}/ask/{operation}"), note);
        }
    }
    let job = console.jobs.begin(context, &question);
    let asked = question.operation.operation(!question.ids.is_empty());
    let mut working = tokio::spawn(work(copy(context), Arc::clone(&job), question, to));
    let over = tokio::time::timeout(SHORT, &mut working).await.is_ok();
    let back = match (over, job.operation) {
        (false, _) => {
            // The request is written down before its number is known.
            let (context, theirs) = (copy(context), Arc::clone(&job));
            tokio::spawn(async move {
                if let Ok(status) = working.await {
                    theirs.record(&context, status);
                }
            });
            return Ok(reply::redirect(
                &console.app.link(&format!("operations/{}", job.number)),
            ));
        }
        (true, BulkOperation::Drop) => String::new(),
        (true, _) => format!("queues/{part}"),
    };
    let mut response = console.app.redirect(&back, job.note());
    let did = Did::to(job.done.load(Ordering::Relaxed));
    let extensions = response.extensions_mut();
    extensions.insert(asked);
    extensions.insert(did);
    Ok(response)
}

/// The same request, for what goes on when it was answered.
fn copy(context: &PageRequest) -> PageRequest {
    PageRequest {
        console: Arc::clone(&context.console),
        from: context.from,
        requester: Requester {
            // The connection may be asking for something else by then.
            client: None,
            ..context.requester.clone()
        },
        frame: context.frame.clone(),
        uri: context.uri.clone(),
    }
}

/// Result of operations on several queues.
pub(super) struct Came {
    pub(super) over: bool,
    pub(super) messages: u64,
    /// The reason why it stopped; empty: it did not.
    pub(super) failed: String,
}

/// Begins an operation for each question; they are done one behind the other, and each
/// can be looked at and stopped.
pub(super) async fn begin_all(context: &PageRequest, questions: Vec<Question>) -> Came {
    let begun = questions.into_iter().map(|question| {
        let job = context.console.jobs.begin(context, &question);
        (job, question)
    });
    let begun: Vec<(Arc<Job>, Question)> = begun.collect();
    let jobs: Vec<Arc<Job>> = begun.iter().map(|(job, _)| Arc::clone(job)).collect();
    let theirs = copy(context);
    let working = tokio::spawn(async move {
        for (job, question) in begun {
            let status = work(copy(&theirs), Arc::clone(&job), question, None).await;
            job.record(&theirs, status);
        }
    });
    let over = tokio::time::timeout(SHORT, working).await.is_ok();
    let done = jobs.iter().map(|job| job.done.load(Ordering::Relaxed));
    let failed = jobs.iter().filter_map(|job| {
        let why = job.end.get()?.as_ref()?;
        Some(format!(" {}: {why}.", job.queue))
    });
    Came {
        over,
        messages: done.sum(),
        failed: failed.collect(),
    }
}

/// Where a move goes.
fn target(form: &Form, queue: &Name) -> Result<Name, Problem> {
    let to = Name::of_shown(form.get("to").unwrap_or_default());
    if !to.is_possible() {
        return Err(Problem::field("to", "a name has 1 to 65,535 bytes"));
    }
    if to == *queue {
        let why = "the messages are in this queue already";
        return Err(Problem::field("to", why));
    }
    Ok(to)
}

/// Does it, slice by slice, to its end; the status that the audit tells.
async fn work(context: PageRequest, job: Arc<Job>, question: Question, to: Option<Name>) -> u16 {
    let ended = match (question.operation, question.ids.is_empty()) {
        // Before its turn came.
        _ if job.stop.load(Ordering::Relaxed) => Ok(()),
        (BulkOperation::Drop, _) => drop_queue(&context, &job).await,
        (_, true) => bulk_op(&context, &job, &question, to).await,
        (_, false) => each(&context, &job, &question, to).await,
    };
    let status = ended
        .as_ref()
        .map_or_else(|problem| problem.status, |()| 200);
    // Nobody else sets it.
    let _first = job.end.set(ended.err().map(|problem| problem.detail));
    status
}

async fn drop_queue(context: &PageRequest, job: &Job) -> Result<(), Problem> {
    if let Outcome::Count(count) = context.ask(Command::Drop(job.queue.clone())).await? {
        job.done.store(count, Ordering::Relaxed);
    }
    Ok(())
}

async fn bulk_op(
    context: &PageRequest,
    job: &Job,
    question: &Question,
    to: Option<Name>,
) -> Result<(), Problem> {
    let action = match (question.operation, to) {
        (BulkOperation::Purge | BulkOperation::Delete | BulkOperation::Drop, _) => {
            BulkAction::Delete
        }
        (BulkOperation::Cancel, _) => BulkAction::Cancel(cancel()),
        (BulkOperation::Move, Some(to)) => BulkAction::Move(to),
        (BulkOperation::Retry, _) => BulkAction::Kick,
        (BulkOperation::Redrive, _) => BulkAction::Redrive { to: None },
        (BulkOperation::Move, None) => return Err(Problem::unexpected()),
    };
    for state in &question.states {
        let mut slices = Slices::of(BulkOp {
            action: action.clone(),
            ..BulkOp::show(question.queue.clone(), *state, ACT_STEP)
        });
        while let Some(bulk_op) = slices.slice() {
            if job.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            bulk_op.filter = question.filter_at(context.now());
            let all = *state == ListState::Ready && bulk_op.filter == Filter::default();
            if question.operation == BulkOperation::Purge && all {
                bulk_op.action = BulkAction::Purge;
            }
            let bulk_done = context.bulk_op(bulk_op).await?;
            job.done.fetch_add(bulk_done.matched, Ordering::Relaxed);
            slices.done(&bulk_done);
            if !slices.whole {
                tokio::time::sleep(ACT_REST).await;
            }
        }
    }
    Ok(())
}

/// Errors that say that a message is not there to be acted on any more.
const SKIPPED: [CommandError; 3] = [
    CommandError::NotFound,
    CommandError::AlreadyCancelled,
    CommandError::AlreadyDone,
];

async fn each(
    context: &PageRequest,
    job: &Job,
    question: &Question,
    to: Option<Name>,
) -> Result<(), Problem> {
    for id in &question.ids {
        if job.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let id = *id;
        let command = match (question.operation, &to) {
            (BulkOperation::Cancel, _) => Command::Cancel(id, Box::new(cancel())),
            (BulkOperation::Move, Some(to)) => Command::Move { id, to: to.clone() },
            (BulkOperation::Retry, _) => Command::KickId(id),
            (BulkOperation::Redrive, _) => Command::Redrive(id),
            (BulkOperation::Delete | BulkOperation::Purge, _) => Command::Delete {
                id,
                by: By::OwnerOrFree,
            },
            (BulkOperation::Move | BulkOperation::Drop, _) => {
                let why = "this operation applies to all messages";
                return Err(Problem::field("id", why));
            }
        };
        match context.ask(command).await {
            Ok(_) => job.done.fetch_add(1, Ordering::Relaxed),
            Err(problem) if SKIPPED.iter().any(|one| problem.code == one.code()) => {
                job.passed.fetch_add(1, Ordering::Relaxed)
            }
            Err(problem) => return Err(problem),
        };
    }
    Ok(())
}

/// `POST /messages/ID/do/ACT`.
pub(super) async fn on_message(
    Path((id, operation)): Two,
    Posted(context, fields): Posted,
) -> Answer {
    let (message, queue) = context.message(&id).await?;
    let id = message.id;
    let (command, note) = one(id, &operation, &fields.form).ok_or_else(Problem::no_such_page)?;
    let note = match context.ask(command).await {
        Ok(Outcome::Cancelled) => "It is cancelled: its lease ends after the worker's grace time.",
        Ok(_) => note,
        Err(problem) => {
            let api = &context.console.api;
            return Err(api.why_not(&context.requester, id, problem).await);
        }
    };
    let back = format!("messages/{}", id.0);
    let app = &context.console.app;
    let mut response = app.back(&fields.form, &back, note.to_owned());
    response
        .extensions_mut()
        .insert(DoneWith(format!("of {queue}")));
    Ok(response)
}

fn cancel() -> Cancel {
    Cancel {
        reason: b"cancelled in the console".as_slice().into(),
        grace_ms: Cancel::GRACE_MS,
    }
}

/// The command for one message, and the words for its result.
fn one(id: MessageId, operation: &str, form: &Form) -> Option<(Command, &'static str)> {
    let settle = |how| Command::Settle {
        id,
        by: By::Anyone,
        how,
    };
    Some(match operation {
        "retry" => (Command::KickId(id), "The message is ready now."),
        "redrive" => (
            Command::Redrive(id),
            "Sent back to the queue it came from: it counts as new there.",
        ),
        "putback" => (
            settle(How::release(When::Now)),
            "Put back: its lease has ended.",
        ),
        "extend" => (
            Command::Extend {
                id,
                by: By::Anyone,
                ms: None,
            },
            "Extended: its lease starts again.",
        ),
        "cancel" => (
            Command::Cancel(id, Box::new(cancel())),
            "Cancelled: a worker that holds it has 30 s to end its work.",
        ),
        "bury" => (
            settle(How::Bury {
                priority: None,
                reason: form.get("reason").unwrap_or_default().as_bytes().into(),
            }),
            "Buried: it stays until it is retried, moved or deleted.",
        ),
        _ => return None,
    })
}

#[derive(Template)]
#[template(path = "operation.html")]
struct Page {
    frame: Frame,
    heading: String,
    row: Row,
}

/// `/operations/N`.
pub(super) async fn page(context: PageRequest, Path(number): Path<String>) -> Answer {
    let job = context.console.jobs.get(&number, &context)?;
    let row = Row::new(&job, context.now());
    let title = format!("Operation {}", job.number);
    render(&Page {
        heading: format!("{title} on {}", row.queue.plain),
        frame: context.frame.of(title, "queues").live(""),
        row,
    })
}

struct Row {
    number: u64,
    operation: &'static str,
    queue: Named,
    age: String,
    note: String,
    done: u64,
    counted: u64,
    over: bool,
}

impl Row {
    fn new(job: &Job, now: Ms) -> Self {
        Self {
            number: job.number,
            operation: job.operation.word(),
            queue: Named::new(&job.queue),
            age: words::duration(now.since(job.began)),
            note: job.note(),
            done: job.done.load(Ordering::Relaxed),
            counted: job.counted.max(1),
            over: job.end.get().is_some(),
        }
    }
}

#[derive(Template)]
#[template(path = "operations.html")]
struct List {
    frame: Frame,
    rows: Vec<Row>,
}

/// `/operations`: those that the requester began since the server's start.
pub(super) async fn list(context: PageRequest) -> Answer {
    let now = context.now();
    let jobs = context.console.jobs.of(&context);
    render(&List {
        frame: context.frame.of("Bulk operations", "operations").live(""),
        rows: jobs.iter().map(|job| Row::new(job, now)).collect(),
    })
}

/// `POST /operations/N/do/stop`.
pub(super) async fn stop(Path(number): Path<String>, Posted(context, _): Posted) -> Answer {
    let job = context.console.jobs.get(&number, &context)?;
    job.stop.store(true, Ordering::Relaxed);
    let note = "The operation stops after its current slice.".to_owned();
    context.redirect(&format!("operations/{number}"), note)
}
