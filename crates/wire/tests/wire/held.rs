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

#[test]
fn faktory_holds_the_jobs_of_a_list_as_they_came_until_they_are_put() {
    let protocol = quintet_wire::protocol("faktory").expect("a protocol");
    let listener = (protocol.listener)(&Options::new(protocol.options)).expect("a listener");
    let tally = Tally::new();
    let env = Env {
        now: Ms(1),
        tally: &tally,
        logins: Logins::Off,
    };
    let held = |command: &str| {
        let mut session = listener.open();
        let requests = format!("HELLO {{\"v\":2}}\r\n{command}\r\n");
        decode(&mut *session, requests.as_bytes(), &env);
        for _ in 0..2 {
            session.encode(&ServerResponse::Own, &env, &mut Output::default());
        }
        session.held_bytes()
    };
    let list = |jobs: usize| {
        let job = |at| format!("{{\"jid\":\"{at:08}\",\"jobtype\":\"T\",\"args\":[]}}");
        let jobs: Vec<String> = (0..jobs).map(job).collect();
        format!("PUSHB [{}]", jobs.join(","))
    };
    let (few, many) = (list(1000), list(20_000));
    assert!(held(&few) > 1000 * 200, "{}", held(&few));
    assert!(held(&many) <= held(&few) + many.len() - few.len());
    // Ids of a filter are there until the last job was looked at.
    let jids: Vec<String> = (0..1000).map(|at| format!("\"{at:08}\"")).collect();
    let jids = jids.join(",");
    let mutate =
        format!("MUTATE {{\"cmd\":\"kill\",\"target\":\"dead\",\"filter\":{{\"jids\":[{jids}]}}}}");
    assert!(held(&mutate) >= 1000 * 8, "{}", held(&mutate));
}
