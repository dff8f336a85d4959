//! Cases of beanstalkd that need a whole server.

use crate::common::{Client, Data, Start, await_that, text};
use rustix::process::Signal;

/// With this configuration.
fn of(config: &str) -> Start<'_> {
    Start::of(config).sync("50ms").listen(&["beanstalk=0"])
}

/// Case 28 of the sheet: a draining server reads a put to its end.
#[test]
fn sigusr1_drains() {
    let server = of("").serve();
    let mut client = server.client();
    client.ask(b"put 0 0 60 1\r\na\r\n", b"INSERTED 1\r\n");
    server.signal(Signal::USR1);
    // The signal is on its way; numbers tell when it has come.
    await_that("it drains", || {
        client.send(b"stats\r\n");
        let stats = text(&client.until(b"platform: "));
        client.until(b"\r\n");
        stats.contains("draining: true")
    });
    client.send(b"put 0 0 60 4\r\n");
    client.send(b"stat");
    client.send(b"\r\nput 0 0 60 4\r\nstatss\r\nreserve-with-timeout 0\r\n");
    client.expect(b"DRAINING\r\nEXPECTED_CRLF\r\nUNKNOWN_COMMAND\r\nRESERVED 1 1\r\na\r\n");
    client.ask(b"delete 1\r\n", b"DELETED\r\n");
}

#[test]
fn over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.sock");
    let listen = format!("beanstalk=unix:{}", path.display());
    let server = of("").listen(&[&listen]).serve();
    let mut client = Client::unix(&path);
    client.ask(
        b"put 0 0 60 1\r\na\r\nreserve\r\nquit\r\n",
        b"INSERTED 1\r\nRESERVED 1 1\r\na\r\n",
    );
    client.expect_end();
    assert!(server.stop().success());
    assert!(!path.exists(), "the socket file stays");
}

/// Each has the watched tubes with it.
#[test]
fn reserves_behind_one_that_waits_are_memory_of_their_connection() {
    let server = of("").serve();
    let mut worker = server.client();
    for tube in 0..1000 {
        let watching = format!("WATCHING {}\r\n", tube + 2);
        worker.ask(format!("watch {tube}\r\n").as_bytes(), watching.as_bytes());
    }
    server.await_number("connections_memory_bytes", |bytes| bytes < 500_000);
    worker.send(&b"reserve\r\n".repeat(41));
    server.await_number("connections_memory_bytes", |bytes| bytes > 1_000_000);
    server
        .client()
        .ask(b"put 0 0 60 1\r\na\r\n", b"INSERTED 1\r\n");
    worker.expect(b"RESERVED 1 1\r\na\r\n");
}

/// They are read together with the reserve, and nothing of them happens before
/// it has its job.
#[test]
fn commands_behind_a_reserve_that_waits_come_after_it() {
    let server = of("").serve();
    let (mut worker, mut producer) = (server.client(), server.client());
    worker.send(
        b"reserve\r\nuse late\r\nput 0 0 60 1\r\nz\r\nreserve-with-timeout 0\r\ndelete 1\r\n",
    );
    await_that("one waits", || {
        producer.send(b"stats-tube default\r\n");
        let stats = text(&producer.until(b"\n\r\n"));
        stats.contains("current-waiting: 1\n")
    });
    producer.ask(
        b"stats-tube late\r\nput 0 0 60 1\r\na\r\n",
        b"NOT_FOUND\r\nINSERTED 1\r\n",
    );
    worker.expect(b"RESERVED 1 1\r\na\r\nUSING late\r\nINSERTED 2\r\nTIMED_OUT\r\nDELETED\r\n");
}

