//! One event on trial, for a look at what a hook does.

use std::fmt::Write as _;
use std::sync::Arc;

use quintet_hooks::parts::lease_for;
use quintet_hooks::{Decided, Event, HookError, HookReply, Host, Level, Program};
use quintet_types::{
    Body, BulkOp, By, Command, Expiry, How, ListState, MessageId, Ms, Name, Outcome, Overrides,
    Put, Settings, StatsOf, StatsReply, Take, When,
};

use super::{Trial, client};

/// Messages of a queue that are shown.
const SHOWN_MAX: u32 = 20;

/// Lets an event happen over an empty engine at `now`, to a message of this
/// body in this queue where it is about one, and tells what came of it, what
/// is in the queues then, and what was logged and counted. For
/// [`Event::Added`] the body is the command's line, for [`Event::Auth`]
/// `user secret`.
///
/// # Errors
/// The files fail to load.
pub fn run_once(
    program: Arc<Program>,
    event: Event,
    queue: &str,
    body: &[u8],
    now: Ms,
) -> Result<String, HookError> {
    let mut trial = Trial::new(Arc::clone(&program), Settings::default(), now)?;
    let queue = Name::from(queue);
    let mut out = String::new();
    let answer = happen(&mut trial, event, &queue, body, now);
    let _infallible = writeln!(out, "{answer}");
    contents(&mut trial, &mut out);
    for (name, value) in program.shared().metrics.all() {
        let _infallible = writeln!(out, "metric {name}: {value}");
    }
    for (level, text) in trial.world.take_log() {
        let level = match level {
            Level::Info => "info",
            Level::Warn => "warning",
            Level::Error => "error",
        };
        let _infallible = writeln!(out, "{level}: {text}");
    }
    Ok(out)
}

/// Lets the event happen, and tells how it was answered.
fn happen(trial: &mut Trial, event: Event, queue: &Name, body: &[u8], now: Ms) -> String {
    let put = Put {
        queue: queue.clone(),
        body: Body::new(body),
        ..Put::default()
    };
    let take = Take {
        queues: [queue.clone()].into_iter().collect(),
        ..Take::default()
    };
    match event {
        Event::BeforePut | Event::AfterPut | Event::Command => submit(trial, Command::Put(put)),
        Event::Full => {
            store(trial, put.clone());
            configure(trial, queue, |limits| limits.messages_max = Some(1));
            submit(trial, Command::Put(put))
        }
        Event::BeforeTake | Event::AfterTake => {
            store(trial, put);
            submit(trial, Command::Take(take))
        }
        Event::Empty => submit(trial, Command::Take(take)),
        Event::Settle => {
            let id = store(trial, put);
            lease(trial, take, 0);
            settle(trial, id, How::Finish)
        }
        Event::Error => {
            let id = MessageId(1);
            let by = By::Anyone;
            submit(trial, Command::Delete { id, by })
        }
        Event::Expire => {
            let expires = Expiry::In(1);
            store(trial, Put { expires, ..put });
            trial.pass(1);
            "1 ms passed".into()
        }
        Event::LeaseEnd => {
            store(trial, put);
            lease(trial, take, 1);
            trial.pass(1);
            "1 ms passed".into()
        }
        Event::DeadLetter => {
            let id = store(trial, put);
            configure(trial, queue, |limits| limits.attempts_max = Some(1));
            lease(trial, take, 0);
            settle(trial, id, How::release(When::Now))
        }
        Event::Connect => match trial.state.connect(&client(1)) {
            Some(text) => format!("refused: {text}"),
            None => "connected".into(),
        },
        Event::Start | Event::Stop | Event::Disconnect => {
            trial.state.notify(&client(1), event);
            "done".into()
        }
        Event::Auth => log_in(trial, &String::from_utf8_lossy(body)),
        Event::Timer => {
            let ms = trial.state.next_timer().since(now);
            trial.pass(ms);
            format!("{ms} ms passed")
        }
        Event::Added => match trial.state.added(&client(1), body) {
            None => "no such command".into(),
            Some(HookReply::Done) => "done".into(),
            Some(HookReply::Text(text)) => String::from_utf8_lossy(&text).into_owned(),
            Some(HookReply::Refused(text)) => format!("refused: {text}"),
        },
    }
}

