//! Messages that are moved to a queue of another shard, and where they are in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quintet_types::{Body, Caller, Command, Effect, Expiry, Name, Outcome, Put, Transaction, Wait};

use super::client::{QUEUES, number, take_from};
use super::node::{Node, Serving};
use super::run::{CALM, Moved, Run};
use crate::{Access, Decided, Trail, locked};

/// Two queues of different shards that no client takes from.
const MOVED: [&str; 2] = ["x", "y"];

impl Node {
    /// The hooks thread, which is slow now and then: what expires goes to the other queue.
    pub(super) fn run_hook(&self, serving: &Serving) {
        let Some(decided) = &self.ground.hook else {
            return;
        };
        if locked(&self.dispatcher).random.chance(1, 2) {
            return;
        }
        let core = &serving.core;
        for pending in core.take_pending_decisions() {
            let to = MOVED[usize::from(pending.queue.as_bytes() == MOVED[0].as_bytes())];
            let step = Transaction {
                effects: vec![Effect::Move {
                    id: pending.message.id,
                    to: Name::from(to),
                }],
                ..Transaction::default()
            };
            let caller = Caller::server(core.own_client());
            let mut trail = Trail::default();
            let step = Command::Transaction(Box::new(step));
            let done = Access::new(core, core.clock.now(), &mut trail).submit(caller, step);
            if let Decided::Now(outcome, ..) = done {
                assert!(
                    matches!(outcome, Outcome::Transaction { .. }),
                    "{outcome:?}"
                );
            }
            core.see_to(trail);
            decided.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Run {
    /// Puts a message, or moves one, now and then.
    pub(super) fn mover(&self) {
        let pause = {
            let state = &mut *locked(&self.state);
            if state.still {
                return;
            }
            let pause = 50 + state.random.below(600);
            let waits = state
                .moves
                .iter()
                .filter(|(_, one)| one.id.is_some() && !one.requested);
            let waits: Vec<u64> = waits.map(|(body, _)| *body).collect();
            let moves = !waits.is_empty() && state.random.chance(1, 2);
            if let Some((_, node)) = state.serving() {
                let (body, command) = if moves {
                    let body = waits[state.random.index(waits.len())];
                    let one = state.moves.entry(body).or_default();
                    one.requested = true;
                    let id = one.id.unwrap_or_default();
                    let to = Name::from(MOVED[1 - one.from]);
                    (body, Command::Move { id, to })
                } else {
                    let (body, from) = (state.next(), state.random.index(2));
                    let mut put = Put::new(Name::from(MOVED[from]), Body::new(&body.to_le_bytes()));
                    // A hook moves those that expire.
                    let hooked = self.ground.hook.is_some() && state.random.chance(1, 2);
                    if hooked {
                        put.expires = Expiry::In(1 + state.random.below(3_000));
                    }
                    let one = Moved {
                        from,
                        id: None,
                        requested: hooked,
                        moved: hooked,
                    };
                    state.moves.insert(body, one);
                    (body, Command::Put(put))
                };
                let client_id = state.next();
                self.submit(&node, client_id, command, move |run, outcome| {
                    let state = &mut *locked(&run.state);
                    let one = state.moves.entry(body).or_default();
                    if let Outcome::Put { id, .. } = outcome {
                        one.id = Some(*id);
                    } else if *outcome == Outcome::Done {
                        one.moved = true;
                    }
                });
            }
            pause
        };
        self.after(Duration::from_millis(pause), Self::mover);
    }

    /// Where each message is now that nothing goes wrong any more, all of which are taken.
    pub(super) fn drain_moves(&self) {
        let mut there: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, queue) in MOVED.iter().enumerate() {
            while let Some(body) = self.take_moved(queue) {
                there.entry(body).or_default().push(at);
            }
        }
        let moves = std::mem::take(&mut locked(&self.state).moves);
        for (body, one) in moves {
            let found = there.get(&body).map_or(&[][..], |at| at);
            let right = match found {
                [] => one.id.is_none(),
                [at] if one.moved => *at != one.from,
                [at] => one.requested || *at == one.from,
                _ => false,
            };
            assert!(right, "message {body}, {one:?}, is in {found:?}");
        }
    }

    fn take_moved(&self, queue: &str) -> Option<u64> {
        let came = Arc::new(std::sync::Mutex::new(None));
        {
            let state = &mut *locked(&self.state);
            let (_, node) = state.serving().expect("somebody serves");
            let (client_id, received) = (state.next(), Arc::clone(&came));
            let command = take_from(queue, true, Wait::No);
            self.submit(&node, client_id, command, move |_, outcome| {
                *locked(&received) = Some(outcome.clone());
            });
        }
        let answered = self.wait(CALM, || locked(&came).is_some());
        assert!(answered, "nothing goes wrong, and nobody answers");
        let outcome = locked(&came).take();
        match outcome {
            Some(Outcome::Messages(messages)) => Some(number(&messages[0].body)),
            other => {
                assert_eq!(other, Some(Outcome::Empty));
                None
            }
        }
    }
}

#[test]
fn the_queues_are_of_both_shards() {
    let run = Run::with(1, super::node::Without::Nothing, true);
    run.after(Duration::ZERO, Run::tend);
    let served = || locked(&run.state).serving();
    assert!(run.wait(CALM, || served().is_some()), "nobody serves");
    let (_, node) = served().expect("just seen");
    let core = &node.host().expect("it serves").core;
    let shard = |queue: &str| core.shard_of_queue(queue.as_bytes());
    assert_ne!(shard(MOVED[0]), shard(MOVED[1]));
    assert!(QUEUES.iter().any(|queue| shard(queue) != shard(QUEUES[0])));
}
