//! Operations on several queues: the question with its counts, and the operation.

use askama::Template;
use quintet_client::Did;
use quintet_types::{Command, Filter, Name, Operation};

use super::ask::{BulkOperation, Question};
use super::frame::Frame;
use super::names::{self, Named};
use super::operations;
use super::{Answer, PageRequest, Posted, render, words};
use quintet_api::{Path, Problem};
use quintet_http::Form;

/// Queues of a selection at most: all their operations are remembered at once, and forms
/// have 200 fields by default (`max_fields`).
const QUEUES_MAX: usize = 150;
/// From so many messages on that would be lost what is deleted is typed.
const TYPED: u64 = 1000;

quintet_types::named! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Bulk, word {
        Pause = "pause",
        Resume = "resume",
        Purge = "purge",
        Delete = "delete",
    }
}

impl Bulk {
    /// # Errors
    /// There is none of this word: 404.
    fn of(word: &str) -> Result<Self, Problem> {
        let found = Self::ALL.into_iter().find(|one| one.word() == word);
        found.ok_or_else(Problem::no_such_page)
    }

    fn verb_words(self) -> &'static str {
        match self {
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Purge => "Purge",
            Self::Delete => "Delete",
        }
    }

    fn asks(self) -> Operation {
        match self {
            Self::Pause => Operation::Pause,
            Self::Resume => Operation::Resume,
            Self::Purge => Operation::Flush,
            Self::Delete => Operation::Drop,
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Pause => "Consumers wait until you resume the queues. Puts continue.",
            Self::Resume => "Consumers get messages again.",
            Self::Purge => {
                "All messages that are not reserved are deleted and cannot be restored. Messages \
                 that are put after this page was loaded stay."
            }
            Self::Delete => "The queues and their messages cannot be restored.",
        }
    }

    /// The operation on each queue, if it is one on messages.
    fn operation(self) -> Option<BulkOperation> {
        match self {
            Self::Pause | Self::Resume => None,
            Self::Purge => Some(BulkOperation::Purge),
            Self::Delete => Some(BulkOperation::Drop),
        }
    }
}

