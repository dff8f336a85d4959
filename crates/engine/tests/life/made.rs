//! Makers of queues, and the bounds of one user's queues.

use std::sync::Arc;

use quintet_engine::*;
use quintet_types::*;

use crate::world::World;

/// Everybody may do everything; each user from the second on has a name, and one of them an
/// account.
struct Users {
    account: Arc<Account>,
}

impl Permits for Users {
    fn may(&mut self, _: Principal, _: Verb, _: &Name) -> bool {
        true
    }

    fn may_all(&mut self, _: Principal, _: Verb) -> bool {
        true
    }

    fn maker(&mut self, principal: Principal) -> Option<Box<[u8]>> {
        (principal >= Principal::FIRST).then(|| principal.0.to_string().into_bytes().into())
    }

    fn account(&mut self, maker: &[u8]) -> Option<Arc<Account>> {
        (maker == b"2").then(|| Arc::clone(&self.account))
    }
}

const ANN: Principal = Principal::FIRST;
const BOB: Principal = Principal(3);

fn permit(w: &mut World, account: &Arc<Account>) {
    w.engine.set_permits(Some(Box::new(Users {
        account: Arc::clone(account),
    })));
}

fn ask(w: &mut World, principal: Principal, command: Command) -> Outcome {
    let client_id = ClientId(u64::from(principal.0) + 1);
    let answer = w.submit(
        Caller {
            client_id,
            principal,
        },
        command,
    );
    w.verify();
    match answer {
        Answer::Now(outcome, _) => outcome,
        Answer::Later => panic!("it waits"),
    }
}

fn put(w: &mut World, principal: Principal, queue: &str, bytes: usize) -> Outcome {
    let put = Put {
        queue: queue.into(),
        body: Body::new(&vec![b'x'; bytes]),
        ..Put::default()
    };
    ask(w, principal, Command::Put(put))
}

fn is_put(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Put { .. })
}

fn counted(account: &Account) -> (u64, u64) {
    (account.queues(), account.bytes())
}

#[test]
fn a_user_makes_so_many_queues_and_others_their_own() {
    let mut w = World::new();
    let account = Arc::new(Account::default());
    account.limit(2, 0);
    permit(&mut w, &account);
    assert!(is_put(&put(&mut w, ANN, "a", 1)));
    assert!(is_put(&put(&mut w, ANN, "b", 1)));
    let refused = Outcome::Refused(CommandError::UserQueues);
    assert_eq!(put(&mut w, ANN, "c", 1), refused);
    let puts = ["a", "c"].map(|queue| Put {
        queue: queue.into(),
        ..Put::default()
    });
    let refused_list = ask(&mut w, ANN, Command::PutMany(puts.into()));
    assert_eq!(refused_list, refused);
    // Those that are there, and others' queues, are not its to make.
    assert!(is_put(&put(&mut w, BOB, "c", 1)));
    assert!(is_put(&put(&mut w, ANN, "c", 1)));
    assert!(is_put(&put(&mut w, Principal::ANONYMOUS, "d", 1)));
    assert_eq!(account.queues(), 2);
    let gone = ask(&mut w, ANN, Command::Drop("a".into()));
    assert_eq!(gone, Outcome::Count(1));
    assert!(is_put(&put(&mut w, ANN, "e", 1)));
    assert_eq!(put(&mut w, ANN, "f", 1), refused);
    w.engine.set_permits(None);
    assert_eq!(counted(&account), (0, 0));
}

#[test]
fn stored_bytes_count_for_the_creator_of_the_queue_until_they_leave() {
    let mut w = World::new();
    let account = Arc::new(Account::default());
    account.limit(0, 100);
    permit(&mut w, &account);
    assert!(is_put(&put(&mut w, ANN, "a", 60)));
    assert!(is_put(&put(&mut w, ANN, "b", 30)));
    let refused = Outcome::Refused(CommandError::UserBytes);
    // Whoever puts.
    assert_eq!(put(&mut w, BOB, "a", 11), refused);
    assert!(is_put(&put(&mut w, BOB, "own", 1000)));
    assert!(is_put(&put(&mut w, BOB, "b", 10)));
    assert_eq!(counted(&account), (2, 100));
    let taken = ask(&mut w, BOB, Command::Take(crate::plain("a")));
    assert!(matches!(taken, Outcome::Messages(_)));
    assert_eq!(counted(&account), (2, 40));
    // What is reserved is stored; a message that moves away is not.
    let leased = ask(&mut w, BOB, Command::Take(crate::reserve("b")));
    assert!(matches!(leased, Outcome::Messages(_)));
    assert_eq!(counted(&account), (2, 40));
    assert!(is_put(&put(&mut w, ANN, "a", 60)));
    assert_eq!(
        ask(
            &mut w,
            BOB,
            Command::Flush {
                queue: "a".into(),
                reserved: false
            }
        ),
        Outcome::Count(1)
    );
    assert_eq!(counted(&account), (2, 40));
    assert_eq!(
        ask(&mut w, BOB, Command::Drop("b".into())),
        Outcome::Count(2)
    );
    assert_eq!(counted(&account), (1, 0));
}

