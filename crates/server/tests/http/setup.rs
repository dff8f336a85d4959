//! Settings of a queue that are changed while the server runs, over the API and on the console.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api::{Reply, ask, get, post};
use crate::common::{Server, Start, await_that, http, page};

const USERS: &str = "[[user]]\nname = 'anna'\n[[grant]]\nuser = 'anna'\nqueues = ['*']\n\
                     rights = ['put', 'take', 'settle', 'peek', 'admin', 'server']\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'anna'\n";
const RULE: &str = "[[queue]]\nname = 'work'\nin_flight_max = 9\nlocked = ['ttl', 'paused']\n";

fn start(dir: &tempfile::TempDir, config: &str) -> Server {
    Server::start_as_configured(&dir.path().join("data"), Start::of(config))
}

fn put(server: &Server, queue: &str) {
    let put = json!({ "messages": [{ "body": "a" }, { "body": "b" }] });
    let reply = post(server, &format!("/queues/{queue}/messages"), &put);
    assert_eq!(reply.status, 201);
}

fn patch(server: &Server, queue: &str, headers: &str, changes: &Value) -> Reply {
    let head = format!("PATCH /queues/{queue}/settings");
    ask(server, &head, headers, &changes.to_string())
}

fn setting(of: &Value, key: &str) -> Value {
    let mut all = of["settings"].as_array().expect("settings").iter();
    let found = all.find(|setting| setting["key"] == key);
    found.unwrap_or_else(|| panic!("no {key} in {of}")).clone()
}

fn tag(reply: &Reply) -> String {
    let tag = reply.head.split_once("etag: ").expect("a tag").1;
    tag.split("\r\n").next().expect("its line").to_owned()
}

#[test]
fn a_change_wins_over_the_file_and_survives_a_kill_until_it_is_cleared() {
    let dir = tempfile::tempdir().unwrap();
    let config = format!("{USERS}{RULE}");
    let server = start(&dir, &config);
    put(&server, "work");
    let changes =
        json!({ "in_flight_max": 1, "take_rate": "5/m", "retry_max": 3, "retry_on": ["lost"] });
    let changed = patch(&server, "work", "", &changes);
    assert_eq!(changed.status, 200, "{}", changed.json);
    let check = |server: &Server| {
        let settings = get(server, "/queues/work/settings").json;
        let set = setting(&settings, "in_flight_max");
        assert_eq!(
            (&set["value"], &set["source"], &set["set_by"]),
            (&json!(1), &json!("queue"), &json!("anna"))
        );
        assert!(set["set_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
        assert_eq!(setting(&settings, "take_rate")["value"], "5/m");
        // The rest of the policy stays as it was in force.
        assert_eq!(setting(&settings, "retry_delay")["value"], "1s");
        assert_eq!(setting(&settings, "tags")["source"], "default");
        assert!(setting(&settings, "ttl")["locked"] == true);
    };
    check(&server);
    // It counts.
    let reserve = json!({ "max": 2, "lease_ms": 60_000 });
    let held = post(&server, "/queues/work/reserve", &reserve).json;
    assert_eq!(held["messages"].as_array().unwrap().len(), 1);
    server.kill();
    let server = start(
        &dir,
        &config.replace("in_flight_max = 9", "in_flight_max = 7"),
    );
    check(&server);
    let clear = json!({ "in_flight_max": null, "retry_max": null });
    let settings = patch(&server, "work", "", &clear).json;
    let cleared = setting(&settings, "in_flight_max");
    assert_eq!(
        (&cleared["value"], &cleared["source"]),
        (&json!(7), &json!("file"))
    );
    assert!(cleared["set_by"].is_null());
    assert_eq!(setting(&settings, "retry_max")["value"], 24);
    assert_eq!(setting(&settings, "retry_on")["value"], json!([]));
    let audit = crate::common::text(&server.run(&["audit"]).stdout);
    assert!(
        audit.contains("PATCH /api/v1/queues/work/settings 200"),
        "{audit}"
    );
}

#[test]
fn a_policy_that_is_chosen_counts_for_all_failures_as_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, USERS);
    put(&server, "work");
    let all = json!(["release", "timeout", "lost"]);
    for (changes, causes) in [
        (json!({ "retry_max": 3 }), all.clone()),
        (json!({ "retry_delay": "2s" }), all),
        (json!({ "retry_on": ["lost"] }), json!(["lost"])),
        (json!({ "retry_max": 5 }), json!(["lost"])),
        (json!({ "retry_on": null }), json!([])),
    ] {
        let settings = patch(&server, "work", "", &changes).json;
        assert_eq!(setting(&settings, "retry_on")["value"], causes, "{changes}");
    }
}

