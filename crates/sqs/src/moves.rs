//! Moves of dead letters back to where they came from: durable, in a tag of
//! the queue they are moved out of, so they go on after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quintet_types::{
    BulkAction, BulkOp, Cursor, Filter, ListState, Message, Name, Operation, Principal, Tags, Verb,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use hyper::StatusCode;
use quintet_client::{Did, Slices};
use quintet_http::Guest;

use crate::ask::{ShardClient, if_there};
use crate::fault::{Fault, Shape};
use crate::input::{CancelMessageMoveTask, ListMessageMoveTasks, StartMessageMoveTask};
use crate::listener::{RequestContext, Sqs, stopped};
use crate::names;
use crate::queue::TASKS;
use crate::queues::{Listed, listed};
use crate::receive::DEAD_FROM;
use crate::reply::{self, Answer, Reply};
use crate::request::required;
use crate::whole::within;

/// Messages of a step.
const STEP: u64 = 100;
/// Messages that are looked at together for those that may go.
const PAGE: u64 = 1000;
/// Moves of a queue that are remembered.
const KEPT: usize = 10;
/// Messages a second at most, where a rate is given.
const RATE_MAX: i64 = 500;
/// How long a move rests between two steps: it takes the processors from nobody.
const REST: Duration = Duration::from_millis(4);
/// The same after a step that could not be done, or be stored, for now.
const LONG_REST: Duration = Duration::from_secs(1);

/// A move, as it is stored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Task {
    id: String,
    status: Status,
    /// The name of a queue; without one each goes to where it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// The queues that messages may go back to, while it runs; `None`: to each, as there are no
    /// users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    back_to: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    moved: u64,
    all: u64,
    /// By the wall clock.
    started_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Running,
    Completed,
    Cancelled,
    Failed,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Running => "RUNNING",
            Status::Completed => "COMPLETED",
            Status::Cancelled => "CANCELLED",
            Status::Failed => "FAILED",
        }
    }
}

fn no_source() -> Fault {
    Fault::new(
        Shape::ResourceNotFound,
        "The resource that you specified for the SourceArn parameter doesn't exist.",
    )
}

fn named(arn: &Option<String>) -> Result<&str, Fault> {
    names::of_arn(required(arn, "SourceArn")?).ok_or_else(no_source)
}

/// The moves out of a queue, the oldest first.
async fn tasks(shards: &ShardClient, queue: &Name) -> Result<Vec<Task>, Fault> {
    let setup = if_there(shards.setup(queue).await)?.ok_or_else(no_source)?;
    let stored = setup.settings.tags.get(TASKS);
    Ok(stored
        .and_then(|stored| serde_json::from_slice(stored).ok())
        .unwrap_or_default())
}

async fn store(shards: &ShardClient, queue: &Name, tasks: &[Task]) -> Result<(), Fault> {
    let from = tasks.len().saturating_sub(KEPT);
    let stored =
        serde_json::to_vec(&tasks[from..]).map_err(|error| Fault::internal(error.to_string()))?;
    let mut tags = Tags::default();
    tags.set(TASKS, Some(&stored));
    shards.set_tags(queue.clone(), tags).await
}

impl Sqs {
    fn task_handle(&self, task: &Task, source: &str) -> String {
        let arn = self.place.arn(source);
        let handle = serde_json::json!({"taskId": task.id, "sourceArn": arn});
        STANDARD.encode(handle.to_string())
    }

