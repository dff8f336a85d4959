//! Operators' commands on queues and messages.

use crate::common::{Server, Start, await_that, quintet, text};

/// Takes a job over beanstalk and buries it.
fn bury(server: &Server, queue: &str, count: usize) {
    let mut client = server.client_of("beanstalk");
    client.ask(format!("watch {queue}\r\n").as_bytes(), b"WATCHING 2\r\n");
    for _ in 0..count {
        client.send(b"reserve\r\n");
        let line = text(&client.until(b"\r\n"));
        let id = line.split(' ').nth(1).unwrap().to_owned();
        client.until(b"\r\n");
        client.ask(format!("bury {id} 1024\r\n").as_bytes(), b"BURIED\r\n");
    }
}

#[test]
fn purge_counts_confirms_filters_and_leaves_the_rest() {
    let server = Server::fresh();
    let mut client = server.client();
    for n in 0..2_500 {
        client.put("work", format!("job {n} of {}", n % 5).as_bytes());
    }
    server.printed(&["put", "work", "later", "--delay", "1h"]);
    let of_three = ["purge", "work", "--contains", "of 3"];
    let dry = server.printed(&[&of_three[..], &["--dry-run"]].concat());
    assert_eq!(dry, "500 messages would be purged\n");
    assert_eq!(server.queue_number("work", "ready"), 2_500);
    // Nobody is there to be asked.
    let (_, err, code) = server.outputs(&of_three);
    assert!(
        code == 1 && err.contains("500 messages of work would be purged: add --yes"),
        "{err}"
    );
    let few = server.printed(&[&of_three[..], &["--yes", "--max", "7"]].concat());
    assert_eq!(few, "7 messages purged\n");
    let json = server.printed(&[&of_three[..], &["--yes", "--json"]].concat());
    assert_eq!(
        json,
        "{\"dry_run\":false,\"messages\":493,\"stopped\":false}\n"
    );
    assert_eq!(server.queue_number("work", "ready"), 2_000);
    // All that waits, the delayed one too.
    let all = server.printed(&["purge", "work", "--yes"]);
    assert_eq!(all, "2001 messages purged\n");
    assert_eq!(server.queue_number("work", "delayed"), 0);
}

#[test]
fn retry_makes_failed_messages_ready() {
    let config = "[[queue]]\nname = \"fragile\"\nattempts_max = 1\ndead_letter = \"dead\"\n";
    let server = Start::of(config)
        .listen(&["memcache=0", "beanstalk=0"])
        .serve();
    for queue in ["fragile", "fragile", "work", "work"] {
        server.printed(&["put", queue, "x"]);
    }
    bury(&server, "work", 2);
    assert_eq!(
        server.printed(&["kick", "work", "--max", "1"]),
        "1 message kicked\n"
    );
    assert_eq!(server.queue_number("work", "buried"), 1);
    // Two connections take one each and go away with it.
    for _ in 0..2 {
        let mut client = server.client_of("beanstalk");
        client.send(b"watch fragile\r\nreserve\r\n");
        for _ in 0..3 {
            client.until(b"\r\n");
        }
        client.send(b"quit\r\n");
        client.expect_end();
    }
    await_that("the dead letters are there", || {
        let stats = server.run(&["stats", "dead", "--json"]);
        text(&stats.stdout).contains("\"ready\":2")
    });
    server.printed(&["put", "dead", "was always here"]);
    assert_eq!(
        server.printed(&["redrive", "dead", "--dry-run"]),
        "2 messages would be redriven\n"
    );
    assert_eq!(
        server.printed(&["redrive", "dead", "--max", "1"]),
        "1 message redriven\n"
    );
    assert_eq!(server.queue_number("fragile", "ready"), 1);
    // The rest, and what was buried there.
    assert_eq!(server.printed(&["retry", "dead"]), "1 message retried\n");
    assert_eq!(server.printed(&["retry", "work"]), "1 message retried\n");
    let there = ["fragile", "dead", "work"].map(|queue| server.queue_number(queue, "ready"));
    assert_eq!(there, [2, 1, 2]);
    let audit = server.printed(&["audit"]);
    assert!(
        audit.contains("/queues/dead/operations/redrive 200, 1 message\n")
            && audit.contains("/queues/work/operations/kick 200, 1 message\n"),
        "{audit}"
    );
}