fn log_in(trial: &mut Trial, credentials: &str) -> String {
    let (user, secret) = credentials.split_once(' ').unwrap_or((credentials, ""));
    match trial.state.auth(&client(1), user, secret.as_bytes()) {
        Some(true) => "let in".into(),
        Some(false) => "kept out".into(),
        None => "not decided".into(),
    }
}

/// Asks past the hooks, as what they are to find.
fn past(trial: &mut Trial, command: Command) -> Option<Outcome> {
    trial.world.ask(client(1).caller, command).0
}

fn store(trial: &mut Trial, put: Put) -> MessageId {
    match past(trial, Command::Put(put)) {
        Some(Outcome::Put { id, .. }) => id,
        _ => MessageId(0),
    }
}

fn lease(trial: &mut Trial, take: Take, ms: u64) {
    let lease = Some(lease_for(ms, 0));
    past(trial, Command::Take(Take { lease, ..take }));
}

fn settle(trial: &mut Trial, id: MessageId, how: How) -> String {
    let by = By::Owner;
    submit(trial, Command::Settle { id, by, how })
}

fn configure(trial: &mut Trial, queue: &Name, set: fn(&mut Overrides)) {
    let mut overrides = Overrides::default();
    set(&mut overrides);
    let configure = Command::Configure {
        queue: queue.clone(),
        overrides: Some(Box::new(overrides)),
        must_exist: false,
    };
    past(trial, configure);
}

fn submit(trial: &mut Trial, command: Command) -> String {
    match trial.submit(&client(1), command) {
        Decided::Later => "waits".into(),
        Decided::Denied(text) => format!("refused: {text}"),
        Decided::Answer(bytes) => format!("answered: {}", bytes.escape_ascii()),
        Decided::Now(Outcome::Put { id, .. }, _) if id.0 == 0 => "dropped".into(),
        Decided::Now(Outcome::Put { id, .. }, _) => format!("stored as {}", id.0),
        Decided::Now(Outcome::Messages(messages), queue) => messages
            .iter()
            .map(|message| format!("got {} of {queue}: {}", message.id.0, shown(&message.body)))
            .collect::<Vec<_>>()
            .join("\n"),
        Decided::Now(Outcome::Empty, _) => "nothing there".into(),
        Decided::Now(Outcome::Refused(command_error), _) => {
            format!("refused: {}", command_error.text())
        }
        Decided::Now(..) => "done".into(),
    }
}

/// The first bytes of a body, on one line.
fn shown(body: &Body) -> String {
    let bytes = body.as_small().unwrap_or_default();
    let mut text = bytes[..bytes.len().min(200)].escape_ascii().to_string();
    if bytes.len() > 200 {
        text.push_str("...");
    }
    text
}

/// Writes the contents of the queues.
fn contents(trial: &mut Trial, out: &mut String) {
    let mut queues = Vec::new();
    let mut next = Some((0, 0));
    while let Some(from) = next.take() {
        if let Some(Outcome::Stats(stats)) = past(trial, Command::Stats(StatsOf::Queues { from }))
            && let StatsReply::Queues(page) = *stats
        {
            queues.extend(page.queues);
            next = page.next;
        }
    }
    queues.sort_by(|a, b| a.name.cmp(&b.name));
    for queue in queues {
        for (state, word) in [
            (ListState::Ready, "ready"),
            (ListState::Delayed, "delayed"),
            (ListState::Reserved, "reserved"),
            (ListState::Buried, "buried"),
        ] {
            let show = BulkOp::show(queue.name.clone(), state, SHOWN_MAX);
            let Some(Outcome::BulkDone(done)) = past(trial, Command::BulkOp(Box::new(show))) else {
                continue;
            };
            for message in done.messages {
                let _infallible = writeln!(
                    out,
                    "queue {}: {word}, priority {}: {}",
                    queue.name,
                    message.priority,
                    shown(&message.body)
                );
            }
        }
    }
}