    pub(crate) async fn start_move(
        self: &Arc<Self>,
        context: &RequestContext,
        input: StartMessageMoveTask,
    ) -> Answer {
        let source = named(&input.source_arn)?.to_owned();
        let rate = within(
            &input.max_number_of_messages_per_second,
            "MaxNumberOfMessagesPerSecond",
            (1, RATE_MAX),
            "MaxNumberOfMessagesPerSecond must be an integer between 1 and 500.",
        )?;
        let rate = rate.and_then(|rate| u32::try_from(rate).ok());
        let queue = Name::new(source.as_bytes());
        let shards = &context.shards;
        // One begins at a time: two would not see each other.
        let _begins = self.moves.lock().await;
        let mut there = tasks(shards, &queue).await?;
        let sources = Listed {
            dead_letter: Some(queue.clone()),
            max: 1,
            ..Listed::default()
        };
        if listed(&shards.as_server(), sources).await?.is_empty() {
            let why = "Source queue must be configured as a Dead Letter Queue.";
            return Err(Fault::parameter(why));
        }
        let to = match input.destination_arn.as_deref().unwrap_or_default() {
            "" => None,
            arn => Some(self.destination(context, arn, &source).await?),
        };
        let back_to = match &to {
            Some(_) => None,
            None => self.may_move_back(context, &queue).await?,
        };
        if there.iter().any(|task| task.status == Status::Running) {
            let why = "There is already a task running. Only one active task is allowed for a source \
                 queue arn at a given time.";
            return Err(Fault::parameter(why));
        }
        let all = shards.as_server().numbers(&queue).await?.gauges.ready;
        let task = Task {
            id: self.next_id(),
            status: Status::Running,
            to,
            back_to,
            rate,
            moved: 0,
            all,
            started_ms: self.client_api.wall().0,
            failure: None,
        };
        let handle = self.task_handle(&task, &source);
        there.push(task.clone());
        store(shards, &queue, &there).await?;
        let principal = shards.caller.principal;
        tokio::spawn(Arc::clone(self).run_move(source, task, principal));
        Ok(Reply::TaskBegun(handle))
    }

    /// The queue that the messages of another one are to go to.
    async fn destination(
        &self,
        context: &RequestContext,
        arn: &str,
        source: &str,
    ) -> Result<String, Fault> {
        let absent = || {
            let text = "The resource that you specified for the DestinationArn parameter doesn't \
                        exist.";
            Fault::new(Shape::ResourceNotFound, text)
        };
        let name = names::of_arn(arn).ok_or_else(absent)?;
        let queue = Name::new(name.as_bytes());
        self.must_have(context, Verb::Put, &queue)?;
        let numbers = context.shards.as_server().numbers(&queue).await;
        numbers.map_err(|_| absent())?;
        if name == source {
            let text = "The destination queue can't be the source queue.";
            return Err(Fault::parameter(text));
        }
        match names::is_fifo(name) == names::is_fifo(source) {
            true => Ok(name.to_owned()),
            false => Err(Fault::parameter(
                "The source and destination queues must be of the same type, standard or FIFO.",
            )),
        }
    }

    /// Looks at whether the client may put where the messages came from, as the move itself is the
    /// server's. Returns the queues they may go back to, if there are users.
    async fn may_move_back(
        &self,
        context: &RequestContext,
        from: &Name,
    ) -> Result<Option<Vec<String>>, Fault> {
        let sources = Listed {
            dead_letter: Some(from.clone()),
            ..Listed::default()
        };
        let names = listed(&context.shards.as_server(), sources).await?;
        for name in &names {
            self.must_have(context, Verb::Put, &Name::new(name.as_bytes()))?;
        }
        let gate = self.guard.gate.as_ref();
        Ok(gate.filter(|gate| gate.is_used()).map(|_| names))
    }

    pub(crate) async fn cancel_move(
        &self,
        context: &RequestContext,
        input: CancelMessageMoveTask,
    ) -> Answer {
        let handle = required(&input.task_handle, "TaskHandle")?;
        let Some((id, arn)) = names::of_handle(handle) else {
            let why = "Value for parameter TaskHandle is invalid.";
            return Err(Fault::parameter(why));
        };
        let source = names::of_arn(&arn).ok_or_else(no_source)?;
        let queue = Name::new(source.as_bytes());
        let _begins = self.moves.lock().await;
        let mut there = tasks(&context.shards, &queue).await?;
        let running = |task: &&mut Task| task.id == id && task.status == Status::Running;
        let Some(task) = there.iter_mut().find(running) else {
            return Err(Fault::new(Shape::ResourceNotFound, "Task does not exist."));
        };
        task.status = Status::Cancelled;
        task.back_to = None;
        let moved = task.moved;
        store(&context.shards, &queue, &there).await?;
        Ok(Reply::TaskCancelled(moved))
    }

