//! Messages in runs: each command answers as if they were in memory, and nothing has happened
//! before they are read.

use std::collections::BTreeMap;

use quintet_engine::*;
use quintet_types::*;

use crate::world::{World, open, plain, prioritized, reserve, text, waiting};

/// Messages in runs, a block each, by run and ordinal.
#[derive(Default)]
pub(crate) struct Runs {
    blocks: BTreeMap<(u32, u32), Message>,
    next: u32,
}

impl Runs {
    /// Everything that may leaves memory.
    pub(crate) fn evict(&mut self, w: &mut World) {
        let mut picked = Vec::new();
        let rest = w
            .engine
            .pick_segment_ref(SegmentRef(0), 0, u32::MAX, &mut picked);
        assert_eq!(rest, None);
        picked.sort_by_key(|p| {
            (
                p.message.queue,
                p.state_index,
                p.state_index.order(&p.message),
            )
        });
        let run = self.next;
        self.next += 1;
        for (ordinal, picked) in (0..).zip(picked) {
            let written = Written {
                number: ordinal,
                ordinal,
                queue: picked.message.queue,
                state_index: picked.state_index,
                entries: vec![(picked.message.id, picked.pick)],
            };
            assert_eq!(w.engine.evict(RunId(run), &written, &mut w.facts), 1);
            self.blocks.insert((run, ordinal), picked.message);
        }
        w.engine.verify().unwrap();
    }

    fn find(&self, is: impl Fn(&Message) -> bool) -> Vec<(RunId, u32)> {
        let found = self.blocks.iter().filter(|(_, message)| is(message));
        found.map(|(&(run, at), _)| (RunId(run), at)).collect()
    }

    /// Reads what is asked for, until nothing is.
    pub(crate) fn read(&self, w: &mut World) {
        for round in 0.. {
            assert!(round < 100, "it asks again and again");
            let wants = w.engine.take_wants();
            if wants.is_empty() {
                return;
            }
            let found = wants.into_iter().map(|want| match want {
                Want::Block(at, _) => {
                    let message = self.blocks[&(at.run.0, at.ordinal)].clone();
                    LookupResult::Block(at, Some(vec![(at.ordinal, message)]))
                }
                Want::Id(id) => LookupResult::Id(id, self.find(|message| message.id == id)),
                Want::Key(queue, key) => {
                    let found = self.find(|message| message.key() == Some(&key));
                    LookupResult::Key(queue, key, found)
                }
                Want::Room => panic!("nothing is put"),
            });
            let found = found.collect();
            w.engine
                .supply(w.now, found, &mut w.facts, &mut w.deliveries);
            w.engine.verify().unwrap();
        }
    }
}

/// Of each kind: ready, not selectable, delayed, buried, archived, reserved.
fn world() -> World {
    let mut settings = Settings::default();
    settings.rules.push((
        Pattern::new("full"),
        Overrides {
            messages_max: Some(2),
            when_full: Some(WhenFull::DropOldest),
            ..Overrides::default()
        },
    ));
    let mut w = World::with(settings);
    for (priority, body) in [(3, "1"), (5, "2"), (4, "3")] {
        w.put_as(prioritized("q", priority, body));
    }
    for (due, queue, body) in [(9000, "q", "4"), (0, "full", "5"), (0, "full", "6")] {
        w.put_as(Put {
            due: When::In(due),
            ..prioritized(queue, 5, body)
        });
    }
    let buries = |reason: &[u8]| How::Bury {
        priority: None,
        reason: reason.into(),
    };
    for how in [buries(b"a"), buries(b"b"), archive()] {
        let id = w.put("aside", "7");
        let by = By::Anyone;
        w.ask(1, Command::Settle { id, by, how });
    }
    w.put_as(Put {
        more: Some(Box::new(PutMore {
            not_selectable: true,
            ..PutMore::default()
        })),
        ..prioritized("q", 5, "10")
    });
    w.put("held", "11");
    assert_eq!(w.take(1, open("held")), "11");
    w
}

fn archive() -> How {
    How::Archive {
        relayed: false,
        status: Box::default(),
    }
}

fn list(queue: &str, state: ListState, after: Option<Cursor>) -> Command {
    Command::BulkOp(Box::new(BulkOp {
        after,
        ..BulkOp::show(queue.into(), state, 9)
    }))
}

/// A place behind all messages of this priority.
fn behind(priority: u32, not_selectable: bool) -> Option<Cursor> {
    Some(Cursor {
        not_selectable,
        order: (priority, i64::MAX, MessageId(u64::MAX)),
    })
}

fn back(queue: &str, state: ListState) -> Command {
    Command::BulkOp(Box::new(BulkOp {
        action: BulkAction::ShowBack,
        ..BulkOp::show(queue.into(), state, 9)
    }))
}

fn kick(state: ListState) -> Command {
    Command::Kick {
        queue: "aside".into(),
        state,
        max: 9,
    }
}

