//! Dead letters over the API and on the console: why, from where, and back.

use serde_json::{Value, json};

use crate::api::{get, post};
use crate::common::{Server, Start, http, page};

const FRAGILE: &str = "[[queue]]\nname = 'fragile'\nattempts_max = 1\ndead_letter = 'dead'\n";

/// Puts a message and fails it.
fn fail(server: &Server, queue: &str, error: &str) {
    let put = json!({ "messages": [{ "body": error }] });
    assert_eq!(
        post(server, &format!("/queues/{queue}/messages"), &put).status,
        201
    );
    let held = post(server, &format!("/queues/{queue}/reserve"), &json!({})).json;
    let lease = held["messages"][0]["lease"]
        .as_str()
        .expect("a lease")
        .to_owned();
    let failed = post(
        server,
        &format!("/leases/{lease}/fail"),
        &json!({ "error": error }),
    );
    assert!(failed.status < 300, "{}", failed.json);
}

fn ids(server: &Server, queue: &str) -> Vec<u64> {
    let list = get(server, &format!("/queues/{queue}/messages")).json;
    let all = list["messages"].as_array().expect("a list").iter();
    all.map(|message| message["id"].as_u64().expect("an id"))
        .collect()
}

fn served() -> Server {
    let server = Start::of(FRAGILE).listen(&["http=0"]).serve();
    for error in [
        "HTTP 503 after 12 s",
        "HTTP 500 after 7 s",
        "no such <b>user</b> 7\nat line 1",
        "HTTP 502 after 1 s",
    ] {
        fail(&server, "fragile", error);
    }
    server
}

#[test]
fn dead_letters_are_counted_by_error_and_go_back_one_by_one_or_by_error() {
    let server = served();
    let errors = get(&server, "/queues/dead/errors?state=ready").json;
    let kinds: Vec<(&Value, &Value, &Value)> = errors["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| (&kind["error"], &kind["messages"], &kind["from"]))
        .collect();
    let from = json!("fragile");
    assert_eq!(
        kinds,
        [
            (&json!("HTTP # after # s"), &json!(3), &from),
            (&json!("no such <b>user</b> #"), &json!(1), &from),
        ]
    );
    assert_eq!(
        (&errors["messages"], &errors["cursor"]),
        (&json!(4), &Value::Null)
    );
    let of = get(&server, "/queues/dead/messages?error=HTTP+%23+after+%23+s").json;
    assert_eq!(of["messages"].as_array().unwrap().len(), 3);
    let dead = ids(&server, "dead");
    let redrive = |id: u64| post(&server, &format!("/messages/{id}/redrive"), &json!({})).status;
    assert_eq!(redrive(dead[0]), 204);
    let back = ids(&server, "fragile");
    assert_eq!(back.len(), 1);
    // It is no dead letter any more.
    assert_eq!(redrive(back[0]), 404);
    let message = get(&server, &format!("/messages/{}", back[0])).json;
    assert!(
        message["headers"]
            .as_object()
            .is_none_or(serde_json::Map::is_empty),
        "{message}"
    );
    let some = json!({ "error": "HTTP # after # s" });
    let acted = post(&server, "/queues/dead/acts/redrive", &some).json;
    assert_eq!(acted["messages"], 2, "{acted}");
    assert_eq!(
        (ids(&server, "dead").len(), ids(&server, "fragile").len()),
        (1, 3)
    );
}

#[test]
fn the_console_shows_why_and_sends_back_what_is_selected() {
    let server = served();
    let (_, list) = page(&server, "/queues/dead");
    for shown in [
        "HTTP 503 after 12 s",
        "from <bdi>fragile</bdi>, ",
        "no such &#60;b&#62;user&#60;/b&#62; 7",
        "/ask/redrive",
    ] {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    // Each was tried once, where it came from.
    assert_eq!(list.matches("data-l=\"attempts\">1<").count(), 4, "{list}");
    let (_, grouped) = page(&server, "/queues/dead?group=1");
    assert!(
        grouped.contains(">HTTP # after # s</a>") && grouped.contains("data-l=\"messages\">3<"),
        "{grouped}"
    );
    let (_, only) = page(
        &server,
        "/queues/dead?state=ready&error=HTTP+%23+after+%23+s",
    );
    assert!(only.contains("3 found") && !only.contains("user"), "{only}");
    let dead = ids(&server, "dead");
    let path = format!(
        "/queues/dead/ask/redrive?pick=1&state=ready&id={}&id={}",
        dead[1], dead[2]
    );
    let (_, question) = page(&server, &path);
    assert!(question.contains("Redrive 2 messages?"), "{question}");
    let hidden = |name: &str| {
        let rest = question
            .split_once(&format!("name=\"{name}\" value=\""))
            .expect("a field")
            .1;
        rest.split('"').next().expect("its end")
    };
    let form = format!("csrf={}&token={}", hidden("csrf"), hidden("token"));
    let reply = server.ask("POST /queues/dead/do/redrive", http::FORM, &form);
    assert_eq!(reply.status, 303);
    assert_eq!(ids(&server, "fragile").len(), 2);
    assert_eq!(ids(&server, "dead"), [dead[0], dead[3]]);
    let (_, message) = page(&server, &format!("/messages/{}", dead[0]));
    assert!(
        message.contains(&format!("/messages/{}/do/redrive", dead[0])),
        "{message}"
    );
}
