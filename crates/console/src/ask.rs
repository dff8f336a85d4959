//! The question before an operation on many messages, or one that loses something: how
//! many it would touch. Asking fixes the set: those put before now.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use askama::Template;
use quintet_client::Slices;
use quintet_types::{
    BulkAction, BulkOp, Filter, ListState, MessageId, Ms, Name, Operation, Principal, Verb,
};

use super::frame::Frame;
use super::listing::{self, Which};
use super::names::Named;
use super::{Answer, PageRequest, Two, queue_of, render, words};
use quintet_api::{Path, Problem};
use quintet_http::{Form, locked};

/// Questions that wait for an answer; the oldest go when there are more.
const QUESTIONS_MAX: usize = 1024;
/// How long one may wait, ms.
const WAITS_MS: u64 = 10 * 60_000;
/// Messages of a selection at most.
pub(super) const IDS_MAX: usize = 500;
/// From so many messages on that would be lost the name is typed.
const NAME_TYPED: u64 = 1000;
/// Slices counted for a question at most.
const SLICES: u32 = 256;
/// Dead letters whose origins are shown.
const ORIGINS: u32 = 2000;

quintet_types::named! {
    /// The operation in question. The console has several words for one [`Operation`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum BulkOperation, word {
        /// All but what is reserved.
        Purge = "purge",
        /// Those chosen.
        Delete = "delete",
        Cancel = "cancel",
        Move = "move",
        Retry = "retry",
        Redrive = "redrive",
        /// The queue.
        Drop = "drop",
    }
}

impl BulkOperation {
    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// The operation that it is; `some`: on messages by their ids.
    pub(super) fn operation(self, some: bool) -> Operation {
        match self {
            Self::Delete | Self::Cancel if some => Operation::Delete,
            Self::Purge | Self::Delete | Self::Cancel => Operation::Flush,
            Self::Move | Self::Redrive => Operation::Move,
            Self::Retry => Operation::Kick,
            Self::Drop => Operation::Drop,
        }
    }

    /// True if what it takes cannot be brought back.
    fn loses(self) -> bool {
        matches!(self, Self::Purge | Self::Delete | Self::Cancel | Self::Drop)
    }

    /// It is about all messages of the queue.
    fn is_whole(self) -> bool {
        matches!(self, Self::Purge | Self::Drop)
    }

    fn verb_words(self) -> &'static str {
        match self {
            Self::Purge | Self::Delete => "Delete",
            Self::Cancel => "Cancel",
            Self::Move => "Move",
            Self::Retry => "Retry",
            Self::Redrive => "Redrive",
            Self::Drop => "Delete the queue and",
        }
    }

    /// Words for the result, behind `3 messages`.
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Purge | Self::Delete | Self::Drop => "deleted",
            Self::Cancel => "cancelled",
            Self::Move => "moved",
            Self::Retry => "ready again",
            Self::Redrive => "sent back",
        }
    }
}

/// A question: what would be done, and to which messages.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) who: Principal,
    pub(super) operation: BulkOperation,
    pub(super) queue: Name,
    pub(super) states: Vec<ListState>,
    pub(super) filter: Filter,
    /// These alone; empty: all that fit.
    pub(super) ids: Vec<MessageId>,
    pub(super) requested_at: Ms,
    pub(super) counted: u64,
    /// The name has to be typed.
    pub(super) typed: bool,
}

impl Question {
    /// The set in question, seen at this moment: a filter's ages count from now, and messages that
    /// were put after the question are not part of it.
    pub(super) fn filter_at(&self, now: Ms) -> Filter {
        Filter {
            older_ms: self
                .filter
                .older_ms
                .saturating_add(now.since(self.requested_at)),
            ..self.filter.clone()
        }
    }
}

/// Questions that wait for an answer, each to be answered once.
#[derive(Default)]
pub(super) struct Questions {
    random: RandomState,
    waiting: Mutex<(u64, VecDeque<(String, Question)>)>,
}

impl Questions {
    /// Keeps a question; answers its token.
    pub(super) fn keep(&self, question: Question) -> String {
        let mut waiting = locked(&self.waiting);
        waiting.0 += 1;
        let token = format!(
            "{:016x}{:016x}",
            self.random.hash_one(waiting.0),
            RandomState::new().hash_one(waiting.0)
        );
        if waiting.1.len() >= QUESTIONS_MAX {
            waiting.1.pop_front();
        }
        waiting.1.push_back((token.clone(), question));
        token
    }

