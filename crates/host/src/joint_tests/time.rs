//! Takeovers by nodes whose wall clocks are wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_types::{Body, Command, Dedupe, Expiry, Name, Outcome, Put, PutMore, Take, Wait, When};

use super::node::{Node, Without};
use super::run::{CALM, Run};
use crate::locked;

const MINUTE: u64 = 60_000;
const HOUR: i64 = 3_600_000;
const QUEUE: &str = "time";

/// The node that serves, once one does.
fn serving(run: &Run) -> Arc<Node> {
    let find = || locked(&run.state).serving();
    assert!(run.wait(CALM, || find().is_some()), "nobody serves");
    find().expect("just seen").1
}

/// Submits a command as a new client and returns the outcome.
fn ask(run: &Run, node: &Node, command: Command) -> Outcome {
    let client_id = locked(&run.state).next();
    let came = Arc::new(Mutex::new(None));
    let received = Arc::clone(&came);
    node.ask(
        client_id,
        command,
        Box::new(move |outcome, _| *locked(&received) = Some(outcome)),
    );
    assert!(run.wait(CALM, || locked(&came).is_some()), "no answer");
    let outcome = locked(&came).take();
    outcome.expect("just seen")
}

fn put(body: &[u8], due: When, expires: Expiry, id: Option<&[u8]>) -> Command {
    let dedupe = id.map(|id| Dedupe {
        id: id.into(),
        window_ms: Some(10 * MINUTE),
        scope: None,
        on_repeat: None,
    });
    Command::Put(Put {
        due,
        expires,
        more: dedupe.map(|dedupe| {
            Box::new(PutMore {
                dedupe: Some(dedupe),
                ..PutMore::default()
            })
        }),
        ..Put::new(Name::from(QUEUE), Body::new(body))
    })
}

fn taken(run: &Run, node: &Node) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let take = Command::Take(Take {
            queues: std::iter::once(Name::from(QUEUE)).collect(),
            wait: Wait::No,
            messages_max: 1,
            ..Take::default()
        });
        let Outcome::Messages(got) = ask(run, node, take) else {
            return all;
        };
        all.extend(got.iter().map(|message| {
            let body = message.body.as_small().expect("a small body");
            body.to_vec()
        }));
    }
}

/// The owner dies, and the clocks of the others are so much ahead. How much engine time passed
/// beyond the time that did, ms; what is left of three messages; whether a repeat was stored.
fn takeover(ahead: i64, without: Without) -> (i64, Vec<Vec<u8>>, bool) {
    let run = Run::with(1, without, true);
    run.clocks[1..]
        .iter()
        .for_each(|clock| clock.set_wall(ahead));
    run.after(Duration::ZERO, Run::tend);
    let owner = serving(&run);
    assert_eq!(owner.number, 0, "the others wait longer");
    let half = Expiry::In(30 * MINUTE);
    for command in [
        put(b"expires", When::Now, half, None),
        put(b"delayed", When::In(20 * MINUTE), Expiry::Default, None),
        put(b"once", When::Now, Expiry::Default, Some(b"id")),
    ] {
        let outcome = ask(&run, &owner, command);
        assert!(matches!(outcome, Outcome::Put { .. }), "{outcome:?}");
    }
    run.pass(20);
    let time = |node: &Node| node.host().expect("it serves").core.clock.now().0;
    let (before, began) = (time(&owner), run.clocks[0].now());
    let nodes = locked(&run.state).nodes.clone();
    let seen = nodes.iter().map(|node| node.status().clock_ahead_ms);
    let seen: Vec<_> = seen.collect();
    drop(nodes);
    for seen in &seen[1..] {
        let received = seen.is_some_and(|received| received.abs_diff(ahead) < 500);
        assert!(received, "{ahead} ahead, and they say {seen:?}");
    }
    owner.process.pause(Duration::from_secs(3_600));
    drop(owner);
    let next = || {
        let nodes = locked(&run.state).nodes.clone();
        nodes
            .into_iter()
            .find(|node| node.number > 0 && node.serves().is_some())
    };
    assert!(run.wait(CALM, || next().is_some()), "nobody takes over");
    let owner = next().expect("just seen");
    let passed = run.clocks[0].now() - began;
    let passed = i64::try_from(passed.as_millis()).expect("some seconds");
    let moved = time(&owner) as i64 - before as i64;
    let again = put(b"again", When::Now, Expiry::Default, Some(b"id"));
    let stored = matches!(ask(&run, &owner, again), Outcome::Put { fresh: true, .. });
    (moved - passed, taken(&run, &owner), stored)
}

#[test]
fn a_takeover_by_a_node_whose_clock_is_wrong_moves_no_time() {
    for ahead in [HOUR, -HOUR, 0] {
        let (moved, left, stored) = takeover(ahead, Without::Nothing);
        assert!(moved.abs() < 1_000, "{ahead} ahead: {moved} ms");
        assert_eq!(left, [b"expires".to_vec(), b"once".to_vec()]);
        assert!(!stored, "a repeat was stored");
    }
}

#[test]
fn a_standby_that_stood_still_and_reads_late_takes_over_with_the_right_time() {
    let long = Duration::from_secs(3_600);
    // The clock is looked at every five seconds: the pause begins anywhere between two looks.
    for wait in 20..25 {
        let run = Run::with(1, Without::Nothing, true);
        run.after(Duration::ZERO, Run::tend);
        let owner = serving(&run);
        assert_eq!(owner.number, 0, "the others wait longer");
        run.pass(wait);
        let lead = |node: &Node| {
            let now = node.host().expect("it serves").core.clock.now().0 as i64;
            now - i64::try_from(run.clocks[0].now().as_millis()).expect("some seconds")
        };
        let before = lead(&owner);
        let nodes = locked(&run.state).nodes.clone();
        nodes[1].process.pause(Duration::from_secs(7));
        nodes[2].process.pause(long);
        run.pass(4);
        owner.process.pause(long);
        let next = || {
            let received = nodes[1].status().clock_ahead_ms;
            let right = received.is_none_or(|ahead| ahead.abs() < 500);
            assert!(
                right,
                "after {wait} s it says that its clock is off: {received:?}"
            );
            nodes[1].serves().is_some()
        };
        assert!(run.wait(CALM, next), "nobody takes over");
        let moved = lead(&nodes[1]) - before;
        assert!(moved.abs() < 1_000, "after {wait} s: {moved} ms");
    }
}

#[test]
fn a_takeover_by_the_wall_clock_is_found() {
    let (moved, left, stored) = takeover(HOUR, Without::Time);
    assert!(moved > HOUR / 2, "{moved}");
    assert_ne!(left, [b"expires".to_vec(), b"once".to_vec()]);
    assert!(stored);
}

#[test]
fn a_node_whose_clock_is_wrong_leaves_a_takeover_to_others() {
    let run = Run::with(1, Without::Nothing, true);
    run.clocks[1].set_wall(HOUR);
    run.after(Duration::ZERO, Run::tend);
    let owner = serving(&run);
    assert_eq!(owner.number, 0, "the others wait longer");
    run.pass(20);
    owner.leave("");
    drop(owner);
    let next = || {
        let nodes = locked(&run.state).nodes.clone();
        nodes.into_iter().find(|node| node.serves() > Some(1))
    };
    assert!(run.wait(CALM, || next().is_some()), "nobody takes over");
    assert_ne!(next().map(|node| node.number), Some(1));
}