    pub(crate) async fn list_moves(
        &self,
        context: &RequestContext,
        input: ListMessageMoveTasks,
    ) -> Answer {
        let source = named(&input.source_arn)?;
        let most = within(
            &input.max_results,
            "MaxResults",
            (1, 10),
            "MaxResults must be an integer between 1 and 10.",
        )?;
        let most = most.map_or(1, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let there = tasks(&context.shards, &Name::new(source.as_bytes())).await?;
        let newest = there.iter().rev().take(most);
        let newest_task = newest.map(|task| reply::Task {
            handle: (task.status == Status::Running).then(|| self.task_handle(task, source)),
            status: task.status.word(),
            source: self.place.arn(source),
            destination: task.to.as_deref().map(|name| self.place.arn(name)),
            per_second: task.rate,
            moved: task.moved,
            to_move: Some(task.all),
            failure: task.failure.clone(),
            started_ms: task.started_ms,
        });
        Ok(Reply::Tasks(newest_task.collect()))
    }

    /// Goes on with the moves that ran when the server stopped.
    pub(crate) fn resume_moves(self: Arc<Self>) {
        tokio::spawn(async move {
            let guest = Guest::new(&self.client_api);
            let shards = self.shards(&guest);
            let Ok(names) = listed(&shards, Listed::default()).await else {
                return;
            };
            for name in names {
                let there = tasks(&shards, &Name::new(name.as_bytes())).await;
                let there = there.unwrap_or_default();
                if let Some(task) = there
                    .into_iter()
                    .find(|task| task.status == Status::Running)
                {
                    tokio::spawn(Arc::clone(&self).run_move(name, task, Principal::SERVER));
                }
            }
        });
    }

    /// Writes down that a move is over, and how many messages it moved.
    fn audit_move(&self, source: &str, task: &Task, principal: Principal) {
        let status = match task.status {
            Status::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Status::Running | Status::Completed | Status::Cancelled => StatusCode::OK,
        };
        if let Some(gate) = &self.guard.gate {
            let word = task.status.word();
            let act = format!("sqs message move task {source} {word}");
            let came = (status.as_u16(), Did::to(task.moved));
            gate.note(principal, None, (Operation::Move, &act), came);
        }
    }

    /// Moves until all are moved, somebody cancels it, or the server stops. Began by `principal`,
    /// or went on by the server.
    async fn run_move(self: Arc<Self>, source: String, mut task: Task, principal: Principal) {
        let guest = Guest::new(&self.client_api);
        let shards = self.shards(&guest);
        let queue = Name::new(source.as_bytes());
        let mut stops = self.stopping();
        let mut after = None;
        let mut told = false;
        while task.status == Status::Running {
            let began = Instant::now();
            let (step, mut rest) = match task.rate {
                None => (STEP, REST),
                Some(rate) => (u64::from(rate), Duration::from_secs(1)),
            };
            let step = step.min(task.all.saturating_sub(task.moved));
            let changes = self.moves.lock().await;
            // It may have been cancelled while it rested.
            let runs = |known: &Task| known.id == task.id && known.status == Status::Running;
            match tasks(&shards, &queue).await {
                Ok(there) if there.iter().any(runs) => {}
                Ok(_) => return,
                Err(fault) if fault.shape == Shape::ResourceNotFound => return,
                // Reported below, where it matters.
                Err(_) => {}
            }
            let mut moved = 0;
            let came = move_some(&shards, &queue, &task, step, (&mut moved, &mut after)).await;
            let mut there = match tasks(&shards, &queue).await {
                Ok(there) => there,
                // The queue is gone, and the move with it.
                Err(_) => return,
            };
            let Some(stored) = there.iter_mut().find(|stored| stored.id == task.id) else {
                return;
            };
            stored.moved += moved;
            match came {
                Ok(()) => {
                    if stored.status == Status::Running
                        && (moved < step || stored.moved >= stored.all)
                    {
                        stored.status = Status::Completed;
                    }
                }
                Err(fault) if fault.shape == Shape::RequestThrottled => rest = LONG_REST,
                Err(fault) => {
                    stored.status = Status::Failed;
                    stored.failure = Some(fault.shape.code().to_owned());
                }
            }
            if stored.status != Status::Running {
                stored.back_to = None;
            }
            task = stored.clone();
            let is_stored = match store(&shards, &queue, &there).await {
                Ok(()) => true,
                Err(fault) => {
                    if !told {
                        tracing::warn!("sqs: cannot store a message move task: {}", fault.text);
                    }
                    rest = LONG_REST;
                    false
                }
            };
            told = !is_stored;
            drop(changes);
            if task.status != Status::Running {
                // Else it goes on at the next start, and ends then.
                if is_stored {
                    self.audit_move(&source, &task, principal);
                }
            } else {
                tokio::select! {
                    () = tokio::time::sleep_until(began + rest) => {}
                    () = stopped(&mut stops) => return,
                }
            }
        }
    }
}

/// Moves so many of the oldest ready messages, and counts them in `moved`: to a queue, or each to
/// where it came from.
///
/// # Errors
/// A queue they would go to is not there. The step itself says so, as another client that deletes
/// it, by any protocol, may do so at any time.
async fn move_some(
    shards: &ShardClient,
    from: &Name,
    task: &Task,
    max: u64,
    (moved, after): (&mut u64, &mut Option<Cursor>),
) -> Result<(), Fault> {
    if let Some(to) = &task.to {
        let to = Name::new(to.as_bytes());
        return move_into(shards, from, to, Filter::default(), max, moved).await;
    }
    for (source, messages) in sources(shards, from, task.back_to.as_deref(), max, after).await? {
        let came_from = (DEAD_FROM.into(), source.as_bytes().into());
        let filter = Filter {
            attrs: vec![came_from],
            dead: true,
            ..Filter::default()
        };
        move_into(shards, from, source, filter, messages, moved).await?;
    }
    Ok(())
}

async fn move_into(
    shards: &ShardClient,
    queue: &Name,
    to: Name,
    filter: Filter,
    max: u64,
    moved: &mut u64,
) -> Result<(), Fault> {
    let bulk_op = BulkOp {
        filter,
        action: BulkAction::RedriveInto(to),
        ..BulkOp::show(queue.clone(), ListState::Ready, u32::MAX)
    };
    let mut slices = Slices::of(bulk_op).at_most(max, u32::MAX);
    while max > 0
        && let Some(bulk_op) = slices.slice()
    {
        let bulk_done = shards.bulk(bulk_op).await?;
        *moved += bulk_done.matched;
        slices.done(&bulk_done);
    }
    Ok(())
}

/// The queues that so many of the oldest dead letters came from, and how many of these each.
/// Those of other queues than `back_to` stay; `after` leaves those in front out from then on.
async fn sources(
    shards: &ShardClient,
    from: &Name,
    back_to: Option<&[String]>,
    max: u64,
    after: &mut Option<Cursor>,
) -> Result<BTreeMap<Name, u64>, Fault> {
    let may = |source: &Name| {
        back_to.is_none_or(|names| {
            names
                .iter()
                .any(|name| name.as_bytes() == source.as_bytes())
        })
    };
    let mut slices = Slices::of(BulkOp {
        filter: Filter {
            dead: true,
            ..Filter::default()
        },
        after: *after,
        ..BulkOp::show(from.clone(), ListState::Ready, 0)
    });
    let mut sources = BTreeMap::new();
    let mut left = max;
    while left > 0
        && let Some(bulk_op) = slices.slice()
    {
        // Many of those in front may stay.
        let page = back_to.map_or(left, |_| left.max(PAGE));
        bulk_op.max = u32::try_from(page).unwrap_or(u32::MAX);
        let bulk_done = shards.bulk(bulk_op).await?;
        let came_from = bulk_done.messages.iter().filter_map(Message::came_from);
        for source in came_from
            .filter(may)
            .take(usize::try_from(left).unwrap_or(usize::MAX))
        {
            *sources.entry(source).or_default() += 1;
            left -= 1;
        }
        slices.done(&bulk_done);
        if sources.is_empty() {
            // Nothing in front of it may ever go.
            *after = bulk_done.next.or(*after);
        }
    }
    Ok(sources)
}
