//! The console as a browser without JavaScript uses it.

use serde_json::json;

use super::{Reply, World};

/// A queue of the API: its name is shown as everywhere.
pub(crate) fn put(world: &World, queue: &str, body: &str) -> u64 {
    let path = format!("/api/v1/queues/{queue}/messages");
    let reply = world.post_json(&path, &json!({ "messages": [{ "body": body }] }));
    assert_eq!(reply.status, 201, "{}", reply.text());
    reply.json()["ids"][0].as_u64().expect("an id")
}

pub(crate) fn page(world: &World, path: &str) -> String {
    let reply = world.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    assert_eq!(
        reply.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    reply.text()
}

/// The part of a page between two texts.
pub(crate) fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let rest = page.split_once(from);
    let rest = rest.unwrap_or_else(|| panic!("no {from} in {page}")).1;
    rest.split(to).next().expect("a part")
}

/// The token of its forms.
pub(crate) fn csrf(page: &str) -> String {
    between(page, "name=\"csrf\" value=\"", "\"").to_owned()
}

/// Sends a page's form with these fields more.
pub(crate) fn send(world: &World, page: &str, action: &str, fields: &str) -> Reply {
    assert!(page.contains(&format!("action=\"{action}\"")), "{page}");
    let token = page.split_once("name=\"token\" value=\"");
    let token = token.map_or("", |(_, rest)| rest.split('"').next().unwrap_or_default());
    world.post(
        action,
        &format!("csrf={}&token={token}&{fields}", csrf(page)),
    )
}

/// Follows a redirect to the page that tells what came of an act.
pub(crate) fn note(world: &World, reply: &Reply) -> String {
    let shown = page(world, reply.leads_to());
    between(
        &shown,
        "<p class=\"note\" role=\"status\"><span class=\"wrap\">",
        "<",
    )
    .to_owned()
}
