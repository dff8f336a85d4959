//! Memory that a session holds for its client.

use quintet_types::{Ms, Name, Outcome};
use quintet_wire::{Env, Logins, Options, Output, ServerResponse, Session, Step, Tally};

/// Decodes whole requests. None of them is answered.
fn decode(session: &mut dyn Session, mut input: &[u8], env: &Env<'_>) {
    while !input.is_empty() {
        match session.decode(input, env) {
            Step::ClientRequest { used, .. } | Step::Skip { used } => input = &input[used..],
            Step::More | Step::Stream { .. } => panic!("whole requests"),
        }
    }
}

#[test]
fn beanstalk_counts_watched_tubes_only_for_requests_that_have_them() {
    let protocol = quintet_wire::protocol("beanstalk").expect("a protocol");
    let listener = (protocol.listener)(&Options::new(protocol.options)).expect("a listener");
    let mut session = listener.open();
    let tally = Tally::new();
    let env = Env {
        now: Ms(1),
        tally: &tally,
        logins: Logins::Off,
    };
    let watch = format!("watch {}\r\n", "a".repeat(100));
    decode(&mut *session, watch.as_bytes(), &env);
    // The session refers to `default` first.
    for _ in 0..2 {
        let done = ServerResponse::Engine(Outcome::Done, Name::default());
        session.encode(&done, &env, &mut Output::default());
    }
    let tubes = session.held_bytes();
    assert!(tubes > 100, "{tubes}");
    decode(&mut *session, b"reserve\r\n", &env);
    decode(&mut *session, &b"delete 1\r\n".repeat(40), &env);
    assert_eq!(session.held_bytes(), tubes);
    decode(
        &mut *session,
        b"reserve\r\nlist-tubes-watched\r\nreserve-with-timeout 1\r\n",
        &env,
    );
    assert_eq!(session.held_bytes(), 4 * tubes);
}
