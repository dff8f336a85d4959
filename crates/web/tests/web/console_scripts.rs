//! The console about queues with scripts: what their runs wrote.

use crate::common;

use common::console::{between, page, put};
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
    assert!(!plain.contains("Log of the runs"), "{plain}");
    assert_eq!(world.get(&format!("/messages/{id}/log")).status, 404);
    assert!(!page(&world, "/queues/work").contains("script queue"));
}

#[test]
fn a_log_is_followed_from_where_the_page_ends() {
    let world = World::new();
    let gate = world.folder.path().join("gate");
    let waits = "echo first; until [ -e GATE ]; do sleep 0.1; done; echo second; echo done >&3";
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
    assert!(page(&world, &path).contains("No run has started."));
    let log = world.get(&format!("{path}/log"));
    assert_eq!(
        (log.status, log.header("quintet-state")),
        (204, Some("ready"))
    );
}

#[test]
fn a_script_without_work_is_no_waiting_consumer() {
    let world = World::new();
    world.queue("job", "echo done >&3");
    eventually("it waits", || {
        let response = world.get("/api/v1/queues/job").json();
        (response["waiting_peeks"] == 1 && response["waiters"] == 0).then_some(())
    });
    for path in ["/", "/queues/job"] {
        let shown = page(&world, path);
        let none = "<dt>Waiting consumers</dt><dd>0</dd>";
        assert!(shown.contains(none), "{path}: {shown}");
    }
}

#[test]
fn a_name_that_turns_its_line_around_is_shown_as_it_is() {
    let world = World::new();
    world.queue("a\u{202e}b", "echo done >&3");
    let path = "/q/a%E2%80%AEb";
    for (path, place) in [
        ("/q", ">NAME</a>"),
        (path, "<title>NAME</title>"),
        (path, "<h1>NAME</h1>"),
    ] {
        let shown = page(&world, path);
        let name = place.replace("NAME", "a\\xe2\\x80\\xaeb");
        assert!(shown.contains(&name), "{name}: {shown}");
        assert!(!shown.contains('\u{202e}'), "{shown}");
    }
}

/// A row of the page of scripts.
fn row(page: &str, queue: &str) -> String {
    let link = format!("data-row href=\"/queues/{queue}\"");
    between(page, &link, "</tr>").to_owned()
}

#[test]
fn queues_with_a_script_are_listed_with_their_last_failure() {
    let world = World::new();
    assert!(page(&world, "/scripts").contains("No queue that you can see has a script"));
    put(&world, "plain", "x");
    world.queue_with(
        "fails",
        "echo \"err <no> $RQ_PARAM2\" >&3",
        json!({"num_workers": 3}),
    );
    world.paused_queue("rests");
    let ids: Vec<u64> = (1..=4)
        .map(|n| {
            let short = world.message("fails", json!({ "param2": format!("{n}.") }));
            world.end("fails", &short);
            number(&short)
        })
        .collect();
    let shown = eventually("the last is listed, and over", || {
        let shown = page(&world, "/scripts");
        let row = row(&shown, "fails");
        let all = row.contains(&format!("/messages/{}\"", ids[3])) && row.contains(">0 of 3<");
        all.then_some(shown)
    });
    assert!(!shown.contains("queues/plain"), "{shown}");
    let fails = row(&shown, "fails");
    assert!(
        fails.contains(">idle<") && fails.contains("?state=buried\">4</a>"),
        "{fails}"
    );
    assert!(
        fails.contains("&#60;no&#62; 4.") && !fails.contains("<no>"),
        "{fails}"
    );
    // The last three, the last one first.
    let at = |n: usize| fails.find(&format!("/messages/{}\"", ids[n]));
    assert!(at(3) < at(2) && at(2) < at(1) && at(0).is_none(), "{fails}");
    assert!(row(&shown, "rests").contains("script paused"), "{shown}");
    // What is retried is no failure any more.
    let kicked = world.post_json(&format!("/api/v1/messages/{}/kick", ids[3]), &json!({}));
    assert!(kicked.status < 300, "{}", kicked.text());
    // RQ's own page stays.
    assert!(page(&world, "/q").contains("fails"));
}

#[test]
fn a_running_script_is_shown_and_pages_follow_one_another() {
    let world = World::new();
    world.queue("works", "sleep 1000");
    world.message("works", json!({}));
    eventually("it runs", || {
        let row = row(&page(&world, "/scripts"), "works");
        (row.contains(">running<") && row.contains(">1 of 1<")).then_some(())
    });
    for n in 0..100 {
        world.queue(&format!("z{n:03}"), "true");
    }
    let first = page(&world, "/scripts");
    assert!(first.contains("data-row href=\"/queues/z098\"") && !first.contains("/queues/z099\""));
    let next = between(&first, "href=\"/scripts?after=", "\"");
    let second = page(&world, &format!("/scripts?after={next}"));
    assert!(second.contains("/queues/z099\"") && !second.contains("/queues/z098\""));
}

#[test]
fn a_queue_shows_its_children_and_its_parent() {
    let world = World::new();
    put(&world, "news", "x");
    let joined = world.post_json("/api/v1/queues/news/children", &json!({"name": "<mail>"}));
    assert_eq!(joined.status, 200, "{}", joined.text());
    let parent = page(&world, "/queues/news");
    let to = between(
        &parent,
        "Copies of messages that are put here go to",
        "</p>",
    );
    assert!(to.contains("news+&#60;mail&#62;"), "{to}");
    let child = between(to, "href=\"", "\"");
    let child = page(&world, child);
    let from = between(&child, "a copy of each message that is put into", "</p>");
    assert!(from.contains("/queues/news\""));
    put(&world, "plain", "x");
    assert!(!page(&world, "/queues/plain").contains("Copies of messages"));
}
