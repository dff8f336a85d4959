//! Moves of dead letters beside what others do to the queues they go back to.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use quintet_door::{Arrive, Door, OnOutcome, StoreError};
use quintet_engine::{Body, Caller, Command, Ms, Name, Party, StatsOf, SweepAct};
use quintet_sim::door::SimDoor;
use serde_json::json;

use crate::world::{PATIENCE, Served, sim};

/// A door that keeps the steps of moves until it is told to let them through, and notes what
/// comes meanwhile.
struct Gate {
    door: Arc<SimDoor>,
    open: AtomicBool,
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Default)]
struct Inside {
    kept: Option<(Caller, Command, OnOutcome)>,
    /// Queues whose numbers were looked at, and that were dropped, while a step is kept.
    looked: Vec<Name>,
    dropped: Vec<Name>,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            door: sim(),
            open: AtomicBool::new(false),
            inside: Mutex::default(),
            changed: Condvar::new(),
        })
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

    fn let_through(&self) {
        self.open.store(true, Ordering::SeqCst);
        let kept = self.inside().kept.take();
        let (caller, command, reply) = kept.expect("one is kept");
        self.door.submit(caller, command, reply);
    }
}

impl Door for Gate {
    fn now(&self) -> Ms {
        self.door.now()
    }

    fn wall(&self) -> Ms {
        self.door.wall()
    }

    fn epoch(&self) -> u64 {
        self.door.epoch()
    }

    fn enter(&self, arrive: Arrive) -> Party {
        self.door.enter(arrive)
    }

    fn leave(&self, party: Party) {
        self.door.leave(party);
    }

    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        let moves = matches!(&command, Command::Sweep(sweep)
            if matches!(sweep.act, SweepAct::Redrive { .. }));
        let mut inside = self.inside();
        if moves && !self.open.load(Ordering::SeqCst) {
            inside.kept = Some((caller, command, reply));
            self.changed.notify_all();
            return;
        }
        if inside.kept.is_some() {
            match &command {
                Command::Drop(queue) => inside.dropped.push(queue.clone()),
                Command::Stats(StatsOf::Queue(queue)) => {
                    inside.looked.push(queue.clone());
                }
                _ => {}
            }
            self.changed.notify_all();
        }
        drop(inside);
        self.door.submit(caller, command, reply);
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        self.door.read(body, from, into)
    }

    fn store(&self, queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        self.door.store(queue, len, source)
    }
}

/// A queue that is deleted while a step puts messages back into it is deleted behind that step,
/// and not made again by it.
#[test]
fn a_delete_waits_for_the_step_of_a_move_to_its_queue() {
    let gate = Gate::new();
    let served = Served::new(gate.clone());
    let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let policy = json!({"deadLetterTargetArn": arn("dead"), "maxReceiveCount": 1}).to_string();
    served.yes("CreateQueue", &json!({"QueueName": "dead"}));
    let attributes = json!({"RedrivePolicy": policy});
    served.yes(
        "CreateQueue",
        &json!({"QueueName": "source", "Attributes": attributes}),
    );
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
    served.yes("StartMessageMoveTask", &json!({"SourceArn": arn("dead")}));
    gate.wait(|inside| inside.kept.is_some());
    std::thread::scope(|scope| {
        let deletes = scope.spawn(|| served.yes("DeleteQueue", &json!({"QueueUrl": "source"})));
        gate.wait(|inside| inside.looked.contains(&Name::from("source")));
        // One thread serves all: when others were answered the delete has gone as far as it can.
        for _ in 0..3 {
            served.yes("ListQueues", &json!({}));
        }
        assert_eq!(gate.inside().dropped, [], "not before the step is over");
        gate.let_through();
        deletes.join().expect("answered");
    });
    let left = served.yes("ListQueues", &json!({}));
    let urls = left["QueueUrls"].as_array().expect("one is left");
    assert_eq!(urls.len(), 1, "{left}");
    assert!(
        urls[0].as_str().is_some_and(|url| url.ends_with("/dead")),
        "{left}"
    );
}
