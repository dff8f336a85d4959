//! The log over real servers: the suite every log passes, and what kills and freezes do to it.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc::channel},
};

use quintet_cluster::{Limits, Stream, Threads};
use quintet_jetstream::JetStream;
use quintet_log::{Log, LogError, Position, Stamp};
use quintet_sim::{
    cluster::Over,
    log_tests::{self, Fixture, FrameRecord, facts},
};

use crate::servers::{Fleet, until};

fn log_over(stream: Arc<dyn Stream>, seed: u64) -> Over {
    Over {
        stream,
        world: Arc::new(Threads::new()),
        limits: Limits::default(),
        seed,
    }
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn a_log_over_real_servers_conforms() {
    let fleet = Fleet::start(3);
    let mut made = 0;
    log_tests::run(&mut || {
        made += 1;
        let stream: Arc<dyn Stream> = Arc::new(fleet.stream(&format!("conform{made}")));
        Box::new(log_over(stream, 0))
    });
}

/// An owner that appends frames with a number each.
struct Owner {
    log: Box<dyn Log>,
    next: u32,
}

impl Owner {
    fn append(&mut self) -> Result<(), LogError> {
        let at = self.log.end();
        let stamp = Stamp {
            epoch: quintet_log::Epoch(1),
            time_ms: 5,
        };
        let payload = self.next.to_le_bytes();
        self.log.append(at, stamp, &mut facts(&payload))?;
        self.next += 1;
        Ok(())
    }

    /// Appends so many and waits until they are durable.
    fn append_synced(&mut self, count: u32) -> Result<(), LogError> {
        for _ in 0..count {
            self.append()?;
        }
        let point = self.log.sync_point();
        point.wait()?;
        self.log.synced(point);
        Ok(())
    }
}

fn numbers(seen: &[FrameRecord]) -> Vec<u32> {
    let number =
        |seen: &FrameRecord| u32::from_le_bytes(seen.payload[..4].try_into().expect("four"));
    seen.iter().map(number).collect()
}

/// Each of the servers is killed or frozen under an owner that goes on appending: what was
/// acknowledged is there, in order and once, and the owner goes on by itself.
#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn an_owner_goes_on_over_kills_and_freezes_of_servers() {
    let mut fleet = Fleet::start(3);
    let stream = Arc::new(fleet.stream("faults"));
    let mut over = log_over(Arc::clone(&stream) as Arc<dyn Stream>, 0);
    let (log, _) = over.open();
    let mut owner = Owner { log, next: 0 };
    let mut struck = BTreeSet::new();
    for round in 0..4 {
        owner.append_synced(20).expect("appended");
        let leader = fleet.leader(&stream);
        struck.insert(leader);
        match round % 2 {
            0 => fleet.kill(leader),
            _ => fleet.freeze(leader, true),
        }
        // What is in flight, and what is sent while nobody leads.
        owner.append_synced(40).expect("appended again");
        match round % 2 {
            0 => fleet.begin(leader),
            _ => fleet.freeze(leader, false),
        }
        // The next strike needs two others that have everything.
        until("all servers are current", || {
            let peers = stream.info().ok()??.cluster?;
            let fine = peers.leader.is_some()
                && peers.replicas.len() == 2
                && peers
                    .replicas
                    .iter()
                    .all(|peer| peer.current && !peer.offline);
            fine.then_some(())
        });
    }
    assert!(!struck.is_empty());
    let appended = owner.next;
    drop(owner);
    let (_log, seen) = over.open();
    assert_eq!(numbers(&seen), (0..appended).collect::<Vec<_>>());
}

/// A second owner deposes the first: nothing the first appends from then on is acknowledged.
#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn a_deposed_owner_acknowledges_nothing() {
    let fleet = Fleet::start(3);
    let first: Arc<dyn Stream> = Arc::new(fleet.stream("deposed"));
    let mut over = log_over(Arc::clone(&first), 0);
    let (log, _) = over.open();
    let mut old = Owner { log, next: 0 };
    old.append_synced(10).expect("the owner's");
    let names = quintet_jetstream::Names::of("deposed", 0);
    let other = JetStream::connect(&fleet.addresses(1), names).expect("connected");
    let mut second = log_over(Arc::new(other), 100);
    // The old one goes on while the new one claims.
    let (sender, receiver) = channel();
    let appending = std::thread::spawn(move || {
        let mut durable = Position(0);
        loop {
            let done = old.append_synced(3);
            if done.is_ok() {
                durable = old.log.durable();
                sender.send(old.next).ok();
                continue;
            }
            return (done, old, durable);
        }
    });
    receiver.recv().expect("it appends");
    let (log, seen) = second.open();
    let mut new = Owner { log, next: 1000 };
    new.append_synced(5).expect("the new owner's");
    let (ended, old, durable) = appending.join().expect("ended");
    assert!(matches!(ended, Err(LogError::Fenced { .. })), "{ended:?}");
    assert_eq!(old.log.durable(), durable);
    // All the old one was told is durable was there when the new one began.
    let acknowledged = receiver.try_iter().last().unwrap_or(10);
    let found = numbers(&seen);
    assert!(found.len() >= acknowledged as usize);
    assert_eq!(found, (0..found.len() as u32).collect::<Vec<_>>());
    drop(new);
    let (_log, seen) = second.open();
    let after: Vec<u32> = found.into_iter().chain(1000..1005).collect();
    assert_eq!(numbers(&seen), after);
}
