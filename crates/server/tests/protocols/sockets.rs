//! Connections that behave in every way a client can.

use std::time::Duration;

use crate::common::{Client, PATIENCE, Server, Start, await_that, eventually, noise, text};

#[test]
fn pipelined_requests_are_answered_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for sync in ["always", "never"] {
        let server = Start::default().sync(sync).serve_at(&dir.path().join(sync));
        let mut client = server.client();
        let mut requests = Vec::new();
        // More than one turn decides, and more than one read takes in.
        for n in 0..1000 {
            requests.extend(format!("set w 0 0 100\r\n{n:0100}\r\n").bytes());
        }
        for _ in 0..1000 {
            requests.extend(b"get w\r\n");
        }
        client.send(&requests);
        for _ in 0..1000 {
            client.expect(b"STORED\r\n");
        }
        for n in 0..1000 {
            client.expect_value("w", format!("{n:0100}").as_bytes());
        }
    }
}

#[test]
fn requests_cut_anywhere_are_understood() {
    let server = Server::fresh();
    let mut client = server.client();
    for byte in b"set w 0 0 5\r\nhello\r\nget w\r\n" {
        client.send(&[*byte]);
    }
    client.expect(b"STORED\r\n");
    client.expect_value("w", b"hello");
}

#[test]
fn a_waiting_get_delays_later_commands() {
    let server = Server::fresh();
    let mut consumer = server.client();
    consumer.send(b"get w/t=3600000\r\nversion\r\nget w\r\n");
    let mut putter = server.client();
    putter.await_stat("queue_w_waiters", |n| n != 0);
    putter.put("w", b"came");
    consumer.expect_value("w", b"came");
    assert!(text(&consumer.until(b"\r\n")).starts_with("VERSION "));
    consumer.expect(b"END\r\n");
}

#[test]
fn a_dead_waiter_is_passed_over() {
    let server = Server::fresh();
    let mut client = server.client();
    let mut first = server.client();
    first.send(b"get w/t=3600000\r\n");
    client.await_stat("queue_w_waiters", |n| n >= 1);
    let mut second = server.client();
    second.send(b"get w/t=3600000\r\n");
    client.await_stat("queue_w_waiters", |n| n >= 2);
    drop(first);
    client.await_stat("queue_w_waiters", |n| n != 2);
    client.put("w", b"for the living");
    second.expect_value("w", b"for the living");
}

#[test]
fn open_reads_end_with_their_connection() {
    let server = Server::fresh();
    let mut client = server.client();
    client.put("w", b"one");
    client.put("w", b"two");
    let mut reader = server.client();
    reader.send(b"get w/open\r\n");
    reader.expect_value("w", b"one");
    client.send(b"get w/t=0/peek\r\n");
    client.expect_value("w", b"two");
    drop(reader);
    client.await_stat("queue_w_open_transactions", |n| n == 0);
    client.take("w", b"one");
    client.take("w", b"two");
}

#[test]
fn a_half_closed_client_gets_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    for sync in ["always", "never"] {
        let server = Start::default().sync(sync).serve_at(&dir.path().join(sync));
        let mut client = server.client();
        client.send(b"set w 0 0 2\r\nhi\r\nget w\r\nget w\r\nset w 0 0 5\r\nhal");
        client.half_close();
        client.expect(b"STORED\r\n");
        client.expect_value("w", b"hi");
        client.expect(b"END\r\n");
        client.expect_end();
        server.client().take_nothing("w");
    }
}

#[test]
fn a_slow_reader_is_not_read_from_and_loses_nothing() {
    let server = Start::of("output_bytes_max = '64KiB'")
        .sync("never")
        .serve();
    let body = noise(60_000);
    let mut putter = server.client();
    const MESSAGES: usize = 400;
    for _ in 0..MESSAGES {
        putter.put("w", &body);
    }
    // 24 MB of replies are asked for and none is read.
    let mut slow = server.client();
    slow.send(&b"get w\r\n".repeat(MESSAGES));
    // The server goes on with others, and has not taken all for the slow one.
    let mut other = server.client();
    other.put("v", b"x");
    other.take("v", b"x");
    let left = other.stat("queue_w_items");
    assert!(
        left > 0,
        "everything was taken for a client that reads nothing"
    );
    for _ in 0..MESSAGES {
        slow.expect_value("w", &body);
    }
    slow.ask(b"get w\r\n", b"END\r\n");
}

