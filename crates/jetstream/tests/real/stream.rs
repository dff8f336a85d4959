//! The promises of `Stream`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Barrier,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use quintet_cluster::{Answer, Ends, EntryLookup, ReplyFn, Seq, Stream, TailEvent};
use quintet_jetstream::{Error, JetStream, Names, Servers};

use crate::servers::{Fleet, ID, LONG, Lonely, until, until_or};

/// After so long an append is asked about that has no answer.
const SOON: Duration = Duration::from_secs(2);

/// Waits for the answer of a callback.
pub(crate) fn answer_of<T: Send + 'static>(ask: impl FnOnce(ReplyFn<T>)) -> T {
    let (sender, answer) = channel();
    ask(Box::new(move |value| sender.send(value).expect("awaited")));
    answer.recv_timeout(LONG).expect("an answer")
}

/// Fate of an entry. Entries that are on their way while the servers elect get no answer, and are
/// sent again.
fn append(stream: &JetStream, expected: u64, entry: &str) -> Answer {
    let (next, there) = (
        Seq(expected + 1),
        EntryLookup::Entry(entry.to_owned().into()),
    );
    until("an append", || {
        let answer = append_or_unknown(stream, expected, entry);
        if let Answer::Stored(_) | Answer::Full(_) = answer {
            return Some(answer);
        }
        match answer_of(|callback| stream.get(next, callback)) {
            found if found == there => Some(Answer::Stored(next)),
            _ => (answer == Answer::Wrong).then_some(answer),
        }
    })
}

fn ends(stream: &JetStream) -> Ends {
    let ends = until("the stream's leader answers", || {
        answer_of(|callback| stream.ends(callback))
    });
    Ends {
        leader: None,
        ..ends
    }
}

/// Follows from there on.
fn tail(stream: &JetStream, from: u64) -> (Receiver<TailEvent>, quintet_cluster::Tail) {
    let (sender, events) = channel();
    let tail = stream.tail(Seq(from), Box::new(move |event| drop(sender.send(event))));
    (events, tail)
}

fn keeps_its_contract(servers: usize) {
    let fleet = Fleet::start(servers);
    let stream = fleet.stream("contract");
    let (first, last) = (Seq(1), Seq(0));
    assert_eq!(ends(&stream), Ends::whole(first, last));
    let (live, _tail) = tail(&stream, 1);

    assert_eq!(append(&stream, 0, "1"), Answer::Stored(Seq(1)));
    assert_eq!(append(&stream, 0, "other"), Answer::Wrong);
    assert_eq!(append(&stream, 5, "other"), Answer::Wrong);
    // A window of them, one behind the other.
    let (sender, answers) = channel();
    for seq in 2..=64_u64 {
        let sender = sender.clone();
        let entry = Bytes::from(seq.to_string());
        let callback = Box::new(move |answer| drop(sender.send((seq, answer))));
        stream.append(Seq(seq - 1), entry, callback);
    }
    drop(sender);
    let mut stored = BTreeSet::new();
    while let Ok((seq, answer)) = answers.recv_timeout(SOON) {
        if answer == Answer::Stored(Seq(seq)) {
            stored.insert(seq);
        }
    }
    for seq in (2..=64).filter(|seq| !stored.contains(seq)) {
        let answer = append(&stream, seq - 1, &seq.to_string());
        assert_eq!(answer, Answer::Stored(Seq(seq)));
    }
    let entry = |seq: u64| TailEvent::Entry(Seq(seq), Bytes::from(seq.to_string()));
    for seq in 1..=64 {
        assert_eq!(live.recv_timeout(LONG), Ok(entry(seq)));
    }

    let get = |seq| answer_of(|callback| stream.get(Seq(seq), callback));
    assert_eq!(get(7), EntryLookup::Entry("7".into()));
    assert_eq!(get(65), EntryLookup::Nothing);

    // Who comes later gets the same.
    let (late, _other) = tail(&stream, 1);
    for seq in 1..=64 {
        assert_eq!(late.recv_timeout(LONG), Ok(entry(seq)));
    }
    assert!(answer_of(|callback| stream.purge_below(Seq(33), callback)));
    let (first, last) = (Seq(33), Seq(64));
    assert_eq!(ends(&stream), Ends::whole(first, last));
    assert_eq!(get(7), EntryLookup::Nothing);
    let (gone, _third) = tail(&stream, 1);
    assert_eq!(gone.recv_timeout(LONG), Ok(TailEvent::Purged(Seq(33))));
    // Late or twice it does nothing, and appending goes on where it was.
    assert!(answer_of(|callback| stream.purge_below(Seq(20), callback)));
    assert_eq!(ends(&stream), Ends::whole(first, last));
    assert_eq!(append(&stream, 64, "65"), Answer::Stored(Seq(65)));
    assert_eq!(live.recv_timeout(LONG), Ok(entry(65)));
    assert_eq!(late.recv_timeout(LONG), Ok(entry(65)));

    let info = stream.info().expect("answered").expect("there");
    assert_eq!(stream.faults(&info, servers), [""; 0]);
    assert_eq!(info.log_id(), Some(ID));
    let again = stream.create(servers, &[], ID).expect("the same");
    assert_eq!(again.created, info.created);
    stream
        .create(servers, &[], "2")
        .expect_err("another log's stream");
}