#[test]
fn one_message_is_deleted_edited_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    for body in ["one", "two", "three"] {
        server.printed(&["put", "work", body]);
    }
    server.printed(&["delete", "1"]);
    assert!(
        server
            .outputs(&["delete", "1"])
            .1
            .contains("message 1: message not found")
    );
    assert_eq!(server.printed(&["edit", "3", "--priority", "0"]), "3\n");
    assert_eq!(
        server.printed(&["edit", "2", "--body", "zwei", "--priority", "7"]),
        "4\n"
    );
    assert!(
        server
            .outputs(&["edit", "2"])
            .1
            .contains("nothing to change")
    );
    assert!(
        server
            .outputs(&["edit", "2", "--priority", "1"])
            .1
            .contains("message 2 ")
    );
    let listed = server.printed(&["browse", "work"]);
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1][0], "3");
    assert_eq!(
        (rows[2][0], rows[2][2], rows[2][5]),
        ("4", "7", "zwei"),
        "{listed}"
    );
    assert_eq!(server.printed(&["edit", "4", "--delay", "1h"]), "4\n");
    let delayed = server.printed(&["browse", "work", "--state", "delayed", "--json"]);
    assert!(delayed.contains("\"body\":\"zwei\""), "{delayed}");
    let long = dir.path().join("long");
    std::fs::write(&long, vec![b'x'; 70_000]).unwrap();
    let (_, err, code) = server.outputs(&["edit", "3", "--file", long.to_str().unwrap()]);
    assert!(
        code == 1 && err.contains("body takes 65536 bytes at most"),
        "{err}"
    );
    // As it was left, after a start.
    let data = server.data.clone();
    assert!(server.stop().success());
    let server = Server::start(&data);
    assert_eq!(server.printed(&["take", "work"]), "three");
    assert_eq!(server.queue_number("work", "delayed"), 1);
}

#[test]
fn pages_of_a_browse_follow_each_other() {
    let server = Server::fresh();
    let mut client = server.client();
    for n in 0..30 {
        client.put("work", format!("number {n}").as_bytes());
    }
    let (out, err, _) = server.outputs(&["browse", "work"]);
    assert_eq!(out.lines().count(), 21);
    let after = err.split('\'').nth(1).expect("where to go on");
    // What stood there may be gone.
    server.printed(&["delete", "20"]);
    let rest = server.printed(&["browse", "work", "--after", after]);
    assert_eq!(rest.lines().count(), 11, "{rest}");
    assert!(
        rest.lines().nth(1).unwrap().ends_with("number 20"),
        "{rest}"
    );
}

#[test]
fn a_pause_lets_takes_wait_and_a_drain_refuses_puts() {
    let server = Server::fresh();
    server.printed(&["put", "work", "x"]);
    assert_eq!(server.printed(&["pause", "work"]), "work paused\n");
    assert_eq!(server.outputs(&["take", "work"]).2, 4);
    assert!(
        server
            .outputs(&["pause", "nowhere"])
            .1
            .contains("there is no queue nowhere")
    );
    for command in [
        &["browse", "wrok"][..],
        &["queues", "wrok"],
        &["purge", "wrok", "--yes"],
    ] {
        let (_, says, code) = server.outputs(command);
        let hint = "there is no queue wrok; did you mean work?";
        assert!(code == 1 && says.contains(hint), "{command:?}: {says}");
    }
    let peeked = |queue| {
        let (_, says, code) = server.outputs(&["peek", queue, "--state", "buried"]);
        (says, code)
    };
    let missing = "quintet: there is no queue wrok; did you mean work?\n";
    assert_eq!(peeked("wrok"), (missing.to_owned(), 4));
    let empty = "quintet: work has no buried message\n";
    assert_eq!(peeked("work"), (empty.to_owned(), 4));
    server.printed(&["resume", "work"]);
    assert_eq!(server.printed(&["take", "work"]), "x");
    server.printed(&["drain"]);
    await_that("puts are refused", || {
        server
            .outputs(&["put", "work", "y"])
            .1
            .contains("server is draining")
    });
    server.printed(&["undrain"]);
    await_that("puts are taken", || {
        server.outputs(&["put", "work", "y"]).2 == 0
    });
    server.printed(&["reload"]);
    await_that("it was read", || {
        server.printed(&["audit"]).contains("reloaded")
    });
}

