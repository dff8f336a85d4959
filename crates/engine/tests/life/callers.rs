//! The rights of one caller never serve another one, also where both are decided in the same step.

use std::sync::Arc;

use quintet_types::*;

use crate::world::{World, reserve};

const OWNER: Principal = Principal::FIRST;
const GUEST: Principal = Principal(3);

/// The owner may do everything. The guest may use the queue `theirs` alone, and its account has no
/// room for another queue.
struct Rights(Arc<Account>);

impl Permits for Rights {
    fn may(&mut self, principal: Principal, _: Verb, queue: &Name) -> bool {
        principal == OWNER || queue.as_bytes() == b"theirs"
    }

    fn may_all(&mut self, principal: Principal, _: Verb) -> bool {
        principal == OWNER
    }

    fn maker(&mut self, principal: Principal) -> Option<Box<[u8]>> {
        Some(principal.0.to_string().into_bytes().into())
    }

    fn account(&mut self, maker: &[u8]) -> Option<Arc<Account>> {
        (maker == b"3").then(|| Arc::clone(&self.0))
    }
}

fn caller(principal: Principal) -> Caller {
    let client_id = ClientId(u64::from(principal.0));
    Caller {
        client_id,
        principal,
    }
}

fn put(queue: &str, batch: Option<BatchId>) -> Put {
    Put {
        queue: queue.into(),
        body: Body::new(b"body"),
        more: Some(Box::new(PutMore {
            name: Some(b"name".as_slice().into()),
            batch: batch.map(Tie::member),
            ..PutMore::default()
        })),
        ..Put::default()
    }
}

/// A put comes first, so that the step waits for memory whatever the command is.
fn step(queue: &str, then: Command) -> Command {
    Command::Transaction(Box::new(Transaction {
        effects: vec![Effect::Put(put(queue, None))],
        then: Some(Box::new(then)),
        ..Transaction::default()
    }))
}

/// The owner has a message, a lease and a batch; the guest has one queue.
struct Scene {
    world: World,
    message: MessageId,
    batch: BatchId,
}

impl Scene {
    fn new() -> Self {
        let mut world = World::new();
        let account = Arc::new(Account::default());
        account.limit(1, 0);
        world.engine.set_permits(Some(Box::new(Rights(account))));
        let mut ask = |who, command| match world.submit(caller(who), command) {
            Answer::Now(outcome, _) => outcome,
            Answer::Later => panic!("it waits"),
        };
        ask(GUEST, Command::Put(put("theirs", None)));
        let put = ask(OWNER, Command::Put(put("ours", None)));
        ask(OWNER, Command::Take(reserve("ours")));
        let Outcome::Put { id: message, .. } = put else {
            panic!("{put:?}");
        };
        let new = NewBatch {
            success: Some(Callback {
                queue: "ours".into(),
                ..Callback::default()
            }),
            ..NewBatch::default()
        };
        let Outcome::Batch(batch) = ask(OWNER, Command::Batch(BatchRequest::New(Box::new(new))))
        else {
            panic!("a batch is made");
        };
        Self {
            world,
            message,
            batch: batch.id,
        }
    }

    /// Commands that use each right of the owner, done and refused.
    fn of_the_owner(&self) -> Vec<Command> {
        let (id, batch) = (self.message, self.batch);
        let unknown = BatchId(99);
        vec![
            Command::Put(put("ours", None)),
            Command::Put(put("another", Some(batch))),
            Command::Put(put("ours", Some(unknown))),
            Command::Put(put("", None)),
            Command::PutMany(vec![put("third", Some(batch)), put("ours", None)]),
            Command::PutMany(vec![put("third", Some(batch)), put("", None)]),
            Command::PutMany(vec![put("third", Some(unknown))]),
            step("ours", Command::Put(put("fourth", Some(batch)))),
            step("ours", Command::Put(put("", None))),
            step("ours", Command::Batch(BatchRequest::Commit(batch))),
            step("ours", Command::Batch(BatchRequest::Commit(unknown))),
            step("ours", Command::KickId(id)),
            step("ours", Command::KickId(MessageId(99))),
            step("fifth", Command::Take(reserve("sixth"))),
            step("ours", Command::Take(reserve(""))),
            step("ours", step("ours", Command::BurnId)),
        ]
    }

    /// Commands that nobody but the owner may do, each in a step that waits for memory.
    fn of_the_guest(&self) -> Vec<Command> {
        let (id, batch) = (self.message, self.batch);
        let name = b"name".as_slice().into();
        let by_name = ByName {
            queue: None,
            name,
            by: By::Anyone,
            action: NamedAction::Settle(How::Finish),
        };
        vec![
            Command::Put(put("new", None)),
            Command::PutMany(vec![put("new", None)]),
            Command::Put(put("theirs", Some(batch))),
            Command::PutMany(vec![put("theirs", Some(batch))]),
            step("new", Command::BurnId),
            step("theirs", Command::Batch(BatchRequest::Show(batch))),
            step("theirs", Command::Batch(BatchRequest::Commit(batch))),
            step("theirs", Command::KickId(id)),
            step("theirs", Command::ByName(Box::new(by_name))),
        ]
    }

    /// The guest's outcome when its command is decided behind these, all in one step.
    fn decide_behind(&mut self, before: &[Command], guest: Command) -> Outcome {
        let w = &mut self.world;
        w.engine.set_memory_room(1);
        for command in before {
            let answer = w.submit(caller(OWNER), command.clone());
            assert!(matches!(answer, Answer::Later), "{command:?} waits");
        }
        let answer = w.submit(caller(GUEST), guest);
        assert!(matches!(answer, Answer::Later), "the guest's waits");
        w.engine.set_memory_room(0);
        w.tick();
        w.verify();
        let received = w.deliveries.drain(..);
        let mut guest = received.filter(|delivery| delivery.to == caller(GUEST).client_id);
        guest.next().expect("the guest is answered").outcome
    }
}

#[test]
fn no_command_leaves_its_rights_to_another_caller_of_its_step() {
    let commands = Scene::new().of_the_owner();
    let mut before: Vec<Vec<Command>> = vec![vec![]];
    before.extend(commands.iter().map(|one| vec![one.clone()]));
    for one in &commands {
        before.extend(commands.iter().map(|next| vec![one.clone(), next.clone()]));
    }
    for before in before {
        for guest in Scene::new().of_the_guest() {
            let outcome = Scene::new().decide_behind(&before, guest.clone());
            assert!(
                matches!(outcome, Outcome::Refused(_)),
                "{guest:?} behind {before:?}: {outcome:?}"
            );
        }
    }
}

/// Queues that a step makes for a caller are counted to it, whatever else is in the step.
#[test]
fn effects_of_a_step_are_counted_to_its_caller_before_and_behind_its_command() {
    for then in [Command::BurnId, Command::Take(reserve("theirs"))] {
        let mut w = World::new();
        let account = Arc::new(Account::default());
        w.engine
            .set_permits(Some(Box::new(Rights(Arc::clone(&account)))));
        w.submit(caller(GUEST), step("new", then.clone()));
        assert_eq!(account.queues(), 1, "{then:?}");
    }
}