/// Nodes that start at the same moment make the same stream.
#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn two_that_make_a_stream_at_once_make_the_same_one() {
    let fleet = Fleet::start(3);
    drop(fleet.stream("first"));
    for round in 0..10 {
        let names = Names::of(&format!("r{round}"), 0);
        let connect = |n| JetStream::connect(&fleet.addresses(n), names.clone()).expect("up");
        let streams = [connect(0), connect(1), connect(2)];
        let begin = Barrier::new(streams.len());
        let made = thread::scope(|scope| {
            let make = |stream: &JetStream| {
                begin.wait();
                // Nobody may answer those who come second; a node asks again.
                until("the stream is made", || match stream.create(3, &[], ID) {
                    Ok(info) => Some(info.log_id() == Some(ID)),
                    Err(Error::Silent | Error::Refused(..)) => None,
                    Err(error) => panic!("{error}"),
                })
            };
            let makers = (streams.each_ref()).map(|stream| scope.spawn(move || make(stream)));
            makers.map(|maker| maker.join().expect("no panic"))
        });
        assert_eq!(made, [true; 3], "round {round}");
        for stream in &streams {
            let info = until("the stream is there", || stream.info().ok()?);
            assert_eq!(info.log_id(), Some(ID));
        }
    }
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn one_server_keeps_the_contract() {
    keeps_its_contract(1);
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn three_servers_keep_the_contract() {
    keeps_its_contract(3);
}

/// The leader is killed while appends are on their way: each is stored once or not at all, what was
/// acknowledged is there, and who follows gets all of it.
#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn a_killed_leader_loses_nothing() {
    let mut fleet = Fleet::start(3);
    let stream = fleet.stream("killed");
    let (live, _tail) = tail(&stream, 1);
    let mut acknowledged = BTreeMap::new();
    let mut last = 0;
    for round in 0..3 {
        let leader = fleet.leader(&stream);
        for number in 0..60 {
            let entry = format!("{round} {number}");
            if number == 30 {
                fleet.kill(leader);
            }
            // One at a time, and again until it is there: what became of it is read.
            until_or("an append", || {
                match append_or_unknown(&stream, last, &entry) {
                    Answer::Stored(seq) => Ok(seq),
                    answer @ (Answer::Wrong | Answer::Unknown) => {
                        let there = answer_of(|callback| stream.get(Seq(last + 1), callback));
                        match there == EntryLookup::Entry(entry.clone().into()) {
                            true => Ok(Seq(last + 1)),
                            false => Err(format!(
                                "behind {last}: {answer:?}, {there:?}, {:?} over {:?}",
                                stream.info(),
                                stream.servers()
                            )),
                        }
                    }
                    Answer::Full(why) => panic!("{why}"),
                }
            });
            last += 1;
            acknowledged.insert(last, entry);
        }
        fleet.begin(leader);
    }
    for (seq, entry) in &acknowledged {
        let expected = TailEvent::Entry(Seq(*seq), entry.clone().into());
        assert_eq!(live.recv_timeout(LONG), Ok(expected));
    }
    let (first, last) = (Seq(1), Seq(last));
    assert_eq!(ends(&stream), Ends::whole(first, last));
}

/// An append whose answer is not waited for for ever.
fn append_or_unknown(stream: &JetStream, expected: u64, entry: &str) -> Answer {
    let (sender, answer) = channel();
    let entry = Bytes::copy_from_slice(entry.as_bytes());
    let callback = Box::new(move |answer| drop(sender.send(answer)));
    stream.append(Seq(expected), entry, callback);
    answer.recv_timeout(SOON).unwrap_or(Answer::Unknown)
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn the_near_server_is_first_and_requests_go_to_another() {
    let mut fleet = Fleet::start(3);
    drop(fleet.stream("near"));
    let connect = |fleet: &Fleet, near: &str| {
        let servers = Servers {
            near: near.to_owned(),
            ..fleet.addresses(0)
        };
        JetStream::connect(&servers, Names::of("near", 0)).expect("they are there")
    };
    let names = |stream: &JetStream| -> Vec<String> {
        let servers = stream.servers().into_iter();
        servers.map(|server| server.name).collect()
    };
    for near in ["n0", "n1", "n2"] {
        let names = names(&connect(&fleet, near));
        assert_eq!(names[0], near);
        assert_ne!(names[1], near);
    }
    // A name that no server has prefers none.
    let stream = connect(&fleet, "n9");
    assert_eq!(names(&stream)[0], "n0");
    // Without the near one another does.
    let stream = connect(&fleet, "n2");
    fleet.kill(2);
    let end = ends(&stream).last.0;
    let stored = append(&stream, end, "over another");
    assert_eq!(stored, Answer::Stored(Seq(end + 1)));
    assert_ne!(names(&stream)[0], "n2");
}

#[test]
#[ignore = "needs nats-server: cargo xtask test cluster"]
fn a_server_that_answers_nothing_is_left() {
    let fleet = Fleet::start(1);
    drop(fleet.stream("left"));
    // One of the two connections leads to each of them; both keep theirs up.
    let lonely = Lonely::start();
    for first in [0, 1] {
        let mut servers = fleet.addresses(0);
        servers.addresses.insert(first, lonely.address.clone());
        let stream = JetStream::connect(&servers, Names::of("left", 0)).expect("both are there");
        let end = ends(&stream).last.0;
        // What was sent before is answered by nobody.
        let stored = append(&stream, end, "over the other");
        assert_eq!(stored, Answer::Stored(Seq(end + 1)));
    }
}
