//! The console's lists over all queues: leases and acts.

use crate::common;

use common::console::{between, note, page, put, send};
use common::{World, eventually};
use serde_json::{Value, json};

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
    assert!(page(&world, "/leases").contains("There are no leases"));
    let (late, soon) = (put(&world, "early-name", "x"), put(&world, "work", "x"));
    put(&world, "work", "left");
    reserve(&world, "early-name", 18_000_000);
    reserve(&world, "work", 9_000_000);
    let shown = page(&world, "/leases");
    assert_eq!(ids(&shown), [soon, late], "{shown}");
    assert!(shown.contains("data-l=\"ends in\">2h "), "{shown}");
    assert!(shown.contains("<dt>Leases</dt><dd>2</dd>"), "{shown}");
    assert_eq!(ids(&page(&world, "/leases?queue=early-name")), [late]);
    let none = page(&world, "/leases?who=nobody-of-this-name");
    assert!(ids(&none).is_empty() && none.contains("No lease matches"));
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
    assert_eq!(note(&world, &extended), "Extended: its lease starts again.");
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
fn operations_are_listed_newest_first_with_their_result() {
    let world = World::new();
    assert!(page(&world, "/operations").contains("No bulk operation"));
    for queue in ["one", "two"] {
        put(&world, queue, "x");
        let question = page(&world, &format!("/queues/{queue}/ask/purge"));
        send(&world, &question, &format!("/queues/{queue}/do/purge"), "");
    }
    let shown = page(&world, "/operations");
    let (newer, older) = shown.split_once(">1, purge<").expect("the first act");
    assert!(newer.contains(">2, purge<") && newer.contains("/queues/two\""));
    assert!(older.contains("/queues/one\"") && older.contains("1 message deleted."));
    assert!(
        !shown.contains("do/stop"),
        "a batch that ended cannot be stopped"
    );
    // What came of them is kept up while one looks.
    let one = page(&world, "/operations/1");
    for (page, part) in [(&shown, "a/2"), (&one, "act")] {
        assert!(page.contains("data-live=\"\"") && page.contains(&format!("data-f=\"{part}\"")));
    }
}

/// Makes a batch over the API.
fn batch(world: &World, description: &str, more: Value) -> String {
    let mut new = json!({
        "description": description,
        "complete": { "queue": "ran", "body": "all ran" },
        "success": { "queue": "reports", "body": "all done" },
    });
    let more = more.as_object().expect("an object");
    let fields = new.as_object_mut().expect("an object");
    fields.extend(more.clone());
    let made = world.post_json("/api/v1/batches", &new);
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["id"].as_str().expect("an id").to_owned()
}

fn put_into(world: &World, queue: &str, batch: &str) -> u64 {
    let path = format!("/api/v1/queues/{queue}/messages");
    let put = json!({ "messages": [{ "body": "x", "batch": batch }] });
    let reply = world.post_json(&path, &put);
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()["ids"][0].as_u64().expect("an id")
}

/// The cell of a list in this row and column.
fn cell<'a>(page: &'a str, row: &str, label: &str) -> &'a str {
    let found = page.split_once(&format!("data-f=\"{row}\""));
    let (_, rest) = found.unwrap_or_else(|| panic!("no {row} in {page}"));
    let cell = between(rest, &format!("data-l=\"{label}\">"), "</td>");
    let text = cell.rsplit_once('>').map_or(cell, |(_, text)| text);
    match cell
        .strip_suffix("</data>")
        .or(cell.strip_suffix("</span>"))
    {
        Some(inner) => inner.rsplit('>').next().expect("a text"),
        None => text,
    }
}

#[test]
fn batches_are_listed_with_how_far_they_are() {
    let world = World::new();
    let empty = page(&world, "/batches");
    assert!(
        empty.contains("You can see no batches") && empty.contains("docs/batches.md"),
        "{empty}"
    );
    let first = batch(&world, "March <b>", json!({}));
    let child = batch(&world, "pages", json!({ "parent": first }));
    put_into(&world, "images", &first);
    put_into(&world, "images", &first);
    let shown = page(&world, "/batches");
    let row = format!("b/{first}");
    for (label, text) in [
        ("is", "open"),
        ("messages", "2"),
        ("pending", "2"),
        ("failed", "0"),
        ("all ran", "not yet"),
        ("all succeeded", "not yet"),
    ] {
        assert_eq!(cell(&shown, &row, label), text, "{label}: {shown}");
    }
    assert!(shown.contains("March &#60;b&#62;"), "{shown}");
    let of = format!("of <a class=\"id\" href=\"/batches/{first}\">");
    assert!(shown.contains(&of), "{shown}");
    assert!(shown.contains("<main id=\"main\" tabindex=\"-1\" data-live=\"\">"));
    for (query, found) in [
        ("has=pages", vec![&child]),
        ("only=open", vec![&first, &child]),
        ("only=committed", vec![]),
        ("only=open&has=March", vec![&first]),
    ] {
        let shown = page(&world, &format!("/batches?{query}"));
        for id in [&first, &child] {
            let there = shown.contains(&format!("data-f=\"b/{id}\""));
            assert_eq!(there, found.contains(&id), "{query}: {shown}");
        }
    }
    assert_eq!(world.get("/batches?after=x").status, 400);
    let found = world.get(&format!("/find?q={child}"));
    assert_eq!(found.leads_to(), format!("/batches/{child}"));
}

