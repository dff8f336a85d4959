//! `quintet settings`, `quintet fanout`, and what `quintet put` says of a message.

use crate::common::{Server, Start, text};

/// A line's words.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn settings_of_queue_and_server_are_shown_with_their_source() {
    let server = Start::of(
        "queues_max = 77\n[defaults]\nttl = '1h'\n[[queue]]\nname = 'work*'\nattempts_max = 3\n\
         bytes_max = 0\n",
    )
    .serve();
    server.printed(&["put", "work", "a"]);
    let shown = server.printed(&["settings", "work"]);
    let lines: Vec<Vec<&str>> = shown.lines().map(words).collect();
    assert_eq!(lines[0], ["setting", "value", "source"]);
    // As the file says it, although it is the default.
    assert_eq!(lines[1][0], "bytes_max");
    assert_eq!(lines[1].last(), Some(&"file"));
    assert_eq!(lines[2], ["attempts_max", "3", "file"]);
    assert_eq!(lines[3], ["ttl", "\"1h\"", "file"]);
    assert_eq!(lines.len(), 4, "{shown}");
    let all = server.printed(&["settings", "work", "--all"]);
    let is = ["take_burst", "1", "default"];
    assert!(all.lines().any(|line| words(line) == is), "{all}");
    let running = server.printed(&["settings"]);
    assert!(running.contains("queues_max = 77\n"), "{running}");
    let done = server.run(&["settings", "nobody"]);
    let why = text(&done.stderr);
    assert_eq!(why, "quintet: there is no queue nobody\n");
    assert!(!done.status.success());
}

#[test]
fn a_queues_settings_are_set_and_cleared() {
    let server = Start::of("[[queue]]\nname = 'work'\nmessages_max = 5\n").serve();
    server.printed(&["put", "work", "a"]);
    let done = server.printed(&["set", "work", "messages_max=7", "take_rate=5/s"]);
    assert!(done.contains("messages_max = 7 (queue"), "{done}");
    assert!(done.contains("take_rate = \"5/s\" (queue"), "{done}");
    let done = server.printed(&["set", "work", "--clear", "messages_max"]);
    assert_eq!(done, "messages_max = 5 (file)\n");
    for wrong in [
        &["set", "work", "messages_max=x"][..],
        &["set", "work", "memory=true"],
        &["set", "work"],
    ] {
        assert!(!server.run(wrong).status.success(), "{wrong:?}");
    }
    let shown = server.printed(&["settings", "work"]);
    assert!(shown.contains("take_rate"), "{shown}");
}

#[test]
fn an_attribute_with_two_values_is_refused() {
    let server = Server::fresh();
    for command in ["put", "purge"] {
        let attrs = ["--attr", "lang=fr", "--attr", "lang=de"];
        let args = [&[command, "work"][..], &attrs].concat();
        let done = server.run(&args);
        assert!(!done.status.success(), "{command}");
        assert_eq!(
            text(&done.stderr),
            "quintet: --attr lang has two values: give one\n"
        );
    }
}

#[test]
fn the_json_of_take_can_be_imported() {
    let server = Server::fresh();
    server.printed(&["put", "work", "a"]);
    let taken = server.printed(&["take", "work", "--json"]);
    let file = server.data.join("taken.jsonl");
    std::fs::write(&file, taken).expect("written");
    server.printed(&["import", file.to_str().expect("a name")]);
    assert_eq!(server.printed(&["take", "work"]), "a");
}

#[test]
fn the_audit_has_no_line_for_a_dry_run() {
    let server = Server::fresh();
    server.printed(&["put", "work", "a"]);
    server.printed(&["purge", "work", "--dry-run"]);
    server.printed(&["drop", "w*", "--messages", "--dry-run"]);
    let audit = server.printed(&["audit"]);
    assert!(
        !audit.contains("purge") && !audit.contains("DELETE"),
        "{audit}"
    );
    server.printed(&["purge", "work", "--yes"]);
    let audit = server.printed(&["audit"]);
    assert!(
        audit.contains("/api/v1/queues/work/operations/purge"),
        "{audit}"
    );
}

#[test]
fn nothing_to_retry_names_the_queue_of_the_dead_letters() {
    let server = Start::of("[[queue]]\nname = 'work'\ndead_letter = 'dead'\n").serve();
    server.printed(&["put", "work", "a"]);
    let done = server.run(&["retry", "work"]);
    assert_eq!(text(&done.stdout), "0 messages retried\n");
    let says = text(&done.stderr);
    assert!(says.contains("quintet retry dead"), "{says}");
}

#[test]
fn fan_out_is_made_and_shown_by_a_command_and_ends_with_the_child() {
    let server = Start::of("shards = 4\n").serve();
    let made = server.printed(&["fanout", "orders", "audit", "billing"]);
    assert_eq!(made, "orders+audit\norders+billing\n");
    server.printed(&["put", "orders", "a"]);
    for queue in ["orders", "orders+audit", "orders+billing"] {
        assert_eq!(server.printed(&["take", queue]), "a", "{queue}");
    }
    let shown = server.printed(&["settings", "orders+audit"]);
    assert!(
        shown.ends_with("gets a copy of each message put to orders\n"),
        "{shown}"
    );
    server.printed(&["drop", "orders+audit"]);
    assert_eq!(server.printed(&["fanout", "orders"]), "orders+billing\n");
    let json = server.printed(&["fanout", "orders", "--json"]);
    assert_eq!(
        json,
        "{\"children\":[\"orders+billing\"],\"queue\":\"orders\"}\n"
    );
    let done = server.run(&["fanout", "orders+billing", "more"]);
    assert!(
        text(&done.stderr).contains("a child itself"),
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn a_put_brings_a_key_attributes_and_an_id_that_is_not_repeated() {
    let server = Server::fresh();
    let put = [
        "put",
        "work",
        "a",
        "--with-key",
        "ann",
        "--attr",
        "lang=fr",
        "--attr",
        "n=1",
        "--unique",
        "7",
    ];
    server.printed(&put);
    let again = server.run(&put);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    let why = text(&again.stderr);
    assert!(why.contains("duplicate"), "{why}");
    let browse = [
        "browse",
        "work",
        "--attr",
        "lang=fr",
        "--with-key",
        "ann",
        "--json",
    ];
    let shown = server.printed(&browse);
    assert_eq!(shown.lines().count(), 1, "{shown}");
    assert_eq!(server.printed(&["take", "work"]), "a");
}
