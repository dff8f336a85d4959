//! A member that reads entries long after they were appended.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use quintet_cluster::{
    Distrusted, Ends, Fences, Limits, Member, Membership, ReplyFn, Role, Seq, Stream, Tail,
    TailEvent, Timing, World, Writer,
};
use quintet_log::{Log, Options, Stamp, Storage};
use quintet_sim::{cluster::SimWorld, disk::SimDisk, log_tests::facts};

use super::{App, CLUSTER, FOREVER, Work, lock};
use crate::common::{Node, passes_on};
use crate::mem::MemStream;
use crate::upgrade::Old;

type Each = Box<dyn FnMut(TailEvent) + Send>;

/// A stream whose entries are delivered one by one, when the test says so.
#[derive(Clone, Default)]
struct Slow {
    stream: MemStream,
    events: Arc<Mutex<VecDeque<TailEvent>>>,
    each: Arc<Mutex<Option<Each>>>,
    /// The first entry as a deposed leader knows it.
    stale: Arc<Mutex<Option<Seq>>>,
    /// The server that leads, and those whose copies were called damaged.
    leader: Arc<Mutex<&'static str>>,
    blamed: Arc<Mutex<Vec<String>>>,
}

impl Slow {
    /// Whether there was one more.
    fn deliver(&self) -> bool {
        let event = lock(&self.events).pop_front();
        match (event, &mut *lock(&self.each)) {
            (Some(event), Some(each)) => each(event),
            _ => return false,
        }
        true
    }
}

impl Stream for Slow {
    fn name(&self) -> String {
        "a slow stream".to_owned()
    }

    passes_on!(stream: append get purge_below);

    fn ends(&self, callback: ReplyFn<Option<Ends>>) {
        let (stale, leader) = (*lock(&self.stale), *lock(&self.leader));
        let callback = move |ends: Option<Ends>| {
            let stale = |ends: Ends| Ends {
                leader: Some(leader.into()),
                ..Ends::whole(stale.unwrap_or(ends.first), ends.last)
            };
            callback(ends.map(stale));
        };
        self.stream.ends(Box::new(callback));
    }

    fn tail(&self, from: Seq, each: Box<dyn FnMut(TailEvent) + Send>) -> Tail {
        *lock(&self.each) = Some(each);
        let events = Arc::clone(&self.events);
        let keep = Box::new(move |event| lock(&events).push_back(event));
        self.stream.tail(from, keep)
    }

    fn distrust(
        &self,
        ends: Ends,
        bad: &[String],
        doubted: &[String],
        callback: ReplyFn<Distrusted>,
    ) {
        lock(&self.blamed).extend(ends.leader.as_deref().map(str::to_owned));
        self.stream.distrust(ends, bad, doubted, callback);
    }
}

fn follower(slow: &Slow, world: &SimWorld) -> Arc<Member<Work>> {
    member(slow, world, FOREVER, &Arc::default())
}

fn member(
    slow: &Slow,
    world: &SimWorld,
    takeover_after: Duration,
    app: &Arc<Mutex<App>>,
) -> Arc<Member<Work>> {
    let made = Membership {
        stream: Arc::new(slow.clone()),
        mirror: Box::new(|| Ok(Arc::new(SimDisk::new(2)) as Arc<dyn Storage>)),
        options: Options {
            segment_bytes: 64 << 10,
            ..Options::default()
        },
        cluster: CLUSTER,
        writer: Writer(2),
        node: "node 2".to_owned(),
        peer_address: String::new(),
        limits: Limits::default(),
        timing: Timing {
            takeover_after,
            ..Timing::default()
        },
        world: Arc::new(world.clone()),
        fences: Fences::default(),
    };
    Member::start(made, Work(Arc::clone(app))).expect("a member")
}

