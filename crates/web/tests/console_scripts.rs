//! The console about queues with scripts: what their runs wrote.

mod common;

use common::console::{page, put};
use common::{World, eventually};
use serde_json::json;

/// The number of a message by its short id.
fn number(short: &str) -> u64 {
    let last = short.rsplit('.').next().expect("a part");
    last.parse().expect("a number")
}

#[test]
fn a_message_shows_what_its_script_wrote_in_colours_and_as_text() {
    let world = World::new();
    let says =
        "printf '\\033[1;31mred <alert>\\033[0m\\n'; echo '<script>x</script>'; echo err no >&3";
    world.queue("job", says);
    let short = world.message("job", json!({}));
    world.end("job", &short);
    let shown = page(&world, &format!("/messages/{}", number(&short)));
    assert!(
        shown.contains("<span class=\"B c1\">red &#60;alert&#62;</span>"),
        "{shown}"
    );
    assert!(shown.contains("&#60;script&#62;x"), "{shown}");
    assert!(!shown.contains("<script>x") && !shown.contains('\u{1b}'));
    assert!(!shown.contains(" style="), "{shown}");
    // It is over: nothing is followed.
    assert!(!shown.contains("data-follow"), "{shown}");
    let queue = page(&world, "/queues/job");
    assert!(queue.contains("script queue"), "{queue}");
    // Where no script takes, there is no log.
    let id = put(&world, "work", "body");
    let plain = page(&world, &format!("/messages/{id}"));
    assert!(!plain.contains("Log of its runs"), "{plain}");
    assert_eq!(world.get(&format!("/messages/{id}/log")).status, 404);
    assert!(!page(&world, "/queues/work").contains("script queue"));
}

#[test]
fn a_log_is_followed_from_where_the_page_ends() {
    let world = World::new();
    let gate = world.folder.path().join("gate");
    let waits = "echo first; until [ -e GATE ]; do sleep 0.01; done; echo second; echo done >&3";
    world.queue("job", &waits.replace("GATE", gate.to_str().expect("text")));
    let short = world.message("job", json!({}));
    let path = format!("/messages/{}", number(&short));
    let shown = eventually("it writes", || {
        let shown = page(&world, &path);
        shown.contains("\nfirst\n").then_some(shown)
    });
    assert!(
        shown.contains(&format!("data-follow=\"{path}/log\" data-from=\"0\"")),
        "{shown}"
    );
    let log = world.get(&format!("{path}/log"));
    assert_eq!(log.header("quintet-state"), Some("reserved"));
    let policy = log.header("content-security-policy").expect("a policy");
    assert!(policy.contains("sandbox"), "{policy}");
    let range = format!("bytes={}-", log.body.len());
    let rest = || world.ask("GET", &format!("{path}/log"), &[("range", &range)], b"");
    let none = rest();
    assert_eq!(
        (none.status, none.header("quintet-state")),
        (416, Some("reserved"))
    );
    std::fs::write(&gate, "").expect("written");
    let more = eventually("it goes on", || {
        Some(rest()).filter(|more| more.status == 206)
    });
    assert!(more.text().starts_with("second\n"), "{}", more.text());
    world.end("job", &short);
    assert_eq!(rest().header("quintet-state"), Some("done"));
    assert!(!page(&world, &path).contains("data-follow"));
}

#[test]
fn of_a_message_that_waits_there_is_no_log_yet() {
    let world = World::new();
    world.paused_queue("job");
    let short = world.message("job", json!({}));
    let path = format!("/messages/{}", number(&short));
    assert!(page(&world, &path).contains("No run of it has begun."));
    let log = world.get(&format!("{path}/log"));
    assert_eq!(
        (log.status, log.header("quintet-state")),
        (204, Some("ready"))
    );
}