#[test]
fn clients_and_leases_are_listed() {
    let server = Start::default()
        .listen(&["memcache=0", "beanstalk=0"])
        .serve();
    server.printed(&["put", "work", "x"]);
    let mut holder = server.client_of("beanstalk");
    holder.send(b"watch work\r\nreserve\r\n");
    for _ in 0..3 {
        holder.until(b"\r\n");
    }
    let mut waiter = server.client_of("beanstalk");
    waiter.send(b"watch other\r\nreserve\r\n");
    waiter.until(b"\r\n");
    let leases = server.printed(&["leases", "--json"]);
    let lease: serde_json::Value = serde_json::from_str(leases.trim()).unwrap();
    assert_eq!(
        (lease["id"].as_u64(), lease["queue"].as_str()),
        (Some(1), Some("work"))
    );
    assert!(
        lease["since_ms"].as_u64() < lease["until_ms"].as_u64(),
        "{lease}"
    );
    let id = lease["connection"].to_string();
    let client = |id: &str| {
        let all = server.printed(&["clients", "--json"]);
        all.lines()
            .find(|line| line.contains(&format!("\"id\":{id},")))
            .map(str::to_owned)
    };
    let there = client(&id).expect("it is listed");
    assert!(
        there.contains("\"leases\":1") && there.contains("beanstalk"),
        "{there}"
    );
    await_that("somebody waits", || {
        server
            .printed(&["clients"])
            .contains("waits on default other")
    });
    // Its lease ends with it.
    assert_eq!(
        server.printed(&["clients", "close", &id]),
        format!("connection {id} closed\n")
    );
    holder.expect_end();
    await_that("it is not listed", || client(&id).is_none());
    await_that("it has no lease", || {
        server.printed(&["leases", "work", "--json"]).is_empty()
    });
    assert_eq!(server.queue_number("work", "ready"), 1);
    let (_, err, code) = server.outputs(&["clients", "close", &id]);
    assert!(code == 1 && err.contains("there is no connection"), "{err}");
    let audit = server.printed(&["audit"]);
    for result in [204, 404] {
        let line = format!(" http DELETE /api/v1/connections/{id} {result}");
        assert!(audit.contains(&line), "{line}: {audit}");
    }
}

#[test]
fn track_shows_outcomes_by_name() {
    let server = Start::default().listen(&["beanstalk=0"]).serve();
    let put = |name: &str| server.printed(&["put", "film", "x", "--name", name, "--tracked"]);
    let state = |name: &str| {
        let line = server.printed(&["track", "film", name, "--json"]);
        let track: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&track["name"], &track["queue"]),
            (&name.into(), &"film".into())
        );
        track["state"].clone()
    };
    put("order 1");
    assert_eq!(state("order 1"), "waiting");
    let mut client = server.client_of("beanstalk");
    client.ask(b"watch film\r\nreserve\r\n", b"WATCHING 2\r\n");
    let reserved = text(&client.until(b"\r\n"));
    let id = reserved.split(' ').nth(1).unwrap().to_owned();
    client.until(b"\r\n");
    client.ask(
        format!("progress {id} 40 page 2\r\n").as_bytes(),
        b"NOTED\r\n",
    );
    let shown = server.printed(&["track", "film", "order 1"]);
    for cell in ["progress", "order 1", "reserved", "40 %", "page 2"] {
        assert!(shown.contains(cell), "{cell}: {shown}");
    }
    client.ask(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n");
    assert_eq!(state("order 1"), "done");
    // Of those that are known the rest is told.
    put("order 2");
    server.printed(&["put", "film", "x", "--name", "order 3"]);
    let some = server.outputs(&["track", "film", "order 2", "order 3", "--json"]);
    assert_eq!((some.0.lines().count(), some.2), (1, 4), "{some:?}");
    let none = server.outputs(&["track", "film", "order 3"]);
    assert_eq!((none.0.as_str(), none.2), ("", 4));
    assert!(none.1.contains("no tracked message order 3"), "{}", none.1);
    assert_eq!(server.outputs(&["track", "film"]).2, 2);
    let nameless = server.outputs(&["put", "film", "x", "--tracked"]);
    assert!(
        nameless.2 == 2 && nameless.1.contains("--name"),
        "{nameless:?}"
    );
}

/// It waits for a line that `quintet stats` prints when nothing is ready.
#[test]
fn the_example_of_drain_comes_to_an_end() {
    let server = Server::fresh();
    let help = text(&quintet(&["drain", "--help"]).output().unwrap().stdout);
    let (_, example) = help.split_once("until quintet ").unwrap();
    let (words, _) = example.split_once(" | grep -q '^ready  *0'").unwrap();
    let words: Vec<&str> = words.split(' ').collect();
    let output = text(&server.run(&words).stdout);
    let is_zero = |line: &str| line.strip_prefix("ready ").map(str::trim) == Some("0");
    assert!(output.lines().any(is_zero), "{output}");
}