#[test]
fn takes_for_a_client_that_is_gone_are_undone() {
    let server = Start::of("output_bytes_max = '64KiB'")
        .sync("never")
        .serve();
    let body = noise(60_000);
    let mut putter = server.client();
    const MESSAGES: u64 = 300;
    for _ in 0..MESSAGES {
        putter.put("w", &body);
    }
    let mut slow = server.client();
    slow.send(&b"get w\r\n".repeat(MESSAGES as usize));
    putter.await_stat("queue_w_items", |n| n != MESSAGES);
    drop(slow);
    putter.await_stat("curr_connections", |n| n <= 1);
    // What filled the socket's buffers went; what was still in the server's
    // hands came back, at the head and whole.
    let left = putter.stat("queue_w_items");
    for _ in 0..left {
        putter.take("w", &body);
    }
    putter.take_nothing("w");
}

#[test]
fn more_connections_than_allowed_are_closed() {
    let server = Start::of("connections_max = 2").serve();
    let mut first = server.client();
    first.put("w", b"1");
    let mut second = server.client();
    second.take("w", b"1");
    server.client().expect_end();
    drop(second);
    first.await_stat("curr_connections", |n| n <= 1);
    server.client().put("w", b"2");
    first.take("w", b"2");
}

#[test]
fn many_connections_over_all_threads() {
    let server = Start::of("io_threads = 4").sync("50ms").serve();
    let mut clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(b"get w/t=3600000\r\n");
    }
    let mut putter = server.client();
    putter.await_stat("queue_w_waiters", |n| n >= 200);
    for n in 0..200 {
        putter.put("w", format!("{n}").as_bytes());
    }
    // One line over all threads, longest wait first; each gets one.
    let mut got: Vec<u32> = Vec::new();
    for client in &mut clients {
        let reply = text(&client.until(b"END\r\n"));
        got.push(reply.lines().nth(1).unwrap().parse().unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, (0..200).collect::<Vec<u32>>());
}

#[test]
fn idle_connections_are_closed_where_configured() {
    let config = "[[listen]]\nprotocol = 'memcache'\naddress = 0\nidle = '5s'";
    let server = Start::of(config).serve_as_configured();
    let mut idle = server.client();
    let mut waiting = server.client();
    waiting.send(b"get w/t=3600000\r\n");
    idle.expect_end();
    // A take that waits is not idle.
    let mut putter = server.client();
    putter.ask(b"set w 0 0 1\r\nx\r\n", b"STORED\r\n");
    waiting.expect_value("w", b"x");
}

/// Its thread has no other connection, and so no event.
#[test]
fn what_an_idle_connection_held_goes_to_a_client_of_another_thread() {
    let config = "io_threads = 2\n[[listen]]\nprotocol = 'memcache'\naddress = 0\nidle = '2s'";
    let server = Start::of(config).serve_as_configured();
    let mut waiting = server.client();
    waiting.put("w", b"x");
    let mut idle = server.client();
    idle.send(b"get w/open\r\n");
    idle.expect_value("w", b"x");
    waiting.send(b"get w/t=3600000\r\n");
    idle.expect_end();
    waiting.expect_value("w", b"x");
}

#[test]
fn running_out_of_files_is_survived() {
    let server = Server::fresh();
    let mut first = server.client();
    first.put("w", b"before");
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id()));
    let open = open.unwrap().count() as u64;
    // Less than was reckoned with at the start.
    let pid = rustix::process::Pid::from_child(&server.child);
    let limit = rustix::process::Rlimit {
        current: Some(open + 20),
        maximum: Some(open + 20),
    };
    let nofile = rustix::process::Resource::Nofile;
    rustix::process::prlimit(Some(pid), nofile, limit).unwrap();
    // The system takes these connections; the server has no file for all.
    let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
    first.take("w", b"before");
    let mut last = clients.pop().unwrap();
    drop(clients);
    // The log had no file to go on in either, and has one again soon.
    await_that("puts are stored again", || {
        last.send(b"set w 0 0 5\r\nafter\r\n");
        let is_stored = last.until(b"\r\n") == b"STORED\r\n";
        if !is_stored {
            last = server.client();
        }
        is_stored
    });
    first.take("w", b"after");
}

