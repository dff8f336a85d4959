//! The console's form for schedules, without a script.

use serde_json::{Value, json};

use super::api::{ask, get};
use crate::common::{Server, Start, http, page};

const NIGHTLY: &str = "[[cron]]\nname = 'nightly'\nschedule = '30 2 * * *'\nqueue = 'reports'\n";

fn served(config: &str) -> Server {
    Start::of(config).listen(&["http=0"]).serve()
}

/// Sends the form of this page with these fields; answers the status and the page, of a redirect
/// where it leads.
fn send(server: &Server, form: &str, fields: &[(&str, &str)]) -> (u16, String) {
    let (status, shown) = page(server, form);
    assert_eq!(status, 200, "{shown}");
    let (_, main) = shown.split_once("class=\"box pad form\"").expect("a form");
    let hidden = |name: &str| {
        let (_, rest) = main
            .split_once(&format!("name=\"{name}\" value=\""))
            .expect(name);
        rest.split('"').next().expect("its end").to_owned()
    };
    let mut pairs = Vec::new();
    for name in ["csrf", "old", "version"] {
        pairs.push(format!("{name}={}", escaped(&hidden(name))));
    }
    for (name, value) in fields {
        pairs.push(format!("{name}={}", escaped(value)));
    }
    let reply = server.ask("POST /schedules/form", http::FORM, pairs.join("&"));
    match reply.header("location") {
        Some(to) => (reply.status, page(server, to).1),
        None => (reply.status, reply.body),
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn definition(server: &Server, name: &str) -> Value {
    get(server, &format!("/schedules/{name}")).json["definition"].clone()
}

#[test]
fn schedules_of_all_kinds_are_made_and_changed() {
    let server = served("");
    let all = [
        ("name", "leap"),
        ("cron", "0 0 29 2 *"),
        ("zone", "Europe/Berlin"),
        ("queue", "w"),
        ("body", "one\r\ntwo"),
        ("priority", "7"),
        ("start_ms", "2027-01-01T09:00:00+01:00"),
        ("end_ms", "2090-01-01T00:00:00Z"),
        ("count", "3"),
        ("missed", "once"),
        ("overlap", "skip"),
    ];
    let (status, response) = send(&server, "/schedules/form", &all);
    assert_eq!(status, 303, "{response}");
    assert!(
        response.contains("The schedule leap is created."),
        "{response}"
    );
    let leap = json!({
        "cron": "0 0 29 2 *", "zone": "Europe/Berlin", "queue": "w", "body": "one\ntwo",
        "priority": 7, "start_ms": 1_798_790_400_000_u64, "end_ms": 3_786_912_000_000_u64,
        "count": 3, "missed": "once", "overlap": "skip",
    });
    assert_eq!(definition(&server, "leap"), leap);
    let interval = [
        ("name", "often"),
        ("every_ms", "5m"),
        ("phase_ms", "90s"),
        ("queue", "w"),
    ];
    assert_eq!(send(&server, "/schedules/form", &interval).0, 303);
    let often = definition(&server, "often");
    assert_eq!(
        (&often["every_ms"], &often["phase_ms"]),
        (&json!(300_000), &json!(90_000))
    );
    let moments = "2090-01-01T09:00:00Z\r\n\r\n2090-01-02T09:00:00Z\r\n";
    let list = [("name", "twice"), ("at_ms", moments), ("queue", "w")];
    assert_eq!(send(&server, "/schedules/form", &list).0, 303);
    let at = &definition(&server, "twice")["at_ms"];
    assert_eq!(*at, json!([3_786_944_400_000_u64, 3_787_030_800_000_u64]));

    // Fields that the form does not have stay.
    let mut more = leap;
    more["headers"] = json!({"a": "b"});
    more["ttl_ms"] = json!(60_000);
    let put = ask(&server, "PUT /schedules/leap", "", &more.to_string());
    assert_eq!(put.status, 200, "{}", put.json);
    let (_, form) = page(&server, "/schedules/form?name=leap");
    for text in [
        "value=\"0 0 29 2 *\"",
        "value=\"Europe/Berlin\"",
        "one\ntwo</textarea>",
        "value=\"2027-01-01T08:00:00Z\"",
        "<option value=\"once\" selected>",
        "<option value=\"skip\" selected>",
    ] {
        assert!(form.contains(text), "{text}: {form}");
    }
    let changed = [
        ("every_ms", "1h"),
        ("queue", "v"),
        ("missed", "all"),
        ("overlap", "allow"),
    ];
    let (status, response) = send(&server, "/schedules/form?name=leap", &changed);
    assert_eq!(status, 303, "{response}");
    assert!(
        response.contains("The schedule leap is changed."),
        "{response}"
    );
    assert_eq!(
        definition(&server, "leap"),
        json!({
            "every_ms": 3_600_000, "queue": "v", "missed": "all", "overlap": "allow",
            "headers": {"a": "b"}, "ttl_ms": 60_000,
        })
    );
}

#[test]
fn the_error_of_a_field_is_beside_it_and_typed_text_stays() {
    let server = served(NIGHTLY);
    let good = [("name", "a"), ("every_ms", "1h"), ("queue", "w")];
    assert_eq!(send(&server, "/schedules/form", &good).0, 303);
    type Fields = [(&'static str, &'static str)];
    let rows: [(&Fields, &str, &str); 12] = [
        (&[("every_ms", "soon")], "every_ms", "Not a duration"),
        (
            &[("every_ms", "5m"), ("phase_ms", "5m")],
            "phase_ms",
            "less than every_ms",
        ),
        (&[("cron", "61 * * * *")], "cron", ""),
        (&[("cron", "0 0 30 2 *")], "cron", "never comes"),
        (
            &[("cron", "0 0 * * *"), ("zone", "Atlantis")],
            "zone",
            "is not a time zone",
        ),
        (&[("at_ms", "tomorrow")], "at_ms", "a moment such as"),
        (
            &[("every_ms", "5m"), ("count", "many")],
            "count",
            "takes a number from 1 on",
        ),
        (
            &[("every_ms", "5m"), ("count", "-1")],
            "count",
            "takes a number from 1 on",
        ),
        (
            &[("every_ms", "5m"), ("priority", "urgent")],
            "priority",
            "takes a number from 0 to 4,294,967,295",
        ),
        (
            &[("every_ms", "5m"), ("priority", "4294967296")],
            "priority",
            "takes a number from 0 to 4,294,967,295",
        ),
        (&[("every_ms", "0")], "every_ms", "takes 1s to 3660d ("),
        (
            &[("every_ms", "5m"), ("cron", "0 0 * * *")],
            "cron",
            "give one of cron",
        ),
    ];
    for (fields, field, why) in rows {
        let mut all = vec![("name", "b"), ("queue", "w")];
        all.extend(fields);
        let (status, shown) = send(&server, "/schedules/form", &all);
        assert_eq!(status, 400, "{fields:?}: {shown}");
        let place = format!("<p class=\"err\" id=\"{field}-e\">");
        let (_, rest) = shown
            .split_once(&place)
            .unwrap_or_else(|| panic!("{place}: {shown}"));
        let output = rest.split("</p>").next().expect("its end");
        assert!(
            output.contains(why) && !output.is_empty(),
            "{fields:?}: {output}"
        );
        assert!(shown.contains("name=\"queue\" value=\"w\""), "{shown}");
    }
    let (status, shown) = send(&server, "/schedules/form", &good);
    assert_eq!(status, 400);
    assert!(
        shown.contains("there is a schedule of this name"),
        "{shown}"
    );
    // One of the configuration is changed there.
    let file = [("name", "nightly"), ("every_ms", "1h"), ("queue", "w")];
    let (status, shown) = send(&server, "/schedules/form", &file);
    assert_eq!(status, 400);
    assert!(
        shown.contains("there is a schedule of this name"),
        "{shown}"
    );
    assert_eq!(page(&server, "/schedules/form?name=nightly").0, 403);
    assert_eq!(page(&server, "/schedules/form?name=none").0, 404);
    assert_eq!(definition(&server, "a")["every_ms"], 3_600_000);
    // Somebody else has changed it meanwhile.
    let (_, form) = page(&server, "/schedules/form?name=a");
    let (_, rest) = form.split_once("name=\"csrf\" value=\"").expect("a form");
    let csrf = rest.split('"').next().expect("its end");
    let body = format!("csrf={csrf}&old=a&version=777&every_ms=2h&queue=w");
    let reply = server.ask("POST /schedules/form", http::FORM, &body);
    assert_eq!(reply.status, 412);
    assert!(reply.body.contains("the schedule has changed"));
    assert_eq!(definition(&server, "a")["every_ms"], 3_600_000);
    let (_, list) = page(&server, "/schedules");
    assert!(list.contains("/schedules/form?name=a\""), "{list}");
    assert!(!list.contains("form?name=nightly"), "{list}");
}

#[test]
fn the_form_of_schedules_needs_the_right_server() {
    let users = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['*']\n\
                 rights = ['put', 'peek', 'take', 'settle', 'admin']\n[[listen]]\n\
                 protocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(users).serve_as_configured();
    assert_eq!(page(&server, "/schedules/form").0, 403);
    let reply = server.ask("POST /schedules/form", http::FORM, "csrf=x&name=a");
    assert_eq!(reply.status, 403);
}