#[test]
fn a_setting_or_a_header_that_is_there_twice_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, USERS);
    put(&server, "work");
    let twice = r#""headers": {"a": "1", "a": "2"}"#;
    for (head, body, field) in [
        (
            "PATCH /queues/work/settings",
            r#"{"ttl": "5s", "ttl": "6s"}"#.to_owned(),
            "ttl",
        ),
        (
            "POST /queues/work/messages",
            format!("{{\"messages\": [{{{twice}}}]}}"),
            "messages[0].headers.a",
        ),
        (
            "POST /queues/work/operations/purge",
            format!("{{{twice}}}"),
            "headers.a",
        ),
        (
            "POST /batches",
            format!("{{\"success\": {{\"queue\": \"work\", {twice}}}}}"),
            "success.headers.a",
        ),
        (
            "PUT /schedules/nightly",
            format!("{{\"every_ms\": 60000, \"queue\": \"work\", {twice}}}"),
            "headers.a",
        ),
    ] {
        let reply = ask(&server, head, "", &body);
        let found = (reply.status, reply.json["field"].as_str());
        assert_eq!(found, (400, Some(field)), "{head}: {}", reply.json);
    }
    let settings = get(&server, "/queues/work/settings").json;
    assert_eq!(setting(&settings, "ttl")["source"], "default");
}

#[test]
fn a_setting_that_cannot_be_changed_has_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, &format!("{USERS}{RULE}"));
    put(&server, "work");
    for (changes, status, code, field, why) in [
        (
            json!({ "ttl": "5s" }),
            403,
            "locked",
            "ttl",
            "ttl is locked by the configuration",
        ),
        (
            json!({ "num_workers": 3 }),
            400,
            "bad_field",
            "num_workers",
            "num_workers can be changed only in the configuration file",
        ),
        (
            json!({ "rank": 1 }),
            400,
            "bad_field",
            "rank",
            "did you mean \"default_priority\"?",
        ),
        (
            json!({ "priority": 1 }),
            400,
            "bad_field",
            "priority",
            "did you mean \"default_priority\"?",
        ),
        (
            json!({ "memory": true }),
            400,
            "bad_field",
            "memory",
            "can be changed only in the configuration file",
        ),
        (
            json!({ "tags": "x" }),
            400,
            "bad_field",
            "tags",
            "can be changed only in the configuration file",
        ),
        (
            json!({ "take_rat": "5/s" }),
            400,
            "bad_field",
            "take_rat",
            "take_rate",
        ),
        (
            json!({ "take_rate": "5/x" }),
            400,
            "bad_field",
            "take_rate",
            "take_rate",
        ),
        (
            json!({ "in_flight_max": -1 }),
            400,
            "bad_field",
            "in_flight_max",
            "in_flight_max",
        ),
        (
            json!({ "in_flight_max": "x\u{202e}\"\n" }),
            400,
            "bad_field",
            "in_flight_max",
            "in_flight_max",
        ),
        (
            json!({ "in_flight_max": {"a": 1} }),
            400,
            "bad_field",
            "in_flight_max",
            "number",
        ),
        (
            json!({ "expire_to": "work" }),
            400,
            "bad_field",
            "expire_to",
            "itself",
        ),
        (
            json!({ "expire_to": "" }),
            400,
            "bad_field",
            "expire_to",
            "empty",
        ),
    ] {
        // Nothing of it is done.
        let mut both = changes.clone();
        both["default_priority"] = json!(5);
        let reply = patch(&server, "work", "", &both);
        assert_eq!(
            (reply.status, &reply.json["code"], &reply.json["field"]),
            (status, &json!(code), &json!(field)),
            "{changes}: {}",
            reply.json
        );
        assert!(
            reply.json["detail"].as_str().unwrap().contains(why),
            "{}",
            reply.json
        );
    }
    let settings = get(&server, "/queues/work/settings").json;
    assert_eq!(setting(&settings, "default_priority")["source"], "default");
    assert_eq!(
        patch(&server, "none", "", &json!({ "ttl": null })).status,
        404
    );
    let long = json!({ "expire_to": "x".repeat(70_000) });
    let reply = patch(&server, "work", "", &long);
    assert_eq!(reply.status, 400, "{}", reply.json);
    // A pause is one, too.
    let pause = post(&server, "/queues/work/pause", &json!({}));
    assert_eq!((pause.status, &pause.json["code"]), (403, &json!("locked")));
    assert_eq!(pause.json["field"], "paused");
    assert_eq!(
        pause.json["detail"],
        "paused is locked by the configuration"
    );
    // A lock that comes later has the file win.
    assert_eq!(
        patch(&server, "work", "", &json!({ "in_flight_max": 2 })).status,
        200
    );
    server.configure(&format!(
        "{USERS}{}",
        RULE.replace("'ttl'", "'in_flight_max'")
    ));
    server.signal(Signal::HUP);
    let locked = || {
        let settings = get(&server, "/queues/work/settings").json;
        setting(&settings, "in_flight_max")
    };
    await_that("it is read again", || locked()["locked"] != false);
    assert_eq!(
        (&locked()["value"], &locked()["source"]),
        (&json!(9), &json!("file"))
    );
    // A value from before the lock can be cleared.
    assert_eq!(
        patch(&server, "work", "", &json!({ "in_flight_max": null })).status,
        200
    );
}

