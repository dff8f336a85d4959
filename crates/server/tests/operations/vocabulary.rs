//! Each operation in the protocols that have it: its right, and its name in the audit.

use quintet_types::Operation;
use serde_json::{Value, json};

use crate::common::text;
use crate::rights::{api, memcache, page, sqs, start};

/// Operation, request and body. `a/b`: what is refused is `a` in the audit, what is done `b`. `#` is
/// the id of a message, `*` that of a batch.
const API: &str = r#"create POST /queues/made {}
configure PATCH /queues/sec/settings {"attempts_max": 9}
join POST /queues/sec/children {"name": "x"}
pause POST /queues/sec/pause {}
resume POST /queues/sec/resume {}
pause POST /queues/sec/hold {"hold_ms": 1}
hold_key POST /queues/sec/keys/k/hold {"hold_ms": 1}
release POST /queues/sec/leases/release {}
drop_queues DELETE /queues?pattern=none {}
edit PATCH /messages/# {"priority": 7}
delete DELETE /messages/# {}
cancel POST /messages/#/cancel {}
kick POST /messages/#/kick {}
move POST /messages/#/move {"to": "sec"}
release POST /messages/#/release {}
forget_batch DELETE /batches/* {}
on_queue/flush POST /queues/sec/operations/purge {}
drop DELETE /queues/sec {}
close_connection DELETE /connections/999999 {}
release_connection POST /connections/999999/release {}
steer_worker POST /workers/w1/quiet {}
define_schedule PUT /schedules/x {}
remove_schedule DELETE /schedules/x {}
steer_schedule POST /schedules/x/run {}
config GET /server/config {}
on_server/undrain POST /server/undrain {}"#;

/// The same of RQ's addresses.
const RQ: [(&str, &str); 3] = [
    ("configure", "POST /q/sec/adminoper"),
    ("run_now", "POST /q/sec/1/run_now"),
    ("unknown", "POST /q/sec/1/explode"),
];

/// Operation, command and subject.
const MEMCACHE: [(&str, &str, &str); 6] = [
    ("flush", "flush sec", "sec"),
    ("flush_expired", "flush_expired sec", "sec"),
    ("drop", "delete sec", "sec"),
    ("config", "dump_config", ""),
    ("listener", "status up", ""),
    ("reload", "reload", ""),
];

/// Operations that other tests ask for: with scripts, pages, workers, nodes or a stop.
const ELSEWHERE: [&str; 15] = [
    "mutate",
    "new_queue",
    "delete_queue",
    "destroy",
    "hold",
    "on_message",
    "login ended",
    "drain",
    "shutdown",
    "stop",
    "cluster move",
    "cluster drain",
    "cluster undrain",
    "cluster hand-over",
    "cluster",
];

/// In each protocol that has it. Ann has no right to it, Bob has.
#[test]
fn an_operation_needs_its_right_and_the_audit_has_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    let bob = |line: &str, body: Value| {
        let (status, reply) = api(&server, "bob", line, &body);
        assert!((200..300).contains(&status), "{line}: {reply}");
        reply
    };
    let put = json!({ "messages": vec![json!({ "body": "x" }); 6] });
    let put = bob("POST /queues/sec/messages", put);
    let mut ids = put["ids"].as_array().expect("ids").iter();
    let new = json!({"success": {"queue": "sec", "body": "x"}});
    let batch = bob("POST /batches", new)["id"].clone();
    let batch = batch.as_str().expect("an id");
    let mut lines = Vec::new();
    for row in API.lines() {
        let [op, method, path, body] = [0, 1, 2, 3].map(|at| row.splitn(4, ' ').nth(at));
        let (op, body) = (op.expect("a name"), body.expect("a body"));
        let mut line = format!("{} {}", method.expect("one"), path.expect("one"));
        if line.contains('#') {
            let id = ids.next().expect("one is left").to_string();
            line = line.replace('#', &id);
        }
        let line = line.replace('*', batch);
        let body = serde_json::from_str(body).expect("JSON");
        let (status, reply) = api(&server, "ann", &line, &body);
        assert_eq!(status, 403, "{line}: {reply}");
        let (status, reply) = api(&server, "bob", &line, &body);
        assert_ne!(status, 403, "{line}: {reply}");
        let what = line.replace(' ', " /api/v1");
        let what = what.split('?').next().expect("an address");
        let (refused, done) = op.split_once('/').unwrap_or((op, op));
        lines.push(("ann", refused, what.to_owned()));
        lines.push(("bob", done, what.to_owned()));
    }
    for (who, forbidden) in [("ann", true), ("bob", false)] {
        for (op, line) in RQ {
            let (status, reply) = page(&server, who, line, &json!({}));
            assert_eq!(status == 403, forbidden, "{who} {line}: {status} {reply}");
            lines.push((who, op, line.to_owned()));
        }
        for (op, command, what) in MEMCACHE {
            let mut client = memcache(&server, who);
            client.send(format!("{command}\r\n").as_bytes());
            let reply = text(&client.until(b"\n"));
            let refused = reply.contains("not permitted");
            assert_eq!(refused, forbidden, "{who} {command}: {reply}");
            lines.push((who, op, what.to_owned()));
        }
    }
    let made = sqs(&server, "CreateQueue", &json!({"QueueName": "ann"}));
    assert_eq!(made.0, 200, "{made:?}");
    for (op, action) in [("flush", "PurgeQueue"), ("drop", "DeleteQueue")] {
        for (queue, expected) in [("sec", 403), ("ann", 200)] {
            let (status, reply) = sqs(&server, action, &json!({ "QueueUrl": queue }));
            assert_eq!(status, expected, "{action} {queue}: {reply}");
            lines.push(("ann", op, format!("sqs {action} {queue}")));
        }
    }
    let audit = server.printed(&["audit", "--json"]);
    let audit = audit.lines().map(serde_json::from_str::<Value>);
    let audit: Vec<Value> = audit.map(|line| line.expect("JSON")).collect();
    for (who, op, what) in lines {
        let found = audit.iter().any(|line| {
            let starts = line["what"]
                .as_str()
                .is_some_and(|it| it.starts_with(&what));
            line["who"] == who && line["operation"] == op && starts
        });
        assert!(found, "{who} {op} {what}: {audit:#?}");
    }
    // A new one needs a row here.
    for op in Operation::ALL.iter().filter(|op| op.is_recorded()) {
        let seen = audit.iter().any(|line| line["operation"] == op.name());
        assert!(seen != ELSEWHERE.contains(&op.name()), "{op:?}");
    }
}
