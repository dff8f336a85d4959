//! The server as it is without a configuration, but for its ports: all protocols,
//! HTTP, and the queues it makes for itself.

use std::net::TcpListener;

use quintet_config::Served;

use super::readme::default_ports;
use crate::common::{Data, Server, Start, await_that, quintet, text};

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

/// The threads of a server by their names, those for connections left out.
fn threads(server: &Server) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).expect("it runs");
    // One may have ended since.
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let names = names.map(|name| name.trim_end().to_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with("io-")).collect();
    names.sort_unstable();
    names
}

#[test]
fn an_idle_server_has_no_threads_for_parts_that_nobody_uses() {
    const IDLE: [&str; 15] = [
        "api",
        "compactor",
        "dispatcher",
        "fetch",
        "history",
        "http",
        "jemalloc_bg_thd",
        "log",
        "quintet",
        "rq sockets",
        "schedules",
        "signals",
        "sqs",
        "timer",
        "upkeep",
    ];
    let server = start("");
    await_that("only the threads of an idle server run", || {
        threads(&server) == IDLE
    });
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

#[test]
fn a_default_port_that_is_taken_is_skipped_with_its_line_and_the_others_are_open() {
    let _ports = default_ports();
    let _others = TcpListener::bind("127.0.0.1:11300").unwrap();
    let data = Data::fresh();
    let command = Server::command_as_configured(&data, &Start::default());
    let server = Server::start_logged(&data, command);
    let log = server.stderr_text();
    let line =
        "beanstalk: 127.0.0.1:11300 is in use, so this listener is not open; --port beanstalk=";
    assert!(log.contains(line), "{log}");
    assert_eq!(log.matches(" is in use").count(), 1, "{log}");
    for served in Served::all() {
        let name = served.name();
        let open = server.addresses_of(name).next();
        let address = format!("127.0.0.1:{}", served.port());
        let expected = (name != "beanstalk").then_some(address.as_str());
        assert_eq!(open, expected, "{name}");
    }
    let reply = server.ask("GET /api/v1/server", "", "");
    assert_eq!(reply.status, 200, "{}", reply.body);
}

/// Standard error of a server that does not start.
fn start_error(config: &str, args: &[&str]) -> String {
    let data = Data::fresh();
    let mut command = Server::command_as_configured(&data, &Start::of(config));
    command.args(args);
    let log = data.with_extension("stderr");
    let mut server = Server::spawn_logged(&data, command, &log).unwrap();
    let ended = server.try_ready().unwrap();
    let text = server.stderr_text();
    assert!(ended.is_some_and(|status| !status.success()), "{text}");
    text
}

#[test]
fn a_listener_that_is_named_with_a_taken_port_is_an_error() {
    let _ports = default_ports();
    let others = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = others.local_addr().unwrap();
    let listen = format!("beanstalk={taken}");
    let port = format!("beanstalk={}", taken.port());
    let table = format!("[[listen]]\nprotocol = 'beanstalk'\naddress = '{taken}'\n");
    let cases: [(&str, &[&str]); 3] = [
        ("", &["--listen", &listen]),
        ("", &["--port", &port]),
        (&table, &[]),
    ];
    for (config, args) in cases {
        let error = start_error(config, args);
        let named = format!("cannot listen on {taken} for beanstalk");
        assert!(error.contains(&named), "{config}{args:?}: {error}");
    }
}

#[test]
fn with_every_default_port_taken_the_server_does_not_start() {
    let _ports = default_ports();
    let all = || Served::all().map(|served| format!("127.0.0.1:{}", served.port()));
    let _others: Vec<TcpListener> = all().map(|at| TcpListener::bind(at).unwrap()).collect();
    let error = start_error("", &[]);
    let begins = "the port of every default listener is in use: ";
    assert!(error.contains(begins), "{error}");
    for (served, at) in Served::all().zip(all()) {
        let named = format!("{} {at}", served.name());
        assert!(error.contains(&named), "{named}: {error}");
    }
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
