//! Moves of dead letters beside what others do to the queues they go back to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use quintet_client::{ClientApi, OnOutcome};
use quintet_sim::{Intercepted, client_api::SimApi};
use quintet_types::{BulkAction, Caller, Command, CommandError, ListState, Name, Outcome};
use serde_json::json;

use crate::world::{PATIENCE, Served, sim};

fn moves(command: &Command) -> bool {
    matches!(command, Command::BulkOp(bulk_op)
        if matches!(bulk_op.action, BulkAction::Redrive { .. } | BulkAction::RedriveInto(_)))
}

/// Keeps the steps of moves until a test lets them through.
struct Gate {
    client_api: Arc<SimApi>,
    open: AtomicBool,
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Default)]
struct Inside {
    kept: Option<(Caller, Command, OnOutcome)>,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            client_api: sim(),
            open: AtomicBool::new(false),
            inside: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// A client API whose commands pass this gate.
    fn in_front(self: &Arc<Self>) -> Arc<dyn ClientApi> {
        let gate = Arc::clone(self);
        Intercepted::new(
            Arc::clone(&self.client_api),
            move |client_api, caller, command, reply| {
                let mut inside = gate.inside();
                if moves(&command) && !gate.open.load(Ordering::SeqCst) {
                    inside.kept = Some((caller, command, reply));
                    gate.changed.notify_all();
                    return;
                }
                drop(inside);
                client_api.submit(caller, command, reply);
            },
        )
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&Inside) -> bool) {
        let inside = self.inside();
        let waited = self
            .changed
            .wait_timeout_while(inside, PATIENCE, |inside| !until(inside));
        let (inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(until(&inside), "it did not come");
    }

    fn drop_queue(&self, name: &str) {
        let (sender, received) = mpsc::channel();
        let caller = Caller::server(self.client_api.enter(Box::new(|_, _| {})));
        let drop = Command::Drop(Name::from(name));
        let reply = Box::new(move |outcome, _| sender.send(outcome).expect("somebody listens"));
        self.client_api.submit(caller, drop, reply);
        assert!(matches!(received.recv(), Ok(Outcome::Count(_))));
    }

    fn let_through(&self) {
        self.open.store(true, Ordering::SeqCst);
        let kept = self.inside().kept.take();
        let (caller, command, reply) = kept.expect("one is kept");
        self.client_api.submit(caller, command, reply);
    }
}

/// A queue that somebody else drops when a move has looked at it, and has not yet put anything
/// into it, is gone, and not made again by that step.
#[test]
fn a_dropped_queue_is_not_created_again_by_a_step_of_a_move() {
    for to in [None, Some("to")] {
        let gate = Gate::new();
        let served = Served::new(gate.in_front());
        let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
        let policy = json!({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1}).to_string();
        for name in ["dead", "to"] {
            served.yes("CreateQueue", &json!({"QueueName": name}));
        }
        for name in ["source", "other"] {
            let attributes = json!({"RedrivePolicy": policy});
            let input = json!({"QueueName": name, "Attributes": attributes});
            served.yes("CreateQueue", &input);
        }
        served.yes(
            "SendMessage",
            &json!({"QueueUrl": "source", "MessageBody": "x"}),
        );
        // The second receive finds it dead.
        for _ in 0..2 {
            served.yes(
                "ReceiveMessage",
                &json!({"QueueUrl": "source", "VisibilityTimeout": 0}),
            );
        }
        let mut input = json!({"SourceArn": arn("dead")});
        if let Some(to) = to {
            input["DestinationArn"] = json!(arn(to));
        }
        served.yes("StartMessageMoveTask", &input);
        gate.wait(|inside| inside.kept.is_some());
        // As `quintet drop` does, or the HTTP API.
        let goes = to.unwrap_or("source");
        gate.drop_queue(goes);
        gate.let_through();
        let began = Instant::now();
        let task = loop {
            let tasks = served.yes("ListMessageMoveTasks", &json!({"SourceArn": arn("dead")}));
            let task = tasks["Results"][0].clone();
            if task["Status"] != "RUNNING" {
                break task;
            }
            assert!(began.elapsed() < PATIENCE, "{task}");
        };
        assert_eq!(task["Status"], "FAILED", "{task}");
        assert_eq!(
            task["FailureReason"],
            "AWS.SimpleQueueService.NonExistentQueue"
        );
        let left = served.yes("ListQueues", &json!({}));
        let mut names: Vec<&str> = left["QueueUrls"]
            .as_array()
            .expect("some are left")
            .iter()
            .filter_map(|url| url.as_str()?.rsplit('/').next())
            .collect();
        names.sort_unstable();
        let mut wanted = vec!["dead", "other", "source", "to"];
        wanted.retain(|name| *name != goes);
        assert_eq!(names, wanted);
        let got = served.yes("ReceiveMessage", &json!({"QueueUrl": "dead"}));
        assert_eq!(got["Messages"][0]["Body"], "x");
    }
}

