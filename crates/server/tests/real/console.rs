//! The console's page of the cluster: what it shows, and what its buttons do.

use serde_json::{Value, json};

use crate::common::{Connection, http};
use crate::node::{Cluster, Node, quintet, run};
use crate::servers::{LONG, until};

const HTTP: &str = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";

/// Asks a node over HTTP; its status, and everything it says.
fn ask(node: &mut Node, method: &str, path: &str, form: &str) -> (u16, String) {
    let line = node.wait_for("listening http ");
    let address = line.rsplit(' ').next().expect("an address");
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
    let connection = Connection::tcp(address, LONG).expect("it listens");
    let reply = http::ask(
        connection,
        &format!("{method} {path}"),
        kind,
        form.as_bytes(),
    );
    let reply = reply.expect("an answer");
    (
        reply.status,
        format!("{}\r\n\r\n{}", reply.head, reply.body),
    )
}

fn page(node: &mut Node) -> String {
    let (status, shown) = ask(node, "GET", "/cluster", "");
    assert_eq!(status, 200, "{shown}");
    shown
}

/// The page of the queue `q`'s events since this number, asked of a node.
fn tail(node: &mut Node, after: u64) -> Value {
    let path = format!("/api/v1/queues/q/tail?after={after}");
    let (status, response) = ask(node, "GET", &path, "");
    assert_eq!(status, 200, "{response}");
    let (_, page) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(page).expect("JSON")
}

/// A node reports a put with this body since this number; the number to go on with.
fn await_put_event(node: &mut Node, after: u64, body: &str) -> u64 {
    let page = until("an event", || {
        let page = tail(node, after);
        page["events"].get(0).is_some().then_some(page)
    });
    let event = &page["events"][0];
    assert_eq!(
        (&event["event"], &event["body_start"], &page["missed"]),
        (&"put".into(), &body.into(), &0.into()),
        "{page}"
    );
    page["next"].as_u64().expect("a number")
}

/// The row of a node in the table.
fn row<'a>(page: &'a str, name: &str) -> &'a str {
    let mut rows = page.split("<tr role=\"row\" class=\"nopick\">");
    let is = format!("<th role=\"rowheader\" scope=\"row\" class=\"wrap\">{name}<");
    let row = rows.find(|row| row.starts_with(&is));
    row.unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// Presses a button of the page; what the next page notes.
fn press(node: &mut Node, button: &str) -> String {
    let shown = page(node);
    let token = shown
        .split("name=\"csrf\" value=\"")
        .nth(1)
        .expect("a form");
    let token = token.split('"').next().expect("a token");
    let (status, response) = ask(node, "POST", button, &format!("csrf={token}"));
    assert_eq!(status, 303, "{response}");
    let to = response.split("location: ").nth(1).expect("where to go");
    let (_, shown) = ask(node, "GET", to.lines().next().expect("an address"), "");
    shown
}

#[test]
#[ignore = "needs nats-server"]
fn the_console_shows_the_nodes_and_has_another_one_own() {
    let cluster = Cluster::start("console");
    let mut a = cluster.node("a", HTTP);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", HTTP);
    b.wait_for("quintet standby of a");
    // The owner's page, to which the other one brings its clients.
    let verdict = "yes: the loss of any one machine would be survived now";
    let shown = until("all has caught up", || {
        let shown = page(&mut b);
        let caught_up = row(&shown, "b").contains("can take over") && shown.contains(verdict);
        (caught_up && shown.matches(">current<").count() == 2).then_some(shown)
    });
    assert!(shown.contains("as a sees it"), "{shown}");
    assert!(row(&shown, "a").contains(">owner<"), "{shown}");
    assert!(!row(&shown, "a").contains("/do/move"), "{shown}");

    let (status, response) = ask(&mut b, "POST", "/cluster/b/do/move", "csrf=0");
    assert_eq!(status, 403, "{response}");
    let shown = press(&mut b, "/cluster/nobody/do/drain");
    assert!(shown.contains("Not done: unknown node"), "{shown}");
    let shown = press(&mut b, "/cluster/b/do/drain");
    assert!(shown.contains("b is drained."), "{shown}");
    assert!(row(&shown, "b").contains("/do/undrain"), "{shown}");
    assert!(!row(&shown, "b").contains("/do/move"), "{shown}");
    let shown = press(&mut b, "/cluster/b/do/move");
    assert!(shown.contains("Not done: drained"), "{shown}");
    press(&mut b, "/cluster/b/do/undrain");
    until("it may own again", || {
        let shown = page(&mut b);
        row(&shown, "b").contains("/do/move").then_some(())
    });

    // It also brings those who follow a queue.
    let mut after = tail(&mut b, 0)["next"].as_u64().expect("a number");
    for body in ["one", "two", "three"] {
        a.client().put(body);
        after = await_put_event(&mut b, after, body);
    }

    // And the command line.
    let mut command = quintet(&["tail", "q", "--count", "0", "--data"]);
    let (code, text) = run(command.arg(cluster.dir().join("b")));
    assert_eq!((code, text.as_str()), (0, ""));
    let mut command = quintet(&["take", "q", "--data"]);
    let (code, text) = run(command.arg(cluster.dir().join("b")));
    assert!(code == 0 && text.contains("one"), "{text}");

    let token = page(&mut b);
    let token = token
        .split("name=\"csrf\" value=\"")
        .nth(1)
        .expect("a form");
    let form = format!("csrf={}", token.split('"').next().expect("a token"));
    let (status, response) = ask(&mut b, "POST", "/cluster/b/do/move", &form);
    assert_eq!(status, 303, "{response}");
    b.wait_for("quintet owner");
    a.wait_for("quintet standby of b");
    let shown = page(&mut a);
    assert!(row(&shown, "b").contains(">owner<"), "{shown}");
    // The new owner counts anew, and the one who follows goes on.
    let page = tail(&mut a, after);
    assert_eq!(
        (&page["events"], &page["missed"]),
        (&json!([]), &0.into()),
        "{page}"
    );
    after = page["next"].as_u64().expect("a number");
    for body in ["four", "five"] {
        b.client().put(body);
        after = await_put_event(&mut a, after, body);
    }
}