/// A form of the console's page of settings with these fields.
fn form(page: &str, fields: &str) -> String {
    let hidden = |name: &str| {
        let rest = page
            .split_once(&format!("name=\"{name}\" value=\""))
            .expect("a field")
            .1;
        rest.split('"').next().expect("its end").to_owned()
    };
    format!("csrf={}&seen={}&{fields}", hidden("csrf"), hidden("seen"))
}

/// Sends it; answers the page behind it.
fn set_typed(server: &Server, key: &str, form: &str) -> String {
    let head = format!("POST /queues/work/settings/{key}");
    let reply = server.ask(&head, http::FORM, form);
    assert_eq!(reply.status, 303, "{}", reply.head);
    page(server, reply.header("location").unwrap()).1
}

#[test]
fn the_console_shows_for_wrong_input_the_allowed_values() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, USERS);
    put(&server, "work");
    let (_, shown) = page(&server, "/queues/work/settings");
    let number = "a whole number from 0 on, such as 100";
    for (key, typed, takes) in [
        ("in_flight_max", "ten", number),
        ("in_flight_max", "", number),
        ("in_flight_max", "null", number),
        ("in_flight_max", "1.5", number),
        ("in_flight_max", "99999999999999999999", number),
        ("paused", "yes", "true or false"),
        (
            "retry_on",
            "release,timeout",
            "a list of \"release\", \"timeout\", \"lost\"",
        ),
    ] {
        let settings = set_typed(&server, key, &form(&shown, &format!("value={typed}")));
        let why = format!("Not changed: {key} takes {takes}; not \"{typed}\".");
        let why = why.replace('"', "&#34;");
        assert!(settings.contains(&why), "{why}: {settings}");
    }
    for (key, typed, value) in [
        ("in_flight_max", "7", "7"),
        ("paused", "true", "true"),
        ("retry_on", "[\"lost\"]", "[\"lost\"]"),
    ] {
        let (_, shown) = page(&server, "/queues/work/settings");
        let typed: String = typed.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let settings = set_typed(&server, key, &form(&shown, &format!("value={typed}")));
        let set = format!("Changed: {key} is {value} now.").replace('"', "&#34;");
        assert!(settings.contains(&set), "{set}: {settings}");
    }
}