#[test]
fn a_log_of_version_1_is_claimed_when_all_servers_begin_where_it_was_read() {
    let (entries, _, [second, _]) = Old::log();
    let slow = Slow {
        stream: Old::stream(&entries),
        ..Slow::default()
    };
    slow.stream.purge_below(second, Box::new(|_| ()));
    let (world, app) = (SimWorld::new(), Arc::<Mutex<App>>::default());
    lock(&app).differ = true;
    let member = member(&slow, &world, Timing::default().takeover_after, &app);
    let pass = || {
        for _ in 0..60 {
            while slow.deliver() {}
            world.pass(Duration::from_millis(500));
        }
        member.status().role
    };
    assert_eq!(pass(), Role::Standby, "another copy begins elsewhere");
    assert_eq!(lock(&app).requested_of, Some(second));
    let mut shared = lock(&app);
    shared.differ = false;
    // It is claimed too soon to be seen claiming.
    shared.claimed_at = Some(shared.frames.len());
    drop(shared);
    assert_eq!(pass(), Role::Owner);
    // It says where the log begins: nobody is asked any more.
    assert_eq!(
        lock(&app).acks.as_ref().map(|acks| acks.begins()),
        Some(second)
    );
}

#[test]
fn a_claim_that_is_answered_before_the_member_listens_is_seen() {
    let (slow, world) = (Slow::default(), SimWorld::new());
    let app = Arc::<Mutex<App>>::default();
    lock(&app).lacks = true;
    let member = member(&slow, &world, Timing::default().takeover_after, &app);
    // From here on it only waits until it could serve: four seconds pass until it asks for the
    // stream's ends again, which would wake it in any case.
    world.pass(Duration::from_secs(11));
    assert_eq!(member.status().role, Role::Standby);
    lock(&app).lacks = false;
    world.pass(Duration::from_secs(2));
    assert_eq!(member.status().role, Role::Owner);
}

#[test]
fn a_deposed_leader_with_purged_entries_of_version_1_has_no_damaged_copy() {
    let (entries, _, [second, _]) = Old::log();
    let slow = Slow {
        stream: Old::stream(&entries),
        ..Slow::default()
    };
    slow.stream.purge_below(second, Box::new(|_| ()));
    let world = SimWorld::new();
    let member = follower(&slow, &world);
    for stale in [None, Some(Seq(1))] {
        *lock(&slow.stale) = stale;
        for _ in 0..40 {
            while slow.deliver() {}
            world.pass(Duration::from_millis(500));
        }
        let status = member.status();
        assert_eq!(
            (status.role, status.damage),
            (Role::Standby, None),
            "{stale:?}"
        );
    }
}

#[test]
fn a_member_that_falls_behind_does_not_take_its_clock_for_wrong() {
    let (world, slow) = (SimWorld::new(), Slow::default());
    let mut owner = Node::of(slow.stream.clone(), &world, 1).expect("open");
    let member = follower(&slow, &world);
    for step in 0..160 {
        let stamp = Stamp {
            epoch: owner.log.epoch(),
            time_ms: world.wall_ms(),
        };
        let end = owner.log.end();
        let placed = owner.log.append(end, stamp, &mut facts(b"frame"));
        placed.expect("append");
        if step < 60 {
            while slow.deliver() {}
        } else if step % 4 == 0 {
            slow.deliver();
        }
        world.pass(Duration::from_millis(500));
        let status = member.status();
        let ahead = status.clock_ahead_ms;
        assert!(
            ahead.is_none_or(|ahead| ahead.abs() < 500),
            "{step}: {ahead:?}"
        );
        if step == 60 {
            assert_eq!((status.role, ahead.is_some()), (Role::Standby, true));
        }
    }
    let status = member.status();
    assert!(status.read < status.last, "{status:?}");
}

#[test]
fn a_server_is_blamed_for_an_entry_only_if_it_led_all_the_time_the_entry_was_read() {
    let (entries, _, _) = Old::log();
    let slow = Slow {
        stream: Old::stream(&entries),
        ..Slow::default()
    };
    slow.stream.damage(Seq(7), |entry| entry[30] ^= 1);
    let world = SimWorld::new();
    *lock(&slow.leader) = "bad";
    let member = follower(&slow, &world);
    let pass = || world.pass(Duration::from_secs(6));
    let read = |from: &'static str, to: &'static str| {
        *lock(&slow.leader) = from;
        pass();
        while slow.deliver() {}
        *lock(&slow.leader) = to;
        pass();
    };
    read("bad", "bad");
    assert_eq!(member.status().tally.divergences, 1);
    // The entry is refused again, and another server leads by then.
    read("bad", "good");
    assert_eq!(member.status().tally.divergences, 2);
    assert_eq!(*lock(&slow.blamed), [""; 0]);
    read("good", "good");
    assert_eq!(*lock(&slow.blamed), ["good"]);
    assert_eq!(member.status().role, Role::Stopped);
}