#[test]
fn batches_are_listed_page_by_page() {
    let world = World::new();
    let made: Vec<String> = (0..120)
        .map(|n| batch(&world, &format!("batch {}", n % 2), json!({})))
        .collect();
    for (query, expected) in [("", made.clone()), ("has=batch+1", odd(&made))] {
        let mut path = format!("/batches?{query}");
        let mut seen = Vec::new();
        loop {
            let shown = page(&world, &path);
            let rows = shown.split("data-f=\"b/").skip(1);
            seen.extend(rows.map(|row| row.split('"').next().expect("an id").to_owned()));
            let next = shown
                .split_once("\">Next</a>")
                .or_else(|| shown.split_once("\">Search further</a>"));
            let Some((before, _)) = next else { break };
            let link = before.rsplit("href=\"").next().expect("a link");
            path = link.replace("&#38;", "&");
        }
        assert_eq!(seen, expected, "{query}");
    }
}

fn odd(all: &[String]) -> Vec<String> {
    all.iter().skip(1).step_by(2).cloned().collect()
}

#[test]
fn a_batch_is_committed_opened_and_forgotten() {
    let world = World::new();
    let id = batch(&world, "March", json!({}));
    let member = put_into(&world, "images", &id);
    let path = format!("/batches/{id}");
    let shown = page(&world, &path);
    assert!(shown.contains("<h1 class=\"mono\">"), "{shown}");
    assert!(
        shown.contains("When all have succeeded") && shown.contains("href=\"/queues/reports\""),
        "{shown}"
    );
    // A member's page leads to it.
    let link = format!("href=\"/batches/{id}\"");
    let message = page(&world, &format!("/messages/{member}"));
    assert!(
        message.contains(&link) && message.contains("the message has not run yet"),
        "{message}"
    );
    let committed = send(&world, &shown, &format!("{path}/do/commit"), "");
    assert_eq!(committed.leads_to().split('?').next(), Some(path.as_str()));
    assert!(note(&world, &committed).starts_with("Committed"));
    let response = || world.get(&format!("/api/v1/batches/{id}"));
    assert_eq!(response().json()["open"], false);
    let shown = page(&world, &path);
    assert!(!shown.contains("do/commit"), "{shown}");
    let opened = send(&world, &shown, &format!("{path}/do/open"), "");
    assert!(note(&world, &opened).starts_with("Open"));
    assert_eq!(response().json()["open"], true);
    // Nothing is forgotten before it is asked.
    let question = page(&world, &format!("{path}/ask/forget"));
    assert!(
        question.contains("Forget the batch of 1 message")
            && question.contains("kept as ordinary messages"),
        "{question}"
    );
    assert_eq!(response().status, 200);
    let forgotten = send(&world, &question, &format!("{path}/do/forget"), "");
    assert!(note(&world, &forgotten).contains("is forgotten"));
    assert_eq!(response().status, 404);
    for path in [
        &path,
        &format!("{path}/ask/forget"),
        "/batches/b-1",
        "/batches/x",
    ] {
        assert_eq!(world.get(path).status, 404, "{path}");
    }
    let message = page(&world, &format!("/messages/{member}"));
    assert!(
        message.contains("the batch is gone") && !message.contains(&link),
        "{message}"
    );
}

#[test]
fn a_batch_that_is_over_says_so() {
    let world = World::new();
    let id = batch(&world, "", json!({}));
    put_into(&world, "images", &id);
    let shown = page(&world, &format!("/batches/{id}"));
    send(&world, &shown, &format!("/batches/{id}/do/commit"), "");
    // The second callback is put when the first is done.
    for queue in ["images", "ran"] {
        let path = format!("/api/v1/queues/{queue}/reserve");
        let taken = world.post_json(&path, &json!({})).json();
        let token = taken["messages"][0]["lease"]
            .as_str()
            .expect("a lease")
            .to_owned();
        let finished = world.post_json(&format!("/api/v1/leases/{token}/finish"), &json!({}));
        assert_eq!(finished.status, 204, "{}", finished.text());
    }
    let shown = eventually("it is over", || {
        let shown = page(&world, &format!("/batches/{id}"));
        shown
            .contains("<span class=\"tag good\">done</span>")
            .then_some(shown)
    });
    assert!(
        !shown.contains("do/open") && !shown.contains("do/commit"),
        "{shown}"
    );
    let list = page(&world, "/batches?only=done");
    assert_eq!(cell(&list, &format!("b/{id}"), "all ran"), "finished");
    let refused = send(
        &world,
        &page(&world, &format!("/batches/{id}/ask/forget")),
        &format!("/batches/{id}/do/forget"),
        "",
    );
    assert_eq!(refused.status, 303);
    let without = world.post(&format!("/batches/{id}/do/commit"), "csrf=none");
    assert_eq!(without.status, 403);
}
