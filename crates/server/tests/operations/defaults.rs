//! The server as it is without a configuration, but for its ports: all protocols,
//! HTTP, and the queues it makes for itself.

use crate::common::{Server, Start, quintet, text};

/// A server with every default but these hosts, listening on free ports.
fn start(relay_hosts: &str) -> Server {
    let printed = quintet(&["serve", "--print-config"]).output().unwrap();
    let config = text(&printed.stdout);
    let mut ports = 0;
    let lines = config.lines().map(|line| match line.rsplit_once(':') {
        Some((address, _)) if line.starts_with("address = ") => {
            ports += 1;
            format!("{address}:0\"\n")
        }
        None if line.starts_with("relay_hosts = ") => format!("relay_hosts = \"{relay_hosts}\"\n"),
        Some(_) | None => format!("{line}\n"),
    });
    let config: String = lines.collect();
    assert!(ports > 5, "{config}");
    Start::of(&config).serve_as_configured()
}

#[test]
fn queues_of_the_server_alone_are_no_tubes() {
    let server = start("localhost");
    // The consumer of `relay`.
    server.await_number("waiting_peeks", |peeks| peeks == 1);
    let mut client = server.client_of("beanstalk");
    let mut exchange = |sent: &[u8], expected: &[u8]| {
        client.ask(sent, expected);
    };
    exchange(b"list-tubes\r\n", b"OK 14\r\n---\n- default\n\r\n");
    exchange(b"stats-tube relay\r\n", b"NOT_FOUND\r\n");
    // From the moment somebody uses one it is there.
    exchange(b"use relay\r\n", b"USING relay\r\n");
    exchange(b"list-tubes\r\n", b"OK 22\r\n---\n- default\n- relay\n\r\n");
    exchange(b"use default\r\n", b"USING default\r\n");
    exchange(b"list-tubes\r\n", b"OK 14\r\n---\n- default\n\r\n");
    client.send(b"stats\r\n");
    let stats = text(&client.until(b"platform: "));
    for line in [
        "current-tubes: 1",
        "current-waiting: 0",
        "version: \"1.13\"",
    ] {
        assert!(stats.lines().any(|other| other == line), "{line}: {stats}");
    }
}

/// No built-in script takes the messages of queues that happen to have their names.
#[test]
fn without_hosts_or_scripts_relay_and_webhook_are_queues_as_any_other() {
    let server = start("");
    let (status, queues) = crate::common::page(&server, "/q.txt");
    assert_eq!(status, 200);
    for queue in ["relay", "webhook"] {
        assert!(!queues.contains(queue), "{queues}");
        assert!(server.run(&["put", queue, "mine"]).status.success());
        assert_eq!(
            text(&server.run(&["take", queue]).stdout).trim_end(),
            "mine"
        );
    }
    assert_eq!(server.number("waiting_peeks"), 0);
}

/// With the settings that other tests make smaller.
#[test]
fn an_empty_server_takes_little_disk() {
    let server = Start::of("segment_bytes = '64MiB'\nspare_segments = 2\n").serve();
    let files = || {
        let files = std::fs::read_dir(&server.data).unwrap().flatten();
        files.filter(|file| file.metadata().is_ok_and(|it| it.is_file()))
    };
    let is_spare = |name: &str| name.starts_with("spare-") && name.ends_with(".log");
    crate::common::await_that("the spares are not there", || {
        2 == files()
            .filter(|file| file.file_name().to_str().is_some_and(is_spare))
            .count()
    });
    let bytes: u64 = files().map(|file| file.metadata().unwrap().len()).sum();
    assert!((6 << 20..8 << 20).contains(&bytes), "{bytes}");
}