/// While the disk is full a step is tried once a second, and the move goes on when it is not.
#[test]
fn a_move_rests_while_nothing_can_be_stored() {
    const REFUSED: usize = 3;
    let tries = AtomicUsize::new(0);
    let full = Intercepted::new(sim(), move |client_api, caller, command, reply| {
        if moves(&command) && tries.fetch_add(1, Ordering::SeqCst) < REFUSED {
            return reply(Outcome::Refused(CommandError::NoSpace), Name::default());
        }
        client_api.submit(caller, command, reply);
    });
    let served = Served::new(full);
    let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let policy = json!({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1}).to_string();
    served.yes("CreateQueue", &json!({"QueueName": "dead"}));
    let attributes = json!({"RedrivePolicy": policy});
    let input = json!({"QueueName": "source", "Attributes": attributes});
    served.yes("CreateQueue", &input);
    let message = json!({"QueueUrl": "source", "MessageBody": "x"});
    served.yes("SendMessage", &message);
    // The second receive finds it dead.
    for _ in 0..2 {
        let receive = json!({"QueueUrl": "source", "VisibilityTimeout": 0});
        served.yes("ReceiveMessage", &receive);
    }
    let began = Instant::now();
    let source = json!({"SourceArn": arn("dead")});
    served.yes("StartMessageMoveTask", &source);
    loop {
        let tasks = served.yes("ListMessageMoveTasks", &source);
        let task = &tasks["Results"][0];
        if task["Status"] == "COMPLETED" {
            assert_eq!(task["ApproximateNumberOfMessagesMoved"], 1, "{task}");
            break;
        }
        assert_eq!(task["Status"], "RUNNING", "{task}");
        assert!(began.elapsed() < PATIENCE, "{task}");
    }
    let rested = Duration::from_secs(REFUSED as u64);
    assert!(began.elapsed() >= rested, "{:?}", began.elapsed());
}