fn moves(state: ListState) -> Command {
    Command::BulkOp(Box::new(BulkOp {
        action: BulkAction::Move("r".into()),
        ..BulkOp::show("q".into(), state, 9)
    }))
}

fn transaction(effects: Vec<Effect>, then: Option<Command>) -> Command {
    Command::Transaction(Box::new(Transaction {
        guards: vec![],
        effects,
        then: then.map(Box::new),
    }))
}

/// Each asks for something that is in a run.
fn commands() -> Vec<Command> {
    let id = MessageId;
    let lease = open("q").lease.expect("a lease");
    let of = |queue: &str| prioritized(queue, 5, "new");
    let many = Take {
        messages_max: 9,
        ..plain("q")
    };
    let newest = Take {
        end: End::Newest,
        ..plain("q")
    };
    let edit = Edit {
        priority: Some(1),
        ..Edit::default()
    };
    let delete = |number| Effect::Delete(id(number));
    vec![
        back("q", ListState::Ready),
        back("aside", ListState::Buried),
        Command::Take(plain("q")),
        Command::Take(reserve("q")),
        Command::Take(waiting("q")),
        Command::Take(many),
        Command::Take(newest),
        Command::Settle {
            id: id(1),
            by: By::Anyone,
            how: archive(),
        },
        Command::Delete {
            id: id(7),
            by: By::Anyone,
        },
        Command::ReserveId { id: id(2), lease },
        Command::KickId(id(4)),
        Command::Move {
            id: id(3),
            to: "r".into(),
        },
        Command::Edit(id(2), Box::new(edit)),
        Command::Stats(StatsOf::Message(id(9))),
        Command::Peek(Peek::Id(id(8))),
        Command::Peek(Peek::Ready("q".into())),
        Command::Peek(Peek::Delayed("q".into())),
        Command::Peek(Peek::Buried("aside".into())),
        list("q", ListState::Ready, None),
        list("q", ListState::Ready, behind(4, false)),
        list("q", ListState::Ready, behind(4, true)),
        list("q", ListState::Delayed, None),
        list("aside", ListState::Buried, None),
        list("aside", ListState::Archived, None),
        kick(ListState::Buried),
        moves(ListState::Ready),
        moves(ListState::Delayed),
        Command::Put(of("full")),
        Command::PutMany(vec![of("new"), of("full"), of("full")]),
        transaction(vec![delete(1), delete(7)], None),
        transaction(vec![Effect::Put(of("full"))], None),
        transaction(vec![], Some(Command::KickId(id(8)))),
        transaction(
            vec![Effect::Put(of("q"))],
            Some(Command::Delete {
                id: id(2),
                by: By::Anyone,
            }),
        ),
    ]
}

/// The content afterwards, in words.
fn rest(w: &mut World, runs: &Runs) -> String {
    let mut rest = String::new();
    for queue in ["q", "r", "aside", "full", "new", "held"] {
        for state in [ListState::Ready, ListState::Buried, ListState::Archived] {
            let listed = w.ask(7, list(queue, state, None));
            runs.read(w);
            let listed = listed.or_else(|| w.deliveries.pop().map(|d| d.outcome));
            let listed = match listed.expect("answered") {
                Outcome::BulkDone(done) => {
                    let all = done.messages.iter();
                    all.map(|m| (m.id.0, m.priority)).collect()
                }
                _ => Vec::new(),
            };
            rest += &format!("{queue} {state:?}: {listed:?}\n");
        }
    }
    rest
}

/// Without what only says where a message lies.
fn describe(outcome: Outcome) -> String {
    let ids = |all: &Handed| all.iter().map(|m| m.id.0).collect::<Vec<_>>();
    match &outcome {
        Outcome::Messages(all) => format!("{} {:?}", text(&outcome), ids(all)),
        Outcome::BulkDone(done) => {
            let ids = done.messages.iter().map(|m| m.id.0).collect::<Vec<_>>();
            format!("{} {} {ids:?}", done.matched, done.examined)
        }
        Outcome::Stats(stats) => match &**stats {
            StatsReply::Message(stats) => format!("{} of {}", stats.message.id.0, stats.queue),
            other => panic!("{other:?}"),
        },
        _ => text(&outcome),
    }
}

#[test]
fn every_command_answers_as_if_all_were_in_memory() {
    for command in commands() {
        let (mut hot, nothing) = (world(), Runs::default());
        let expected = hot.ask(1, command.clone()).map(describe).expect("answered");
        let expected = (expected, rest(&mut hot, &nothing));
        let (mut cold, mut runs) = (world(), Runs::default());
        runs.evict(&mut cold);
        let before = cold.facts.len();
        assert_eq!(cold.ask(1, command.clone()), None, "{command:?}");
        assert_eq!(cold.facts.len(), before, "{command:?}");
        runs.read(&mut cold);
        let answered = cold.deliveries.pop().expect("answered").outcome;
        assert_eq!(cold.deliveries.len(), 0, "{command:?}");
        let answered = (describe(answered), rest(&mut cold, &runs));
        assert_eq!(answered, expected, "{command:?}");
        cold.restart();
    }
}