    /// The question of this token, once, for the user that asked it, if it is not too
    /// old.
    pub(super) fn take(&self, token: &str, who: Principal, now: Ms) -> Option<Question> {
        let mut waiting = locked(&self.waiting);
        waiting
            .1
            .retain(|(_, question)| now.since(question.requested_at) <= WAITS_MS);
        let mut all = waiting.1.iter();
        let at = all.position(|(known, question)| known == token && question.who == who)?;
        waiting.1.remove(at).map(|(_, question)| question)
    }
}

/// A state, and what becomes of its messages.
type StateRow = (&'static str, String);

#[derive(Template)]
#[template(path = "ask.html")]
struct Page {
    frame: Frame,
    queue: Named,
    heading: String,
    says: String,
    word: &'static str,
    loses: bool,
    rows: Vec<StateRow>,
    /// Where messages go, and how many; `None`: nowhere.
    origins: Vec<(Option<Named>, String)>,
    button: String,
    token: String,
    typed: bool,
    moves: bool,
    may_pause: bool,
    may_move: bool,
    command: Option<String>,
    nothing: bool,
}

/// `/queues/NAME/ask/ACT`.
pub(super) async fn page(context: PageRequest, Path((part, word)): Two) -> Answer {
    let queue = queue_of(&part)?;
    let operation = BulkOperation::of(&word).ok_or_else(Problem::no_such_page)?;
    let form = context.query()?;
    let ids = ids(&form)?;
    if !context
        .requester
        .may_ask(operation.operation(!ids.is_empty()), &queue)
    {
        return Err(Problem::refused(quintet_types::CommandError::NotPermitted));
    }
    if form.says("pick") && ids.is_empty() && form.get("scope") != Some("all") {
        let note = "Nothing was selected: select rows first.".to_owned();
        return context.redirect(&format!("queues/{part}"), note);
    }
    let which = Which::of(&form)?;
    let mut filter = match operation.is_whole() {
        true => Filter::default(),
        false => which.filter(),
    };
    filter.dead = operation == BulkOperation::Redrive;
    let question = Question {
        who: context.requester.principal(),
        operation,
        states: states(operation, &form, which.state, !ids.is_empty())?,
        filter,
        ids,
        requested_at: context.now(),
        counted: 0,
        typed: false,
        queue,
    };
    show(&context, question, &which).await
}

/// In which states what is asked about is.
///
/// # Errors
/// It is nothing that can be asked of this state; `some`: of messages by their ids.
fn states(
    operation: BulkOperation,
    form: &Form,
    list_state: ListState,
    some: bool,
) -> Result<Vec<ListState>, Problem> {
    use ListState::{Archived, Buried, Delayed, Prepared, Ready, Reserved};
    let no = |why: &str| Err(Problem::field("state", why));
    match (operation, list_state) {
        (BulkOperation::Purge | BulkOperation::Drop, _) => {
            Ok(vec![Ready, Delayed, Buried, Prepared, Archived])
        }
        (BulkOperation::Retry, _) if !form.says("state") => Ok(vec![Buried]),
        (BulkOperation::Retry, Ready | Reserved | Prepared | Archived) => {
            no("only buried and delayed messages are retried")
        }
        (BulkOperation::Cancel, Archived) => no("a message that is done is not cancelled"),
        (BulkOperation::Delete, Reserved) if some => Ok(vec![Reserved]),
        (BulkOperation::Delete | BulkOperation::Move | BulkOperation::Redrive, Reserved) => {
            no("a consumer holds this reserved message: put it back first")
        }
        (BulkOperation::Move | BulkOperation::Redrive, Prepared) => {
            no("a prepared message is not in the queue yet")
        }
        (_, list_state) => Ok(vec![list_state]),
    }
}

fn ids(form: &Form) -> Result<Vec<MessageId>, Problem> {
    if form.get("scope") == Some("all") {
        return Ok(Vec::new());
    }
    let ids: Option<Vec<MessageId>> = form
        .all("id")
        .map(|id| id.parse().ok().filter(|id| *id > 0).map(MessageId))
        .collect();
    let ids = ids.ok_or_else(|| Problem::field("id", "an id is a number from 1 on"))?;
    match ids.len() <= IDS_MAX {
        true => Ok(ids),
        false => Err(Problem::field("id", format!("at most {IDS_MAX} messages"))),
    }
}

/// The holder of a message that is asked about.
async fn worked_on(context: &PageRequest, question: &Question) -> Option<StateRow> {
    let (api, id) = (&context.console.api, question.ids.first()?);
    let (message, queue) = context.message(&id.0.to_string()).await.ok()?;
    let held = api
        .held_by(&context.requester, &message, &queue, &mut None)
        .await;
    let (holder, _) = held?;
    let says = format!("by {}: its lease ends with the message", holder.text);
    Some(("reserved", says))
}

/// Counts the messages in question, state by state; `more`: there are more than were counted.
async fn rows(
    context: &PageRequest,
    question: &mut Question,
    reserved: u64,
) -> Result<(Vec<StateRow>, bool), Problem> {
    let operation = question.operation;
    let (mut rows, mut more) = (Vec::new(), false);
    if !question.ids.is_empty() {
        question.counted = question.ids.len() as u64;
        rows.extend(worked_on(context, question).await);
        return Ok((rows, more));
    }
    for state in question.states.clone() {
        let (number, all) = count(context, question, state).await?;
        question.counted += number;
        more |= !all;
        if number > 0 || question.states.len() == 1 {
            let least = if all { "" } else { "at least " };
            let (count, will) = (words::count(number), will(operation, number));
            rows.push((listing::word(state), format!("{least}{count} {will}")));
        }
    }
    let others_reserved = reserved > 0 && !question.states.contains(&ListState::Reserved);
    if others_reserved && operation.loses() {
        let stay = match operation == BulkOperation::Drop {
            true => "are deleted when their consumers release them",
            false => "stay: their consumers finish them, or they become ready again",
        };
        rows.push(("reserved", format!("{} {stay}", words::count(reserved))));
    }
    Ok((rows, more))
}

async fn show(context: &PageRequest, mut question: Question, which: &Which) -> Answer {
    let (operation, queue) = (question.operation, question.queue.clone());
    let stats = context.stats(&queue).await?;
    let (rows, more) = rows(context, &mut question, stats.gauges.reserved).await?;
    let origins = match operation == BulkOperation::Redrive && question.ids.is_empty() {
        true => origins(context, &question).await?,
        false => Vec::new(),
    };
    question.typed =
        operation == BulkOperation::Drop || (operation.loses() && question.counted > NAME_TYPED);
    let name = Named::new(&queue);
    let messages = words::of(question.counted, "message", "messages");
    let least = if more { "at least " } else { "" };
    let may = |verb| context.requester.may_to(verb, &queue);
    let title = format!("{} {}", operation.word(), name.plain);
    render(&Page {
        frame: context.frame.of(title, "queues"),
        heading: match operation {
            BulkOperation::Purge => format!("Purge {}?", name.plain),
            BulkOperation::Drop => format!("Delete the queue {}?", name.plain),
            _ => format!("{} {least}{messages}?", operation.verb_words()),
        },
        says: [says(operation), which.in_words()]
            .join(" ")
            .trim()
            .to_owned(),
        word: operation.word(),
        loses: operation.loses(),
        rows,
        origins,
        button: format!("{} {least}{messages}", operation.verb_words()),
        typed: question.typed,
        moves: operation == BulkOperation::Move,
        may_pause: operation.loses() && may(Verb::Pause) && !stats.paused,
        may_move: operation.is_whole() && may(Verb::Move),
        command: command(&question),
        nothing: question.counted == 0 && operation != BulkOperation::Drop,
        queue: name,
        token: context.console.questions.keep(question),
    })
}

fn says(operation: BulkOperation) -> String {
    match operation {
        BulkOperation::Move => "The messages go to the end of another queue and are ready there.",
        BulkOperation::Retry => "The messages become ready again, at their positions.",
        BulkOperation::Redrive => "Each message goes back to the queue it came from.",
        BulkOperation::Purge | BulkOperation::Delete => "Deleted messages cannot be restored.",
        BulkOperation::Cancel => {
            "Cancelled messages cannot be restored. A worker that holds one has 30 s to end its \
             work."
        }
        BulkOperation::Drop => "The queue and its messages cannot be restored.",
    }
    .to_owned()
}

fn will(operation: BulkOperation, number: u64) -> String {
    let is = if number == 1 { "is" } else { "are" };
    match operation == BulkOperation::Retry {
        true => format!("{is} made ready"),
        false => format!("{is} {}", operation.done()),
    }
}

/// The same from a shell, where one command does it.
fn command(question: &Question) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.:@,+-/".contains(&b);
    let name = question.queue.to_string();
    let name = match name.bytes().all(plain) && !name.starts_with('-') {
        true => name,
        false => format!("'{}'", name.replace('\'', "'\\''")),
    };
    let all = question.ids.is_empty()
        && question.filter
            == Filter {
                dead: question.filter.dead,
                ..Filter::default()
            };
    match question.operation {
        BulkOperation::Redrive if all => Some(format!("quintet redrive {name}")),
        BulkOperation::Drop => Some(format!("quintet drop {name} --messages")),
        _ => None,
    }
}

