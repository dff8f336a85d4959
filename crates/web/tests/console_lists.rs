//! The console's lists over all queues: leases and acts.

mod common;

use common::World;
use common::console::{between, note, page, put, send};
use serde_json::json;

/// Reserves a queue's first message for so long.
fn reserve(world: &World, queue: &str, lease_ms: u64) {
    let path = format!("/api/v1/queues/{queue}/reserve");
    let taken = world.post_json(&path, &json!({ "lease_ms": lease_ms }));
    assert_eq!(taken.status, 200, "{}", taken.text());
}

fn ready(world: &World, queue: &str) -> u64 {
    let shown = world.get(&format!("/api/v1/queues/{queue}")).json();
    shown["ready"].as_u64().expect("a number")
}

/// The ids of a page's rows, in their order.
fn ids(page: &str) -> Vec<u64> {
    let rows = page.split("data-row href=\"/messages/").skip(1);
    rows.map(|row| between(row, "", "\"").parse().expect("an id"))
        .collect()
}

#[test]
fn leases_of_all_queues_are_listed_and_those_that_end_first_are_first() {
    let world = World::new();
    assert!(page(&world, "/leases").contains("Nobody holds a lease"));
    let (late, soon) = (put(&world, "early-name", "x"), put(&world, "work", "x"));
    put(&world, "work", "left");
    reserve(&world, "early-name", 18_000_000);
    reserve(&world, "work", 9_000_000);
    let shown = page(&world, "/leases");
    assert_eq!(ids(&shown), [soon, late], "{shown}");
    assert!(shown.contains("data-l=\"ends in\">2 h "), "{shown}");
    assert!(shown.contains("<dt>Leases</dt><dd>2</dd>"), "{shown}");
    assert_eq!(ids(&page(&world, "/leases?queue=early-name")), [late]);
    let none = page(&world, "/leases?who=nobody-of-this-name");
    assert!(ids(&none).is_empty() && none.contains("No lease is so"));
    assert_eq!(world.get("/leases?queue=none").status, 404);
}

#[test]
fn a_lease_is_put_back_and_extended_from_the_list() {
    let world = World::new();
    let id = put(&world, "work", "x");
    reserve(&world, "work", 9_000_000);
    let list = page(&world, "/leases?queue=work");
    let extended = send(
        &world,
        &list.replace("formaction", "action"),
        &format!("/messages/{id}/do/extend"),
        "",
    );
    assert_eq!(note(&world, &extended), "Its lease begins again.");
    let back = between(&list, "name=\"back\" value=\"", "\"");
    let reply = send(
        &world,
        &list,
        &format!("/messages/{id}/do/putback"),
        &format!("back={}", back.replace('?', "%3f").replace('=', "%3d")),
    );
    assert!(reply.leads_to().starts_with("/leases?queue=work"));
    assert!(note(&world, &reply).starts_with("Put back"));
    assert_eq!(ready(&world, "work"), 1);
}

#[test]
fn acts_are_listed_newest_first_with_what_came_of_them() {
    let world = World::new();
    assert!(page(&world, "/acts").contains("No act on many messages"));
    for queue in ["one", "two"] {
        put(&world, queue, "x");
        let question = page(&world, &format!("/queues/{queue}/ask/purge"));
        send(&world, &question, &format!("/queues/{queue}/do/purge"), "");
    }
    let shown = page(&world, "/acts");
    let (newer, older) = shown.split_once(">1, purge<").expect("the first act");
    assert!(newer.contains(">2, purge<") && newer.contains("/queues/two\""));
    assert!(older.contains("/queues/one\"") && older.contains("1 message deleted."));
    assert!(!shown.contains("do/stop"), "what is over cannot be stopped");
    // What came of them is kept up while one looks.
    let one = page(&world, "/acts/1");
    for (page, part) in [(&shown, "a/2"), (&one, "act")] {
        assert!(page.contains("data-live=\"\"") && page.contains(&format!("data-f=\"{part}\"")));
    }
}