/// A queue of the selection.
struct Row {
    name: Named,
    /// How many wait in it, in any state but reserved.
    waiting: String,
    reserved: String,
    /// Why it is left out; empty: it is not.
    not: &'static str,
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct Page {
    frame: Frame,
    word: &'static str,
    heading: String,
    says: &'static str,
    loses: bool,
    rows: Vec<Row>,
    /// The queues, for what can be undone.
    queues: Vec<String>,
    /// Tokens that fix the set, where the filter cannot.
    tokens: Vec<String>,
    /// The word that the operator has to type.
    typed: Option<String>,
    button: String,
    none: bool,
}

/// The queues of a form, each once.
fn queues(form: &Form) -> Result<Vec<Name>, Problem> {
    let mut all = Vec::new();
    for part in form.all("queue") {
        let name = names::of_address(part);
        let name =
            name.ok_or_else(|| Problem::field("queue", "this is not the name of a queue"))?;
        if !all.contains(&name) {
            all.push(name);
        }
    }
    match all.len() <= QUEUES_MAX {
        true => Ok(all),
        false => Err(Problem::field(
            "queue",
            format!("at most {QUEUES_MAX} queues"),
        )),
    }
}

fn sure(queues: usize) -> String {
    words::of(queues as u64, "queue", "queues")
}

/// `/bulk/ACT`: how many it would touch, in which queues.
pub(super) async fn page(context: PageRequest, Path(word): Path<String>) -> Answer {
    let bulk = Bulk::of(&word)?;
    let selected = queues(&context.query()?)?;
    if selected.is_empty() {
        let note = "Nothing was selected: select rows first.".to_owned();
        return context.redirect("", note);
    }
    let (mut rows, mut names, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    let mut total = 0;
    for queue in selected {
        let stats = match context.stats(&queue).await {
            Err(problem) if problem.status == 404 => continue,
            stats => stats?,
        };
        let waiting = operations::waiting(&stats);
        let not = match bulk {
            _ if !context.requester.may_ask(bulk.asks(), &queue) => "you have no right to do this",
            Bulk::Pause if stats.paused => "already paused",
            Bulk::Resume if !stats.paused => "not paused",
            Bulk::Purge if waiting == 0 => "no messages to delete",
            Bulk::Pause | Bulk::Resume | Bulk::Purge | Bulk::Delete => "",
        };
        rows.push(Row {
            name: Named::new(&queue),
            waiting: words::count(waiting),
            reserved: words::count(stats.gauges.reserved),
            not,
        });
        if not.is_empty() {
            total += waiting;
            names.push(names::in_address(&queue));
            if let Some(operation) = bulk.operation() {
                let question = question(&context, operation, queue, waiting);
                tokens.push(context.console.questions.keep(question));
            }
        }
    }
    let messages = words::of(total, "message", "messages");
    let many = sure(names.len());
    let loses = bulk.operation().is_some();
    let title = format!("{} {many}", bulk.verb_words());
    render(&Page {
        frame: context.frame.of(&*title, "queues"),
        word: bulk.word(),
        heading: format!("{title}?"),
        says: bulk.says(),
        loses,
        button: match bulk {
            Bulk::Pause | Bulk::Resume => title,
            Bulk::Purge => format!("Delete {messages} of {many}"),
            Bulk::Delete => format!("Delete {many} and {messages}"),
        },
        none: names.is_empty(),
        typed: (bulk == Bulk::Delete || (loses && total > TYPED)).then_some(many),
        rows,
        queues: if loses { Vec::new() } else { names },
        tokens,
    })
}

fn question(
    context: &PageRequest,
    operation: BulkOperation,
    queue: Name,
    counted: u64,
) -> Question {
    Question {
        who: context.requester.principal(),
        operation,
        queue,
        states: operations::STATES.to_vec(),
        filter: Filter::default(),
        ids: Vec::new(),
        requested_at: context.now(),
        counted,
        typed: operation == BulkOperation::Drop,
    }
}

/// `POST /bulk/ACT`.
pub(super) async fn begin(Path(word): Path<String>, Posted(context, fields): Posted) -> Answer {
    let bulk = Bulk::of(&word)?;
    match bulk.operation() {
        None => {
            let note = pause(&context, bulk, &fields.form).await?;
            let mut response = context.console.app.redirect("", note);
            response.extensions_mut().insert(bulk.asks());
            Ok(response)
        }
        Some(operation) => lose(&context, operation, &fields.form).await,
    }
}

/// Pauses or resumes each; what came of it.
async fn pause(context: &PageRequest, bulk: Bulk, form: &Form) -> Result<String, Problem> {
    let for_ms = (bulk == Bulk::Resume).then_some(0);
    let (mut done, mut not) = (0, Vec::new());
    for queue in queues(form)? {
        let shown = queue.to_string();
        match context.ask(Command::Pause { queue, for_ms }).await {
            Ok(_) => {
                done += 1;
                let act = format!("{} {shown}", bulk.word());
                context.note((bulk.asks(), &act), (200, Did::default()));
            }
            Err(problem) => not.push(format!("{shown}: {}.", problem.detail)),
        }
    }
    let word = if for_ms.is_some() {
        "resumed"
    } else {
        "paused"
    };
    let note = format!("{} {word}.", sure(done));
    Ok(format!("{note} {}", not.join(" ")).trim_end().to_owned())
}

/// Does what cannot be undone, to the queues the question was about.
async fn lose(context: &PageRequest, operation: BulkOperation, form: &Form) -> Answer {
    let console = &context.console;
    let (who, now) = (context.requester.principal(), context.now());
    let tokens: Vec<&str> = form.all("token").collect();
    let taken = tokens
        .iter()
        .map(|token| console.questions.take(token, who, now));
    let questions: Vec<Question> = taken
        .flatten()
        .filter(|taken| taken.operation == operation)
        .collect();
    if questions.is_empty() || questions.len() != tokens.len() {
        let note = "Nothing was done: the page was used already or is older than 10 minutes. \
                    Select the queues again.";
        return context.redirect("", note);
    }
    let total: u64 = questions.iter().map(|question| question.counted).sum();
    let must = operation == BulkOperation::Drop || total > TYPED;
    if must && form.get("name") != Some(&sure(questions.len())) {
        let note =
            "Nothing was done: the typed number does not match. Type it as shown.".to_owned();
        return context.redirect("", note);
    }
    let many = sure(questions.len());
    let came = operations::begin_all(context, questions).await;
    let failed = came.failed;
    let mut response = match (came.over, operation == BulkOperation::Drop) {
        (false, _) => {
            let note = format!("{many}: the operations run one after the other.");
            return context.redirect("operations", note);
        }
        (true, true) => console.app.redirect("", format!("{many} deleted.{failed}")),
        (true, false) => {
            let messages = words::of(came.messages, "message", "messages");
            let note = format!("{messages} of {many} deleted.{failed}");
            console.app.redirect("", note)
        }
    };
    let extensions = response.extensions_mut();
    extensions.insert(operation.operation(false));
    extensions.insert(Did::to(came.messages));
    Ok(response)
}
