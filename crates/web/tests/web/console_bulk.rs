//! Acts on several queues, from the console's first page.

use crate::common;

use common::World;
use common::console::{csrf, note, page, put};
use quintet_client::ClientApi as _;

fn world() -> World {
    let world = World::new();
    for (queue, count) in [("a", 2), ("b", 3), ("../c", 1)] {
        for _ in 0..count {
            let path: String = form_urlencoded::byte_serialize(queue.as_bytes()).collect();
            put(&world, &path, "x");
        }
    }
    world
}

/// The hidden field of a page's form under this name.
fn hidden(page: &str, name: &str) -> Vec<String> {
    let mark = format!("name=\"{name}\" value=\"");
    let parts = page.split(&mark).skip(1);
    parts
        .map(|rest| rest.split('"').next().expect("a value").to_owned())
        .collect()
}

/// Answers the question of a page.
fn answer(world: &World, page: &str, act: &str, more: &str) -> String {
    let mut form = format!("csrf={}{more}", csrf(page));
    for name in ["queue", "token"] {
        for value in hidden(page, name) {
            form += &format!("&{name}={value}");
        }
    }
    note(world, &world.post(&format!("/bulk/{act}"), &form))
}

fn ready(world: &World, queue: &str) -> u64 {
    let queue = world.get(&format!("/api/v1/queues/{queue}")).json();
    queue["ready"].as_u64().expect("a number")
}

#[test]
fn queues_are_paused_and_resumed_together() {
    let world = world();
    let all = page(&world, "/");
    assert_eq!(hidden(&all, "queue").len(), 3, "{all}");
    let question = page(&world, "/bulk/pause?queue=a&queue=~2e2e2f63&queue=a");
    assert!(question.contains("Pause 2 queues?"), "{question}");
    assert_eq!(hidden(&question, "queue"), ["a", "~2e2e2f63"]);
    // To ask does nothing yet.
    assert!(!page(&world, "/").contains(">paused</span>"));
    assert_eq!(answer(&world, &question, "pause", ""), "2 queues paused.");
    assert_eq!(page(&world, "/").matches(">paused</span>").count(), 2);
    // One that is, is left out, and said to be.
    let again = page(&world, "/bulk/pause?queue=a&queue=b");
    assert!(again.contains("Pause 1 queue?") && again.contains("already paused"));
    let none = page(&world, "/bulk/resume?queue=b");
    assert!(none.contains("There are no queues to resume"), "{none}");
    let resumed = page(&world, "/bulk/resume?queue=a&queue=b&queue=~2e2e2f63");
    assert_eq!(answer(&world, &resumed, "resume", ""), "2 queues resumed.");
    assert!(!page(&world, "/").contains(">paused</span>"));
}

#[test]
fn queues_are_purged_together_of_messages_from_before_the_question() {
    let world = world();
    let question = page(&world, "/bulk/purge?queue=a&queue=b");
    assert!(
        question.contains("Delete 5 messages of 2 queues"),
        "{question}"
    );
    // Put later, by the server's clock: it stays.
    let asked_at = world.client_api.now();
    while world.client_api.now() <= asked_at {
        std::thread::yield_now();
    }
    put(&world, "a", "later");
    let output = answer(&world, &question, "purge", "");
    assert_eq!(output, "5 messages of 2 queues deleted.");
    assert_eq!((ready(&world, "a"), ready(&world, "b")), (1, 0));
    assert_eq!(ready(&world, "..%2Fc"), 1);
    // An answer counts once.
    let output = answer(&world, &question, "purge", "");
    assert!(output.starts_with("Nothing was done"), "{output}");
    assert_eq!(ready(&world, "a"), 1);
    let acts = page(&world, "/operations");
    assert_eq!(acts.matches(", purge</a>").count(), 2, "{acts}");
}

#[test]
fn queues_are_deleted_together_when_their_number_is_typed() {
    let world = world();
    let path = "/bulk/delete?queue=a&queue=b";
    let question = page(&world, path);
    assert!(question.contains("data-must=\"2 queues\""), "{question}");
    let output = answer(&world, &question, "delete", "&name=2");
    assert!(output.starts_with("Nothing was done"), "{output}");
    assert_eq!(ready(&world, "b"), 3);
    // A question about something else is no answer to this.
    let purge = page(&world, "/bulk/purge?queue=a&queue=b");
    let output = answer(&world, &purge, "delete", "&name=2+queues");
    assert!(output.starts_with("Nothing was done"), "{output}");
    let output = answer(&world, &page(&world, path), "delete", "&name=2+queues");
    assert_eq!(output, "2 queues deleted.");
    for (queue, status) in [("a", 404), ("b", 404), ("..%2Fc", 200)] {
        assert_eq!(world.get(&format!("/api/v1/queues/{queue}")).status, status);
    }
}

#[test]
fn a_selection_that_cannot_be_is_refused() {
    let world = world();
    let nothing = world.get("/bulk/purge");
    assert_eq!(
        note(&world, &nothing),
        "Nothing was selected: select rows first."
    );
    let many: String = (0..151).map(|n| format!("&queue=q{n}")).collect();
    for (path, status) in [
        ("/bulk/explode?queue=a", 404),
        ("/bulk/purge?queue=~zz", 400),
        (&*format!("/bulk/purge?{many}"), 400),
    ] {
        assert_eq!(world.get(path).status, status, "{path}");
    }
    let gone = page(&world, "/bulk/purge?queue=none");
    assert!(gone.contains("There are no queues to purge"), "{gone}");
    let token = csrf(&page(&world, "/bulk/pause?queue=a"));
    assert_eq!(world.post("/bulk/pause", "csrf=x&queue=a").status, 403);
    let odd = world.post("/bulk/purge", &format!("csrf={token}&token=x"));
    assert!(note(&world, &odd).starts_with("Nothing was done"));
    assert!(!page(&world, "/").contains(">paused</span>"));
}