/// How many fit, and whether all were looked at.
pub(crate) async fn count(
    context: &PageRequest,
    question: &Question,
    state: ListState,
) -> Result<(u64, bool), Problem> {
    let bulk_op = BulkOp {
        filter: question.filter_at(context.now()),
        action: match question.operation == BulkOperation::Cancel {
            true => BulkAction::CountToCancel,
            false => BulkAction::Count,
        },
        ..BulkOp::show(question.queue.clone(), state, u32::MAX)
    };
    let mut slices = Slices::of(bulk_op).at_most(u64::MAX, SLICES);
    while let Some(bulk_op) = slices.slice() {
        let bulk_done = context.bulk_op(bulk_op).await?;
        slices.done(&bulk_done);
    }
    Ok((slices.messages, slices.whole))
}

/// Where the first dead letters came from.
async fn origins(
    context: &PageRequest,
    question: &Question,
) -> Result<Vec<(Option<Named>, String)>, Problem> {
    let bulk_op = BulkOp {
        filter: question.filter.clone(),
        ..BulkOp::show(question.queue.clone(), question.states[0], ORIGINS)
    };
    let mut slices = Slices::of(bulk_op).at_most(ORIGINS.into(), SLICES);
    let mut found: std::collections::BTreeMap<Option<Name>, u64> = Default::default();
    while let Some(bulk_op) = slices.slice() {
        let bulk_done = context.bulk_op(bulk_op).await?;
        for message in &bulk_done.messages {
            *found.entry(message.came_from()).or_default() += 1;
        }
        slices.done(&bulk_done);
    }
    let origin =
        |(name, number): (Option<Name>, u64)| (name.as_ref().map(Named::new), words::count(number));
    Ok(found.into_iter().map(origin).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(requested_at: u64, who: Principal) -> Question {
        Question {
            who,
            operation: BulkOperation::Purge,
            queue: Name::from("q"),
            states: vec![ListState::Ready],
            filter: Filter::default(),
            ids: Vec::new(),
            requested_at: Ms(requested_at),
            counted: 1,
            typed: false,
        }
    }

    #[test]
    fn messages_put_after_the_question_are_never_a_part_of_it() {
        let mut question = question(1000, Principal::SERVER);
        assert_eq!(question.filter_at(Ms(1000)).older_ms, 0);
        assert_eq!(question.filter_at(Ms(1300)).older_ms, 300);
        question.filter.older_ms = 50;
        assert_eq!(question.filter_at(Ms(1300)).older_ms, 350);
        assert_eq!(question.filter_at(Ms(61_300)).older_ms, 60_350);
    }

    #[test]
    fn a_question_is_answered_once_by_its_user_and_in_time() {
        let questions = Questions::default();
        let token = questions.keep(question(0, Principal(7)));
        let taken = |who, now| questions.take(&token, who, Ms(now)).is_some();
        let nobody = Principal::SERVER;
        assert!(!taken(nobody, 1) && !taken(Principal(8), 1));
        assert!(questions.take("", Principal(7), Ms(1)).is_none());
        assert!(taken(Principal(7), WAITS_MS));
        assert!(!taken(Principal(7), WAITS_MS));
        let token = questions.keep(question(0, nobody));
        assert!(questions.take(&token, nobody, Ms(WAITS_MS + 1)).is_none());
        let first = questions.keep(question(0, nobody));
        for _ in 0..QUESTIONS_MAX {
            questions.keep(question(0, nobody));
        }
        assert!(questions.take(&first, nobody, Ms(0)).is_none());
    }
}