/// The step that rests when it is cancelled finds that out before it moves anything.
#[test]
fn a_cancelled_move_moves_nothing_more() {
    // Says of each command if it moves messages, once somebody listens.
    let listener: Arc<Mutex<Option<mpsc::Sender<bool>>>> = Arc::default();
    let sender = Arc::clone(&listener);
    let overheard = Intercepted::new(sim(), move |client_api, caller, command, reply| {
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            sender.send(moves(&command)).expect("somebody listens");
        }
        drop(sender);
        client_api.submit(caller, command, reply);
    });
    let served = Served::new(overheard);
    let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let policy = json!({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1}).to_string();
    for name in ["dead", "to"] {
        served.yes("CreateQueue", &json!({"QueueName": name}));
    }
    let attributes = json!({"RedrivePolicy": policy});
    let source = json!({"QueueName": "source", "Attributes": attributes});
    served.yes("CreateQueue", &source);
    for _ in 0..4 {
        served.yes(
            "SendMessage",
            &json!({"QueueUrl": "dead", "MessageBody": "x"}),
        );
    }
    let task = json!({"SourceArn": arn("dead"), "DestinationArn": arn("to"),
        "MaxNumberOfMessagesPerSecond": 1});
    let begun = served.yes("StartMessageMoveTask", &task);
    let list = || served.yes("ListMessageMoveTasks", &json!({"SourceArn": arn("dead")}));
    let moved = |received: &serde_json::Value| {
        received["Results"][0]["ApproximateNumberOfMessagesMoved"].as_u64()
    };
    let began = Instant::now();
    while moved(&list()) != Some(1) {
        assert!(began.elapsed() < PATIENCE, "{}", list());
    }
    let handle = json!({"TaskHandle": begun["TaskHandle"]});
    served.yes("CancelMessageMoveTask", &handle);
    let (sender, received) = mpsc::channel();
    *listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    // The move asks for something when it has rested.
    assert_eq!(received.recv_timeout(PATIENCE), Ok(false));
    let wanted = json!({"QueueUrl": "to", "AttributeNames": ["ApproximateNumberOfMessages"]});
    let there = served.yes("GetQueueAttributes", &wanted);
    assert_eq!(there["Attributes"]["ApproximateNumberOfMessages"], "1");
    assert_eq!(list()["Results"][0]["Status"], "CANCELLED");
}

#[test]
fn a_stop_ends_a_change_of_delay_between_two_steps() {
    let (hold, held) = mpsc::channel();
    let (tell, waits) = mpsc::channel();
    let steps = Arc::new(AtomicUsize::new(0));
    let (counted, client_api) = (Arc::clone(&steps), sim());
    let first = Intercepted::new(
        Arc::clone(&client_api),
        move |client_api: &SimApi, caller: Caller, command: Command, reply: OnOutcome| {
            let is_step = matches!(&command, Command::BulkOp(bulk_op)
                if bulk_op.state == ListState::Delayed);
            if is_step && counted.fetch_add(1, Ordering::SeqCst) == 0 {
                return hold.send((caller, command, reply)).unwrap_or_default();
            }
            let is_take = matches!(command, Command::Take(_));
            client_api.submit(caller, command, reply);
            if is_take {
                tell.send(()).unwrap_or_default();
            }
        },
    );
    let served = Served::new(first);
    let delayed =
        json!({"FifoQueue": "true", "DelaySeconds": "900", "ContentBasedDeduplication": "true"});
    let input = json!({"QueueName": "q.fifo", "Attributes": delayed});
    served.yes("CreateQueue", &input);
    served.yes("CreateQueue", &json!({"QueueName": "empty"}));
    // More than one step has.
    for batch in 0..11 {
        let entry = |number: u32| {
            let body = format!("{batch}-{number}");
            json!({"Id": body, "MessageBody": body, "MessageGroupId": "g"})
        };
        let entries: Vec<_> = (0..10).map(entry).collect();
        let input = json!({"QueueUrl": "q.fifo", "Entries": entries});
        served.yes("SendMessageBatch", &input);
    }
    std::thread::scope(|scope| {
        let input = json!({"QueueUrl": "q.fifo", "Attributes": {"DelaySeconds": "0"}});
        let served = &served;
        let set = scope.spawn(move || served.ask("SetQueueAttributes", &input));
        let (caller, command, reply) = held.recv_timeout(PATIENCE).expect("a step");
        let input = json!({"QueueUrl": "empty", "WaitTimeSeconds": 20});
        let poll = scope.spawn(move || served.ask("ReceiveMessage", &input));
        waits.recv_timeout(PATIENCE).expect("a poll waits");
        scope.spawn(move || served.stop(PATIENCE));
        poll.join().expect("it ends with the stop, as time stands");
        client_api.submit(caller, command, reply);
        let (status, body) = set.join().expect("it is answered");
        assert_ne!(status, 200, "{body}");
    });
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}