#[test]
fn of_two_operators_the_second_gets_changed() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, USERS);
    put(&server, "work");
    let seen = tag(&get(&server, "/queues/work/settings"));
    let matching = format!("if-match: {seen}\r\n");
    let first = patch(&server, "work", &matching, &json!({ "take_rate": "5/s" }));
    assert_eq!(first.status, 200, "{}", first.json);
    assert_ne!(tag(&first), seen);
    let second = patch(&server, "work", &matching, &json!({ "take_rate": "50/s" }));
    assert_eq!(
        (second.status, &second.json["code"]),
        (412, &json!("changed"))
    );
    assert_eq!(
        setting(&get(&server, "/queues/work/settings").json, "take_rate")["value"],
        "5/s"
    );
    // The console's two pages the same.
    let send = |key: &str, form: &str| set_typed(&server, key, form);
    let (_, both) = page(&server, "/queues/work/settings");
    assert!(both.contains("set by anna, "), "{both}");
    let shown = send("take_rate", &form(&both, "value=7%2Fs"));
    assert!(
        shown.contains("Changed: take_rate is &#34;7/s&#34; now."),
        "{shown}"
    );
    let shown = send("take_rate", &form(&both, "value=8%2Fs"));
    assert!(
        shown.contains("Not changed: another user changed the settings meanwhile. take_rate is &#34;7/s&#34;, set by anna, "),
        "{shown}"
    );
    let shown = send("in_flight_max", &form(&shown, "value=x"));
    assert!(
        shown.contains("Not changed: in_flight_max takes"),
        "{shown}"
    );
    let shown = send("take_rate", &form(&shown, "undo=1"));
    assert!(
        shown.contains("Undone: take_rate is &#34;0&#34; again."),
        "{shown}"
    );
    // Found by what it does.
    let (_, found) = page(
        &server,
        "/queues/work/settings?has=MOST+messages+under+a+lease",
    );
    assert!(
        found.contains(">in_flight_max<") && !found.contains(">take_rate<"),
        "{found}"
    );
    let (_, found) = page(&server, "/settings?has=take_rate");
    assert!(
        found.contains(">take_rate<") && !found.contains(">queues_max<"),
        "{found}"
    );
}

#[test]
fn a_pause_shows_its_user_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(&dir, USERS);
    put(&server, "work");
    let request = |server: &Server, act: &str| {
        let reply = post(server, &format!("/queues/work/{act}"), &json!({}));
        assert_eq!(reply.status, 204, "{}", reply.json);
    };
    request(&server, "pause");
    for _ in 0..2 {
        let settings = get(&server, "/queues/work").json;
        assert_eq!(settings["paused_by"], "anna", "{settings}");
        assert!(settings["paused_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
        let (_, shown) = page(&server, "/queues/work");
        assert!(shown.contains(">paused by anna, "), "{shown}");
        // No tag of the queue's own.
        let tags = setting(&get(&server, "/queues/work/settings").json, "tags");
        assert!(!tags.to_string().contains("anna"), "{tags}");
        let again = Start::of(USERS);
        let (data, old) = (server.data.clone(), server);
        old.kill();
        server = Server::start_as_configured(&data, again);
    }
    request(&server, "resume");
    let settings = get(&server, "/queues/work").json;
    assert_eq!(
        (&settings["paused"], &settings["paused_by"]),
        (&json!(false), &Value::Null)
    );
}

#[test]
fn a_queue_does_not_both_age_and_drop_its_oldest() {
    let config = "[[queue]]\nname = 'old*'\naging = '1 per 10m'\n";
    let server = Start::of(config).listen(&["http=0"]).serve();
    for queue in ["old", "new"] {
        let body = json!({"messages": [{"body": "a"}]});
        let put = post(&server, &format!("/queues/{queue}/messages"), &body);
        assert_eq!(put.status, 201, "{}", put.json);
    }
    let change = |queue: &str, body: Value| {
        let path = format!("PATCH /queues/{queue}/settings");
        let reply = ask(&server, &path, "", &body.to_string());
        let settings = (
            reply.json["field"].clone(),
            reply.json["detail"].to_string(),
        );
        (reply.status, settings)
    };
    let refused = |queue, body: Value, field: &str| {
        let (status, (named, why)) = change(queue, body);
        assert_eq!((status, named), (400, json!(field)), "{why}");
        assert!(why.starts_with("\"aging and when_full = "), "{why}");
    };
    let drops = json!({"when_full": "drop_oldest"});
    refused("old", drops.clone(), "when_full");
    let both = json!({"when_full": "drop_oldest", "aging": "1 per 10m"});
    refused("new", both, "aging");
    assert_eq!(change("new", drops).0, 200);
    refused("new", json!({"aging": "1 per 1h"}), "aging");
    // Other settings change as ever, and one goes when the other does.
    assert_eq!(change("new", json!({"messages_max": 5})).0, 200);
    let swapped = json!({"aging": "1 per 1h", "when_full": "refuse"});
    assert_eq!(change("new", swapped).0, 200);
    let off = json!({"when_full": "drop_oldest", "aging": "0"});
    assert_eq!(change("old", off).0, 200);
}