/// An effect's change is not made again when the take has got its blocks.
#[test]
fn a_take_behind_effects_waits_for_a_run_alone() {
    let (mut w, mut runs) = (world(), Runs::default());
    runs.evict(&mut w);
    let first = prioritized("q", 1, "first");
    let effects = vec![
        Effect::Put(first),
        Effect::Put(prioritized("r", 1, "other")),
    ];
    let both = Take {
        messages_max: 2,
        ..plain("q")
    };
    let command = transaction(effects.clone(), Some(Command::Take(both)));
    assert_eq!(w.ask(1, command), None);
    let put = |fact: &&Fact| matches!(fact, Fact::Put(message) if message.priority == 1);
    assert_eq!(w.facts.iter().filter(put).count(), 2);
    runs.read(&mut w);
    assert_eq!(w.delivered(), [(1, "first+1".into())]);
    assert_eq!(w.facts.iter().filter(put).count(), 2);
    // One that finds what an effect put takes it at once.
    let command = transaction(effects, Some(Command::Take(plain("q"))));
    let Some(Outcome::Transaction { then, .. }) = w.ask(1, command) else {
        panic!("nothing was to be read");
    };
    assert_eq!(text(then.as_deref().expect("answered")), "first");
    // One whose first message an effect removes gets the next one.
    let (mut w, mut runs) = (world(), Runs::default());
    runs.evict(&mut w);
    let first = w.put_as(prioritized("q", 1, "first"));
    let delete = vec![Effect::Delete(first)];
    let command = transaction(delete, Some(Command::Take(plain("q"))));
    assert_eq!(w.ask(1, command), None);
    runs.read(&mut w);
    assert_eq!(w.delivered(), [(1, "1".into())]);
}

/// While memory is short what is due in runs is read block by block, so that
/// puts need not wait for it; one who takes does not wait for that.
#[test]
fn due_messages_are_read_no_faster_than_memory_allows() {
    let due_in_runs = |room| {
        let (mut w, mut runs) = (World::new(), Runs::default());
        for body in ["1", "2", "3", "4"] {
            w.put_as(Put {
                due: When::In(1000),
                ..prioritized("q", 5, body)
            });
        }
        runs.evict(&mut w);
        w.engine.set_memory_room(room);
        (w, runs)
    };
    // When each is read, after their time.
    let reads = |room| {
        let (mut w, runs) = due_in_runs(room);
        let due = w.now + 1000;
        let mut reads = Vec::new();
        while reads.len() < 4 {
            w.now = w.engine.next_deadline();
            w.tick();
            if w.engine.has_wants() {
                reads.push(w.now.0 - due.0);
                runs.read(&mut w);
            }
        }
        let popped: Vec<String> = (0..4).map(|_| w.pop("q")).collect();
        assert_eq!(popped, ["1", "2", "3", "4"]);
        reads
    };
    assert_eq!(reads(0), [0, 0, 0, 0], "no bound");
    assert_eq!(reads(1 << 30), [0, 0, 0, 0], "enough");
    // Before the first one nothing was in memory.
    assert_eq!(reads(1), [0, 0, 2, 4]);

    let (mut w, runs) = due_in_runs(1);
    w.wait(1000);
    runs.read(&mut w);
    assert_eq!(
        w.ask(1, Command::Take(plain("q"))),
        None,
        "it may not be the first"
    );
    runs.read(&mut w);
    assert_eq!(w.delivered(), [(1, "1".into())]);
}

/// A start, which has read no block, knows none that cannot be read.
#[test]
fn a_flush_and_a_drop_take_blocks_that_cannot_be_read() {
    let (mut w, mut runs) = (World::new(), Runs::default());
    for queue in ["flushed", "dropped"] {
        w.put(queue, "a");
    }
    runs.evict(&mut w);
    // Not by `ask`: messages are counted that cannot be found.
    let ask = |w: &mut World, command| w.submit(Caller::server(ClientId(1)), command);
    for queue in ["flushed", "dropped"] {
        ask(&mut w, Command::Take(plain(queue)));
        let wants = w.engine.take_wants().into_iter();
        let unread = |want: Want| match want {
            Want::Block(at, _) => LookupResult::Block(at, None),
            Want::Id(..) | Want::Key(..) | Want::Room => panic!("{want:?} for a block"),
        };
        let found = wants.map(unread).collect();
        w.engine
            .supply(w.now, found, &mut w.facts, &mut w.deliveries);
        ask(
            &mut w,
            Command::Put(Put::new(queue.into(), Body::new(b"b"))),
        );
    }
    assert_eq!(w.engine.cold_stats().blocks, 2);
    let flush = Command::Flush {
        queue: "flushed".into(),
        reserved: false,
    };
    for (command, left) in [(flush, 1), (Command::Drop("dropped".into()), 0)] {
        ask(&mut w, command);
        assert_eq!(w.engine.cold_stats().blocks, left);
        let replayed = w.replayed(SegmentRef(0)).image();
        assert_eq!(replayed, w.engine.image());
    }
}
