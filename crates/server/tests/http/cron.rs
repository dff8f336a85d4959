//! `/api/v1/cron`: tables are seen and steered.

use crate::api::ask;
use crate::common::{Server, Start};
use serde_json::{Value, json};

const CRON: &str = "[[cron]]\nname = 'nightly'\nschedule = '30 2 29 2 *'\nqueue = 'reports'\n\
                    body = 'all'\n\
                    [[cron]]\nname = 'a/b'\nschedule = '0 0 29 2 *'\nqueue = 'w'\n";
const LISTEN: &str = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";

fn start(config: &str) -> Server {
    Start::of(config).serve_as_configured()
}

#[test]
fn tables_are_seen_and_steered_over_the_api() {
    let server = start(&format!("{CRON}{LISTEN}"));
    let steer = |path: &str| {
        let reply = ask(&server, &format!("POST /cron/{path}"), "", "");
        (reply.status, reply.json)
    };
    let seen = || {
        let reply = ask(&server, "GET /cron", "", "");
        assert_eq!(reply.status, 200);
        reply.json
    };
    let all = seen();
    assert_eq!(all.as_array().map(Vec::len), Some(2));
    assert_eq!(all[0]["name"], "nightly");
    assert_eq!(all[0]["zone"], "UTC");
    assert_eq!(all[0]["outcome"], "none");
    assert_eq!(
        steer("nightly/pause"),
        (200, json!({ "changed": true, "message": null }))
    );
    assert_eq!(
        steer("nightly/pause"),
        (200, json!({ "changed": false, "message": null }))
    );
    assert_eq!(seen()[0]["paused"], true);
    assert_eq!(seen()[1]["paused"], false);
    let (status, put) = steer("nightly/run");
    assert_eq!(status, 200, "{put}");
    let message = put["message"].as_u64().expect("what was put");
    let found = ask(&server, &format!("GET /messages/{message}"), "", "").json;
    assert_eq!(
        (&found["queue"], &found["body"]),
        (&json!("reports"), &json!("all"))
    );
    let scheduled = found["headers"]["scheduled_at"].as_str();
    let scheduled = scheduled.and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
    let late = chrono::Utc::now() - scheduled.expect("a time").to_utc();
    assert!((0..60).contains(&late.num_seconds()), "{found}");
    assert_eq!(seen()[0]["message"], message);
    assert_eq!(steer("nightly/resume").1["changed"], true);
    assert_eq!(seen()[0]["paused"], false);
    // A name with a slash is escaped.
    assert_eq!(steer("a%2Fb/pause").0, 200);
    assert_eq!(seen()[1]["paused"], true);

    let (status, problem) = steer("nightlz/run");
    assert_eq!(status, 404);
    assert_eq!(problem["code"], "cron_not_found");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("did you mean nightly?"), "{detail}");
    assert_eq!(steer("nightly/explode").0, 404);
    assert_eq!(ask(&server, "GET /cron/nightly/run", "", "").status, 405);
    server.run(&["drain"]);
    // A drain is done in a moment.
    let refused = loop {
        let (status, problem) = steer("nightly/run");
        if status != 200 {
            break (status, problem["code"].clone());
        }
    };
    assert_eq!(refused, (503, json!("draining")));
    let document = ask(&server, "GET /openapi.json", "", "").json;
    let paths = &document["paths"];
    for path in ["", "/{name}/pause", "/{name}/resume", "/{name}/run"] {
        assert_ne!(paths[format!("/api/v1/cron{path}")], Value::Null, "{path}");
    }
}

#[test]
fn who_may_not_operate_neither_sees_nor_steers() {
    let users = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['*']\n\
                 rights = ['put', 'peek', 'take', 'settle', 'admin']\n";
    let server = start(&format!("{CRON}{users}{LISTEN}user = 'ann'\n"));
    for head in [
        "GET /cron",
        "POST /cron/nightly/pause",
        "POST /cron/nightly/resume",
        "POST /cron/nightly/run",
        // Not even whether it is there.
        "POST /cron/nowhere/run",
    ] {
        let reply = ask(&server, head, "", "");
        assert_eq!(reply.status, 403, "{head}: {}", reply.json);
    }
    assert_eq!(server.number("ready"), 0);
    assert_eq!(server.number("cron_nightly_paused"), 0);
}