/// It is tried ten times a second; the log says so a few times.
#[test]
fn http_without_a_file_to_be_had_says_so_a_few_times() {
    let server = Start::of("")
        .listen(&["memcache=0", "http=0"])
        .serve_logged();
    let pid = rustix::process::Pid::from_child(&server.child);
    let nofile = rustix::process::Resource::Nofile;
    let limit = |files: u64| {
        let limit = rustix::process::Rlimit {
            current: Some(files),
            maximum: Some(20_000),
        };
        rustix::process::prlimit(Some(pid), nofile, limit).unwrap();
    };
    limit(3);
    // The system takes it; the server has no file for it.
    let _waits = server.client_of("http");
    let log = eventually("it has failed often", || {
        let log = server.stderr_text();
        log.contains("accept a connection, 16 times").then_some(log)
    });
    assert_eq!(log.matches("http: cannot accept").count(), 5, "{log}");
    limit(1000);
}

/// The log gets its files from the system, or waits for them.
#[test]
fn without_a_file_to_be_had_the_log_goes_on_or_waits() {
    let server = Start::of("log_bytes = '8MiB'\nmemory = '32MiB'\n").serve_logged();
    let body = crate::common::noise(60_000);
    let mut client = server.client();
    client.put("w", &body);
    let pid = rustix::process::Pid::from_child(&server.child);
    let limit = |files: u64| {
        let limit = rustix::process::Rlimit {
            current: Some(files),
            maximum: Some(20_000),
        };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap();
    };
    limit(3);
    let mut stored = 1;
    client.set_patience(Duration::from_millis(50)).unwrap();
    let mut is_stored = |reply: &[u8]| match reply {
        b"STORED" => {
            stored += 1;
            stored < 800
        }
        b"SERVER_ERROR disk full" => false,
        other => panic!("{}", text(other)),
    };
    // Ten segments and more: spares, retirements and runs among it.
    let waits = loop {
        client.send(format!("set w 0 0 {}\r\n", body.len()).as_bytes());
        client.send(&body);
        client.send(b"\r\n");
        let reply = eventually("a reply, or a shortage", || match client.before(b"\r\n") {
            Ok(reply) => Some(Some(reply)),
            Err(_) => server
                .stderr_text()
                .contains("the disk is full")
                .then_some(None),
        });
        match reply {
            Some(reply) if is_stored(&reply) => {}
            Some(_) => break false,
            // The put that meets the end of the last file waits for the next one.
            None => break true,
        }
    };
    limit(1000);
    if waits {
        client.set_patience(PATIENCE).unwrap();
        is_stored(&client.before(b"\r\n").expect("a reply"));
    }
    await_that("it goes on", || {
        // One whose message was refused is closed.
        let mut client = server.client();
        client.send(b"set w 0 0 60000\r\n");
        client.send(&body);
        client.send(b"\r\n");
        client.until(b"\r\n") == b"STORED\r\n"
    });
    stored += 1;
    let mut client = server.client();
    for _ in 0..stored {
        client.take("w", &body);
    }
    client.take_nothing("w");
    assert!(server.stop().success());
}

/// As many connections as the process may have files for, and a warning.
#[test]
fn connections_fit_the_limit_on_open_files() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = Server::command(&data, &Start::default());
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 100 && exec \"$@\"", "sh"]);
    limited.arg(serve.get_program()).args(serve.get_args());
    limited.stderr(std::fs::File::create(dir.path().join("log")).unwrap());
    let server = Server::await_ready(&data, limited);
    let warned = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let wanted = "and the system allows 100: the server accepts 25 connections";
    assert!(warned.contains(wanted), "{warned}");
    let mut clients: Vec<Client> = (0..25).map(|_| server.client()).collect();
    for client in &mut clients {
        client.put("w", b"x");
    }
    server.client().expect_end();
}

/// Under a policy that would not sync for an hour, `/sync` does before it is
/// answered; other puts do not wait for it.
#[test]
fn a_set_with_sync_waits_for_the_disk() {
    for sync in ["60s", "never"] {
        let server = Start::default().sync(sync).serve();
        let syncs = || server.number("log_syncs");
        let mut client = server.client();
        client.put("q", b"a");
        let before = syncs();
        client.ask(b"set q/sync 0 0 1\r\nb\r\n", b"STORED\r\n");
        assert!(syncs() > before, "sync = {sync}");
        assert!(server.number("log_sync_us") > 0);
        client.take("q", b"a");
        client.take("q", b"b");
    }
}