/// Nothing of the second job is logged: its lease waits for nothing that will
/// never come.
#[test]
fn jobs_in_memory_are_handed_out_at_once() {
    let server = Start::of("[defaults]\nmemory = true\n")
        .sync("always")
        .listen(&["beanstalk=0"])
        .serve();
    let mut client = server.client();
    for (request, reply) in [
        ("put 2 0 60 1\r\na\r\n", "INSERTED 1\r\n"),
        ("put 1 0 60 1\r\nb\r\n", "INSERTED 2\r\n"),
        ("reserve\r\n", "RESERVED 2 1\r\nb\r\n"),
        ("reserve\r\n", "RESERVED 1 1\r\na\r\n"),
        ("delete 1\r\n", "DELETED\r\n"),
        ("release 2 0 0\r\n", "RELEASED\r\n"),
        ("reserve\r\n", "RESERVED 2 1\r\nb\r\n"),
    ] {
        client.ask(request.as_bytes(), reply.as_bytes());
    }
}

/// Jobs, their states and the tubes are there after `kill -9`; what was
/// reserved is ready, and ids go on.
#[test]
fn jobs_outlive_the_server() {
    for shards in ["shards = 1\n", "shards = 4\n"] {
        let data = Data::fresh();
        let server = of(shards).serve_at(&data);
        let mut client = server.client();
        // Tube a is in the first shard.
        client.send(b"use a\r\nwatch a\r\nignore default\r\n");
        client.expect(b"USING a\r\nWATCHING 2\r\nWATCHING 1\r\n");
        for body in ["a", "b", "c"] {
            client.send(format!("put 0 0 60 1\r\n{body}\r\n").as_bytes());
        }
        client.expect(b"INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n");
        client.send(
            b"put 5 3600 60 1\r\nd\r\nreserve\r\nbury 1 7\r\nreserve\r\npause-tube a 3600\r\n",
        );
        client.expect(
            b"INSERTED 4\r\nRESERVED 1 1\r\na\r\nBURIED\r\nRESERVED 2 1\r\nb\r\nPAUSED\r\n",
        );
        server.kill();

        let server = of(shards).serve_at(&data);
        let mut client = server.client();
        client.send(b"use a\r\nwatch a\r\npeek-buried\r\npeek-delayed\r\npeek-ready\r\n");
        client.expect(
            b"USING a\r\nWATCHING 2\r\nFOUND 1 1\r\na\r\nFOUND 4 1\r\nd\r\nFOUND 2 1\r\nb\r\n",
        );
        client.send(b"reserve-with-timeout 0\r\npause-tube a 0\r\nreserve\r\nreserve\r\n");
        client.expect(b"TIMED_OUT\r\nPAUSED\r\nRESERVED 2 1\r\nb\r\nRESERVED 3 1\r\nc\r\n");
        client.send(b"put 0 0 60 1\r\ne\r\nlist-tubes\r\n");
        client.expect(b"INSERTED 5\r\nOK 18\r\n---\n- default\n- a\n\r\n");
    }
}

/// A reserve that waits over tubes of several shards: each job goes to one of
/// those who wait, from any client to any queue.
#[test]
fn waits_over_tubes_of_several_shards() {
    let server = of("shards = 4\n").serve();
    let tubes = ["a", "b", "c", "d"];
    let mut workers: Vec<Client> = (0..8).map(|_| server.client()).collect();
    let mut producer = server.client();
    for worker in &mut workers {
        for tube in tubes {
            worker.send(format!("watch {tube}\r\n").as_bytes());
            worker.until(b"\r\n");
        }
        worker.send(b"reserve\r\n");
    }
    for round in 0..50 {
        let tube = tubes[round % tubes.len()];
        producer.send(format!("use {tube}\r\nput {round} 0 60 2\r\n{round:02}\r\n").as_bytes());
        producer.expect(format!("USING {tube}\r\nINSERTED ").as_bytes());
        producer.until(b"\r\n");
    }
    // Each takes until nothing is left, and keeps what it has; together they see each job once.
    let mut seen = Vec::new();
    for worker in &mut workers {
        worker.send(b"reserve-with-timeout 0\r\n");
        loop {
            let line = worker.until(b"\r\n");
            if line == b"TIMED_OUT\r\n" {
                break;
            }
            assert!(
                line.starts_with(b"RESERVED "),
                "{}",
                crate::common::text(&line)
            );
            let body = worker.until(b"\r\n");
            seen.push(crate::common::text(&body[..2]).parse::<usize>().unwrap());
            worker.send(b"reserve-with-timeout 0\r\n");
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
}