#[test]
fn a_restart_and_a_snapshot_know_the_creators_of_queues() {
    let mut w = World::new();
    let account = Arc::new(Account::default());
    permit(&mut w, &account);
    assert!(is_put(&put(&mut w, ANN, "a", 60)));
    assert!(is_put(&put(&mut w, BOB, "b", 30)));
    w.restart();
    // The old engine is gone, and with it what it counted nowhere else.
    let account = Arc::new(Account::default());
    permit(&mut w, &account);
    assert_eq!(counted(&account), (1, 60));
    let mut received = Vec::new();
    w.engine.snapshot(&mut |fact| received.push(fact.clone()));
    let makers: Vec<_> = received
        .iter()
        .filter_map(|fact| match fact {
            Fact::QueueMaker { maker, .. } => Some(String::from_utf8_lossy(maker).into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(makers, ["2", "3"]);
    // Another account, another limit: what is counted goes over.
    let other = Arc::new(Account::default());
    other.limit(1, 0);
    permit(&mut w, &other);
    assert_eq!((counted(&account), counted(&other)), ((0, 0), (1, 60)));
    let refused = Outcome::Refused(CommandError::UserQueues);
    assert_eq!(put(&mut w, ANN, "c", 1), refused);
}

#[test]
fn messages_that_left_memory_count_as_well() {
    let mut w = World::new();
    let account = Arc::new(Account::default());
    account.limit(0, 100);
    permit(&mut w, &account);
    for bytes in [30, 20, 10] {
        assert!(is_put(&put(&mut w, ANN, "a", bytes)));
    }
    let mut picked = Vec::new();
    w.engine
        .pick_segment_ref(SegmentRef(0), 0, u32::MAX, &mut picked);
    picked.sort_by_key(|p| p.state_index.order(&p.message));
    let block = Written {
        number: 0,
        ordinal: 0,
        queue: picked[0].message.queue,
        state_index: picked[0].state_index,
        entries: picked.iter().map(|p| (p.message.id, p.pick)).collect(),
    };
    assert_eq!(w.engine.evict(RunId(0), &block, &mut w.facts), 3);
    assert_eq!(counted(&account), (1, 60));
    let refused = Outcome::Refused(CommandError::UserBytes);
    assert_eq!(put(&mut w, ANN, "a", 41), refused);
    let take = Command::Take(crate::plain("a"));
    assert!(w.ask(1, take).is_none(), "it is read first");
    let read = (0..).zip(picked.into_iter().map(|p| p.message)).collect();
    let block = BlockAt {
        run: RunId(0),
        ordinal: 0,
    };
    let found = vec![LookupResult::Block(block, Some(read))];
    w.engine
        .supply(w.now, found, &mut w.facts, &mut w.deliveries);
    w.verify();
    assert_eq!(counted(&account), (1, 30));
    assert_eq!(
        ask(&mut w, ANN, Command::Drop("a".into())),
        Outcome::Count(2)
    );
    assert_eq!(counted(&account), (0, 0));
}

/// A pause keeps the user that made it, over a restart, until the queue is resumed.
#[test]
fn a_pause_keeps_the_creator_of_its_queue() {
    let mut w = World::new();
    permit(&mut w, &Arc::new(Account::default()));
    put(&mut w, ANN, "a", 1);
    let queue = Name::from("a");
    let pause = |w: &mut World, by, for_ms| {
        let queue = queue.clone();
        let outcome = ask(w, by, Command::Pause { queue, for_ms });
        assert_eq!(outcome, Outcome::Done);
    };
    let noted = |w: &mut World| {
        let of = Command::Stats(StatsOf::Setup(queue.clone()));
        let Outcome::Stats(stats) = ask(w, ANN, of) else {
            panic!("no setup");
        };
        let StatsReply::Setup(setup) = *stats else {
            panic!("no setup");
        };
        let stamp = setup.own.tags.as_ref()?.get(Tags::PAUSED_BY)?;
        Some(String::from_utf8(stamp.to_vec()).expect("text"))
    };
    for for_ms in [None, Some(5000)] {
        pause(&mut w, BOB, for_ms);
        let stamp = format!("{} 3", w.now.0);
        assert_eq!(noted(&mut w), Some(stamp.clone()));
        w.restart();
        permit(&mut w, &Arc::new(Account::default()));
        assert_eq!(noted(&mut w), Some(stamp));
        pause(&mut w, ANN, Some(0));
        assert_eq!(noted(&mut w), None);
    }
    // Nobody in particular takes the place of whoever it was.
    pause(&mut w, BOB, None);
    pause(&mut w, Principal::ANONYMOUS, None);
    assert_eq!(noted(&mut w), None);
}
