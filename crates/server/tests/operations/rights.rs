//! Settings that lead messages to other queues take a right there, and operations that administer
//! are audited: with one shard and with four.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_auth::Password;
use serde_json::{Value, json};

use crate::common::{Client, PATIENCE, Server, Start, await_that, eventually, text};

const LISTEN: &[&str] = &[
    "memcache=127.0.0.1:0",
    "beanstalk=127.0.0.1:0",
    "http=127.0.0.1:0",
    "faktory=127.0.0.1:0,ent",
    "sqs=127.0.0.1:0",
];

/// Ann has her own queues, `*.log` by an older grant, and nothing on others.
pub(crate) fn start(data: &Path, shards: u32) -> Server {
    let hash = Password::of_cost(b"hush", [1; 16], 8, 1).expect("a hash");
    let hash = hash.as_str();
    let all = "'put', 'take', 'settle', 'peek', 'admin'";
    let config = format!(
        "shards = {shards}\n\
         [[listen]]\nprotocol = 'sqs'\nuser = 'ann'\n\
         [[user]]\nname = 'ann'\npassword = '{hash}'\n\
         [[user]]\nname = 'bob'\npassword = '{hash}'\n\
         [[grant]]\nuser = 'ann'\nqueues = ['ann*', '*.log']\nrights = [{all}]\n\
         [[grant]]\nuser = 'ann'\nqueues = ['share+hers', 'sec+own']\nrights = [{all}]\n\
         [[grant]]\nuser = 'bob'\nqueues = ['*']\nrights = [{all}, 'server']\n"
    );
    let start = Start {
        listen: LISTEN,
        config: Some(&config),
        ..Start::default()
    };
    Server::start_with(data, start)
}

pub(crate) fn memcache(server: &Server, name: &str) -> Client {
    let mut client = server.client_of("memcache");
    client.send(format!("set x 0 0 8\r\n{name} hush\r\n").as_bytes());
    client.expect(b"STORED\r\n");
    client
}

pub(crate) fn send_request(address: &str, head: &str, body: &str) -> (u16, Value) {
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let request = format!(
        "{head}Host: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status");
    (
        status.parse().expect("a number"),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

pub(crate) fn api(server: &Server, name: &str, line: &str, body: &Value) -> (u16, Value) {
    page(server, name, &line.replace(' ', " /api/v1"), body)
}

pub(crate) fn page(server: &Server, name: &str, line: &str, body: &Value) -> (u16, Value) {
    let login = BASE64_STANDARD.encode(format!("{name}:hush"));
    let head = format!(
        "{line} HTTP/1.1\r\nAuthorization: Basic {login}\r\nContent-Type: application/json\r\n"
    );
    send_request(server.address_of("http"), &head, &body.to_string())
}

#[test]
fn following_a_queue_takes_the_right_to_see_its_messages() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    for (who, queue, status) in [
        ("ann", "ann-1", 200),
        ("ann", "bob-1", 403),
        ("bob", "bob-1", 200),
    ] {
        let line = format!("GET /queues/{queue}/tail");
        assert_eq!(
            api(&server, who, &line, &Value::Null).0,
            status,
            "{who} {queue}"
        );
    }
}

pub(crate) fn sqs(server: &Server, action: &str, input: &Value) -> (u16, Value) {
    let head = format!(
        "POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.{action}\r\n\
         Content-Type: application/x-amz-json-1.0\r\n"
    );
    send_request(server.address_of("sqs"), &head, &input.to_string())
}

#[test]
fn a_child_takes_a_right_on_its_parent() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = start(&dir.path().join("data"), shards);
        let mut bob = memcache(&server, "bob");
        bob.send(b"set sec 0 0 1\r\nx\r\nget share+hers\r\n");
        bob.expect(b"STORED\r\nEND\r\n");
        // A right on the child alone makes none.
        for name in ["sec+x.log", "sec+ann", "sec+share+hers", "sec+own"] {
            let mut ann = memcache(&server, "ann");
            ann.send(format!("get {name}\r\n").as_bytes());
            ann.expect(b"CLIENT_ERROR not permitted\r\n");
        }
        let child = json!({"name": "x.log"});
        let (status, _) = api(&server, "ann", "POST /queues/sec/children", &child);
        assert_eq!(status, 403);
        // One that somebody else has made is hers to read, and her own queues have children.
        let mut ann = memcache(&server, "ann");
        ann.send(b"get share+hers\r\nget ann+me\r\nget my.log+me\r\nset my.log 0 0 1\r\nx\r\nget my.log+me\r\n");
        ann.expect(b"END\r\nEND\r\nEND\r\nSTORED\r\nVALUE my.log+me 0 1\r\nx\r\nEND\r\n");
        bob.send(b"set sec 0 0 1\r\ny\r\nset sec+x.log 0 0 1\r\nz\r\n");
        bob.expect(b"STORED\r\nSTORED\r\n");
        // Nor is a child that is there, and not hers, hers to read.
        let mut ann = memcache(&server, "ann");
        ann.send(b"get sec+x.log\r\n");
        ann.expect(b"CLIENT_ERROR not permitted\r\n");
    }
}

#[test]
fn a_batch_needs_the_right_to_join_it() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = start(&dir.path().join("data"), shards);
        let new = json!({"success": {"queue": "sec", "body": "done"}});
        let (status, batch) = api(&server, "bob", "POST /batches", &new);
        assert_eq!(status, 201, "{batch}");
        let id = batch["id"].as_str().expect("an id").to_owned();
        for queue in ["ann1", "ann2", "ann3", "ann4", "ann5"] {
            for count in [1, 2] {
                let member = json!({"body": "x", "batch": id});
                let puts = json!({"messages": vec![member; count]});
                let line = format!("POST /queues/{queue}/messages");
                let (status, response) = api(&server, "ann", &line, &puts);
                assert_eq!(status, 403, "{shards} {queue}: {response}");
            }
        }
        let child = json!({"success": {"queue": "ann1", "body": "x"}, "parent": id});
        assert_eq!(api(&server, "ann", "POST /batches", &child).0, 403);
        let (_, batch) = api(&server, "bob", &format!("GET /batches/{id}"), &json!({}));
        assert_eq!((&batch["total"], &batch["pending"]), (&json!(0), &json!(0)));
        let member = json!({"messages": [{"body": "x", "batch": id}]});
        assert_eq!(
            api(&server, "bob", "POST /queues/b/messages", &member).0,
            201
        );
    }
}

#[test]
fn a_dependency_needs_the_right_to_see_the_message() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    let put = |who: &str, queue: &str, message: Value| {
        let line = format!("POST /queues/{queue}/messages");
        let (status, reply) = api(&server, who, &line, &json!({ "messages": [message] }));
        (status, reply["ids"][0].as_u64())
    };
    let tracked = |name: &str| json!({ "name": name, "tracked": true });
    let (_, theirs) = put("bob", "bob-1", tracked("theirs"));
    let (_, gone) = put("bob", "bob-1", json!({}));
    let line = format!("DELETE /messages/{}", gone.expect("an id"));
    assert_eq!(api(&server, "bob", &line, &Value::Null).0, 204);
    let (_, own) = put("ann", "ann-2", tracked("own"));
    for (after, status) in [
        (json!([theirs]), 404),
        (json!([own, theirs]), 404),
        (json!([gone]), 404),
        (json!(["theirs"]), 404),
        (json!([own]), 201),
        (json!(["own"]), 201),
    ] {
        let message = json!({ "after": after });
        for queue in ["ann-1", "ann-2", "ann-3"] {
            let found = put("ann", queue, message.clone()).0;
            assert_eq!(found, status, "{queue} {message}");
        }
        let many = json!({ "messages": [{}, message] });
        let found = api(&server, "ann", "POST /queues/ann-1/messages", &many).0;
        assert_eq!(found, status, "several: {message}");
    }
}

#[test]
fn targets_of_messages_need_the_right_to_put() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = start(&dir.path().join("data"), shards);
        let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
        let mut bob = memcache(&server, "bob");
        bob.send(b"set sec 0 0 1\r\nx\r\nget sec\r\n");
        bob.expect(b"STORED\r\nVALUE sec 0 1\r\nx\r\nEND\r\n");
        for name in ["ann", "ann-dead"] {
            let made = sqs(&server, "CreateQueue", &json!({"QueueName": name}));
            assert_eq!(made.0, 200, "{made:?}");
        }
        let policy = |to: &str| {
            let policy = json!({"deadLetterTargetArn": arn(to), "maxReceiveCount": 1});
            json!({"RedrivePolicy": policy.to_string()})
        };
        let set = |to: &str| json!({"QueueUrl": "ann", "Attributes": policy(to)});
        let refused = sqs(&server, "SetQueueAttributes", &set("sec"));
        assert_eq!(refused.0, 403, "{refused:?}");
        let make = json!({"QueueName": "ann-other", "Attributes": policy("sec")});
        assert_eq!(sqs(&server, "CreateQueue", &make).0, 403);
        assert_eq!(sqs(&server, "SetQueueAttributes", &set("ann-dead")).0, 200);
        let start = json!({"SourceArn": arn("ann-dead"), "DestinationArn": arn("sec")});
        let refused = sqs(&server, "StartMessageMoveTask", &start);
        assert_eq!(refused.0, 403, "{refused:?}");
        let back = json!({"SourceArn": arn("ann-dead")});
        assert_eq!(sqs(&server, "StartMessageMoveTask", &back).0, 200);
        bob.send(b"get sec\r\n");
        bob.expect(b"END\r\n");
    }
}

/// Rules of `rq_router` send messages on as the server does it.
#[test]
fn a_message_that_rules_of_rq_send_on_needs_the_right_where_it_is_to_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let config = data.join("rq/config");
    std::fs::create_dir_all(&config).expect("made");
    let rules = "[[rule]]\ndesc = 'default'\naction = 'done'\n";
    std::fs::write(config.join("rq_router_rules.toml"), rules).expect("written");
    let server = start(&data, 1);
    let login = BASE64_STANDARD.encode("ann:hush");
    let head = format!(
        "POST /q/ann/new_message HTTP/1.1\r\nAuthorization: Basic {login}\r\n\
         Content-Type: application/json\r\n"
    );
    let put = |dest: Value| {
        let message = json!({"dest": dest}).to_string();
        send_request(server.address_of("http"), &head, &message)
    };
    for dest in ["sec", "http://there:3333/q/sec", "http://there:3333/q/sec/"] {
        assert_eq!(put(json!(dest)).0, 403, "{dest}");
    }
    for dest in [json!(null), json!(""), json!("http://there:3333/q/ann-2")] {
        let (status, reply) = put(dest);
        assert_eq!((status, &reply[0]), (200, &json!("ok")), "{reply}");
    }
}

#[test]
fn sqs_needs_the_right_before_it_looks_up_a_queue() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = start(&dir.path().join("data"), shards);
        let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
        let mut bob = memcache(&server, "bob");
        bob.send(b"set sec 0 0 1\r\nx\r\n");
        bob.expect(b"STORED\r\n");
        let policy = |to: &str| {
            let policy = json!({"deadLetterTargetArn": arn(to), "maxReceiveCount": 1});
            json!({"RedrivePolicy": policy.to_string()})
        };
        let made = sqs(&server, "CreateQueue", &json!({"QueueName": "ann-dead"}));
        assert_eq!(made.0, 200, "{made:?}");
        let make = json!({"QueueName": "ann", "Attributes": policy("ann-dead")});
        assert_eq!(sqs(&server, "CreateQueue", &make).0, 200);
        let requests = |name: &str| {
            let attribute = json!({"DataType": "String", "StringValue": "x"});
            let handle = json!({"QueueUrl": name, "ReceiptHandle": "x", "VisibilityTimeout": 5});
            let entry = |id: &str| json!({"Id": id, "MessageBody": "x"});
            let entries = json!([entry("a"), entry("b")]);
            [
                (
                    "SendMessageBatch",
                    json!({"QueueUrl": name, "Entries": entries}),
                ),
                ("DeleteQueue", json!({"QueueUrl": name})),
                ("PurgeQueue", json!({"QueueUrl": name})),
                ("DeleteMessage", handle.clone()),
                ("ChangeMessageVisibility", handle),
                (
                    "SendMessage",
                    json!({
                        "QueueUrl": name,
                        "MessageBody": "x",
                        "MessageAttributes": {"a": attribute},
                    }),
                ),
                (
                    "SetQueueAttributes",
                    json!({"QueueUrl": "ann", "Attributes": policy(name)}),
                ),
                (
                    "StartMessageMoveTask",
                    json!({"SourceArn": arn("ann-dead"), "DestinationArn": arn(name)}),
                ),
            ]
        };
        for ((action, there), (_, absent)) in requests("sec").into_iter().zip(requests("none")) {
            let refused = sqs(&server, action, &there);
            assert_eq!(refused.0, 403, "{action}: {refused:?}");
            assert_eq!(sqs(&server, action, &absent), refused, "{action}");
        }
        bob.send(b"get sec\r\n");
        bob.expect(b"VALUE sec 0 1\r\nx\r\nEND\r\n");
    }
}

#[test]
fn a_move_task_puts_nothing_where_its_starter_may_not_put() {
    for shards in [1, 4] {
        let dir = tempfile::tempdir().expect("a folder");
        let server = start(&dir.path().join("data"), shards);
        let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
        for name in ["ann", "ann-dead"] {
            let made = sqs(&server, "CreateQueue", &json!({"QueueName": name}));
            assert_eq!(made.0, 200, "{made:?}");
        }
        let bob = |line: &str, body: Value| {
            let (status, response) = api(&server, "bob", line, &body);
            assert!(status < 300, "{line} {status} {response}");
            response
        };
        let x = json!({"messages": [{"body": "x"}]});
        for queue in ["sec", "ann"] {
            bob(&format!("POST /queues/{queue}/messages"), x.clone());
            let path = format!("PATCH /queues/{queue}/settings");
            bob(&path, json!({"attempts_max": 1, "dead_letter": "ann-dead"}));
            let taken = bob(&format!("POST /queues/{queue}/reserve"), json!({}));
            let lease = taken["messages"][0]["lease"].as_str().expect("a lease");
            bob(&format!("POST /leases/{lease}/release"), json!({}));
        }
        let ready = |queue: &str| bob(&format!("GET /queues/{queue}"), json!({}))["ready"].clone();
        await_that("both are dead", || ready("ann-dead") == 2);
        let back = json!({"SourceArn": arn("ann-dead")});
        assert_eq!(sqs(&server, "StartMessageMoveTask", &back).0, 403);
        bob("PATCH /queues/sec/settings", json!({"dead_letter": null}));
        assert_eq!(sqs(&server, "StartMessageMoveTask", &back).0, 200);
        await_that("the task is over", || {
            let (_, response) = sqs(&server, "ListMessageMoveTasks", &back);
            response["Results"][0]["Status"] == "COMPLETED"
        });
        let counts = ["sec", "ann-dead", "ann"].map(|queue| ready(queue).as_u64());
        assert_eq!(counts, [0, 1, 1].map(Some));
        // No client says where a message came from.
        let forged = json!({"messages": [{"body": "x", "headers": {"dead_letter_queue": "sec"}}]});
        let path = "POST /queues/ann-dead/messages";
        assert_eq!(api(&server, "ann", path, &forged).0, 400);
    }
}

#[test]
fn other_settings_change_beside_a_target_that_somebody_else_has_set() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    let x = json!({"messages": [{"body": "x"}]});
    for queue in ["ann", "sec"] {
        let path = format!("POST /queues/{queue}/messages");
        assert_eq!(api(&server, "bob", &path, &x).0, 201);
    }
    let set = |name: &str, change: Value| {
        let (status, _) = api(&server, name, "PATCH /queues/ann/settings", &change);
        status
    };
    for (own, other) in [("dead_letter", "expire_to"), ("expire_to", "dead_letter")] {
        assert_eq!(set("bob", json!({own: "sec"})), 200);
        assert_eq!(set("ann", json!({"attempts_max": 3})), 200, "{own}");
        // It is no right to name the target anew.
        assert_eq!(set("ann", json!({own: "sec2"})), 403);
        assert_eq!(set("ann", json!({other: "sec"})), 403);
        assert_eq!(set("ann", json!({own: null})), 200);
        assert_eq!(set("ann", json!({own: "sec"})), 403);
    }
}

#[test]
fn only_the_server_has_its_attributes_and_tags() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    for (event, header) in [
        ("success", "dir"),
        ("complete", "dir"),
        ("success", "dead_letter_queue"),
    ] {
        let callback = json!({"queue": "ann", "headers": {header: "sec"}});
        let (status, response) = api(&server, "ann", "POST /batches", &json!({event: callback}));
        let field = format!("{event}.headers.{header}");
        assert_eq!(
            (status, &response["field"]),
            (400, &json!(field)),
            "{response}"
        );
    }
    for (from, status) in [("sec", 400), ("ann-1", 201)] {
        let message = json!({"queue": "ann", "attrs": [["dead_letter_queue", from]]});
        let login = BASE64_STANDARD.encode("ann:hush");
        let head =
            format!("POST /api/v1/queues/ann/records HTTP/1.1\r\nAuthorization: Basic {login}\r\n");
        let line = format!("{}\n", json!({ "messages": [message] }));
        let reply = send_request(server.address_of("http"), &head, &line);
        assert_eq!(reply.0, status, "{reply:?}");
    }
    let made = sqs(&server, "CreateQueue", &json!({"QueueName": "ann"}));
    assert_eq!(made.0, 200, "{made:?}");
    let bob = |line: &str, body: Value| api(&server, "bob", line, &body);
    let path = "PATCH /queues/ann/settings";
    assert_eq!(bob(path, json!({"take_rate": "9/s"})).0, 200);
    for (action, input) in [
        (
            "TagQueue",
            json!({"Tags": {"quintet:set:take_rate": "1700000000000 eve"}}),
        ),
        ("UntagQueue", json!({"TagKeys": ["quintet:set:take_rate"]})),
    ] {
        let mut input = input;
        input["QueueUrl"] = json!("ann");
        assert_eq!(sqs(&server, action, &input).0, 400, "{action}");
    }
    let (_, response) = bob("GET /queues/ann/settings", Value::Null);
    let settings = response["settings"].as_array().expect("a list");
    let rate = settings.iter().find(|one| one["key"] == "take_rate");
    assert_eq!(rate.expect("a setting")["set_by"], "bob");
}

#[test]
fn administrative_commands_are_in_the_audit() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = Start {
        listen: LISTEN,
        config: Some("[[queue]]\nname = 'lk'\nlocked = ['paused']\n"),
        ..Start::default()
    };
    // Where nobody logs in, too.
    let server = Server::start_with(&dir.path().join("data"), open);
    let arn = "arn:aws:sqs:us-east-1:000000000000:dead";
    let policy = json!({"deadLetterTargetArn": arn, "maxReceiveCount": 1}).to_string();
    let q = json!({"QueueUrl": "q"});
    let with = |name: &str, value: Value| {
        let mut input = q.clone();
        input[name] = value;
        input
    };
    for (action, input) in [
        ("CreateQueue", json!({"QueueName": "dead"})),
        ("CreateQueue", json!({"QueueName": "q"})),
        ("CreateQueue", json!({"QueueName": "moved"})),
        (
            "SetQueueAttributes",
            with("Attributes", json!({"RedrivePolicy": policy})),
        ),
        ("TagQueue", with("Tags", json!({"a": "b"}))),
        ("UntagQueue", with("TagKeys", json!(["a"]))),
        (
            "AddPermission",
            json!({"QueueUrl": "q", "Label": "l", "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}),
        ),
        ("RemovePermission", with("Label", json!("l"))),
        (
            "SendMessage",
            json!({"QueueUrl": "dead", "MessageBody": "moves"}),
        ),
        (
            "StartMessageMoveTask",
            json!({"SourceArn": arn, "DestinationArn": arn.replace("dead", "moved")}),
        ),
        ("SendMessage", with("MessageBody", json!("x"))),
        ("SendMessage", with("MessageBody", json!("x"))),
        ("PurgeQueue", q.clone()),
        ("SendMessage", with("MessageBody", json!("x"))),
        ("DeleteQueue", q.clone()),
        (
            "SendMessage",
            json!({"QueueUrl": "dead", "MessageBody": "x"}),
        ),
    ] {
        let (status, response) = sqs(&server, action, &input);
        assert_eq!(status, 200, "{action}: {response}");
    }
    let mut faktory = server.client_of("faktory");
    faktory.until(b"\r\n");
    faktory.send(b"HELLO {\"v\":2}\r\nMUTATE {\"cmd\":\"clear\",\"target\":\"dead\"}\r\nQUEUE PAUSE work\r\nQUEUE RESUME work\r\n");
    faktory.expect(b"+OK\r\n+OK\r\n");
    faktory.until(b"\r\n");
    faktory.until(b"\r\n");
    let mut memcache = server.client_of("memcache");
    memcache.send(b"get b+new\r\nget b+new\r\nset b+new 0 0 1\r\nx\r\nset work 0 0 1\r\nx\r\n");
    memcache.expect(b"END\r\nEND\r\nSTORED\r\nSTORED\r\n");
    faktory.send(b"QUEUE PAUSE work\r\nQUEUE RESUME work\r\n");
    faktory.expect(b"+OK\r\n+OK\r\n");
    // A pause that is refused is told.
    memcache.send(b"set lk 0 0 1\r\nx\r\n");
    memcache.expect(b"STORED\r\n");
    faktory.send(b"QUEUE PAUSE lk\r\n");
    let output = text(&faktory.until(b"\r\n"));
    assert!(output.starts_with("-ERR"), "{output}");
    memcache.send(b"dump_config\r\n");
    memcache.until(b"END\r\n");
    let plain = |line: &str, body: Value| {
        let head = format!(
            "{} HTTP/1.1\r\nContent-Type: application/json\r\n",
            line.replace(' ', " /api/v1")
        );
        send_request(server.address_of("http"), &head, &body.to_string())
    };
    for (removes, reply) in [
        ("delete m", "DELETED\r\n"),
        ("flush m", "END\r\n"),
        ("md m", "HD\r\n"),
    ] {
        memcache.send(format!("set m 0 0 1\r\nx\r\n{removes}\r\n").as_bytes());
        memcache.expect(format!("STORED\r\n{reply}").as_bytes());
    }
    memcache.send(b"set r 0 0 1\r\nx\r\nset r 0 0 1\r\nx\r\n");
    memcache.expect(b"STORED\r\nSTORED\r\n");
    faktory.send(b"QUEUE REMOVE r\r\n");
    faktory.expect(b"+OK\r\n");
    memcache.send(b"set a 0 0 1\r\nx\r\n");
    memcache.expect(b"STORED\r\n");
    assert_eq!(plain("DELETE /queues/a", json!({})).0, 204);
    let new = json!({"success": {"queue": "work", "body": "x"}});
    let mut forgotten = Vec::new();
    for _ in 0..2 {
        let (_, batch) = plain("POST /batches", new.clone());
        forgotten.push(batch["id"].as_str().expect("an id").to_owned());
    }
    assert_eq!(
        plain(&format!("DELETE /batches/{}", forgotten[0]), json!({})).0,
        204
    );
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.send(format!("forget-batch {}\r\n", forgotten[1]).as_bytes());
    beanstalk.until(b"\r\n");
    assert!(plain("POST /queues/work/operations/purge", json!({})).0 < 300);
    assert!(
        plain(
            "POST /queues/dead/operations/move",
            json!({"to": "elsewhere"})
        )
        .0 < 300
    );
    for method in ["delete", "commit"] {
        let head = "POST /q/work/1 HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n";
        let form = format!("_method={method}&x_format=json");
        send_request(server.address_of("http"), head, &form);
    }
    let named = json!({"messages": [{"body": "x", "name": "n"}]});
    assert!(plain("POST /queues/names/messages", named).0 < 300);
    assert!(plain("POST /queues/names/reserve", json!({})).0 < 300);
    assert!(plain("POST /queues/names/names/n/extend", json!({})).0 < 300);
    assert!(plain("POST /queues/names/names/n/finish", json!({})).0 < 300);

    // The first of all that there was.
    for z in ["", "set z 0 0 1\r\nx\r\n"] {
        memcache.send(format!("{z}flush_all\r\nversion\r\n").as_bytes());
        memcache.until(b"VERSION ");
        memcache.until(b"\r\n");
    }
    memcache.send(b"set z 0 0 1\r\nx\r\n");
    memcache.expect(b"STORED\r\n");
    for jid in ["later-one", "later-two"] {
        let job = json!({"jid": jid, "jobtype": "t", "args": [], "at": "2099-01-01T00:00:00Z"});
        faktory.send(format!("PUSH {job}\r\n").as_bytes());
        faktory.expect(b"+OK\r\n");
    }
    faktory.send(b"MUTATE {\"cmd\":\"requeue\",\"target\":\"scheduled\"}\r\n");
    faktory.expect(b"+OK\r\n");
    faktory.send(b"FLUSH\r\n");
    faktory.expect(b"+OK\r\n");

    // The task ends in its own time.
    let audit = eventually("the move task ends", || {
        let response = text(&server.run(&["audit"]).stdout);
        response
            .contains("message move task dead COMPLETED")
            .then_some(response)
    });
    let lines: Vec<&str> = audit.lines().collect();
    let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    for (words, times) in [
        ("sqs SetQueueAttributes q", 1),
        ("sqs TagQueue q", 1),
        ("sqs UntagQueue q", 1),
        ("sqs AddPermission q", 1),
        ("sqs RemovePermission q", 1),
        ("sqs StartMessageMoveTask arn:aws", 1),
        ("sqs PurgeQueue q 200, 2 messages", 1),
        ("sqs DeleteQueue q 200, 1 message", 1),
        ("drop m ok, 1 message", 2),
        ("flush m ok, 1 message", 1),
        ("drop r ok, 2 messages", 1),
        ("DELETE /api/v1/queues/a 204, 1 message", 1),
        ("SendMessage", 0),
        ("mutate discard dead ok", 1),
        ("mutate discard dead done, 0 messages", 1),
        ("mutate requeue scheduled done, 2 messages", 1),
        ("sqs message move task dead COMPLETED 200, 1 message", 1),
        ("pause work ok", 1),
        ("resume work ok", 1),
        ("join b b+new ok", 1),
        ("b+new ok,", 0),
        ("flush - ok, 1 message", 1),
        ("drop_queues * ok, 3 messages", 1),
        ("config", 1),
        (&format!("DELETE /api/v1/batches/{}", forgotten[0]), 1),
        (&format!("forget_batch {}", forgotten[1]), 1),
        ("POST /api/v1/queues/work/operations/purge", 1),
        ("POST /api/v1/queues/dead/operations/move to elsewhere", 1),
        ("POST /q/work/1 delete", 1),
        ("POST /q/work/1", 1),
        ("names/n", 0),
    ] {
        assert_eq!(count(words), times, "{words}:\n{audit}");
    }
}

#[test]
fn on_the_control_socket_a_login_counts_more_than_the_account() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    let mut bob = memcache(&server, "bob");
    bob.send(b"set sec 0 0 1\r\nx\r\n");
    bob.expect(b"STORED\r\n");
    let status = |what: &str, login: &str| {
        let headers = match login {
            "" => String::new(),
            login => format!("authorization: Basic {}\r\n", BASE64_STANDARD.encode(login)),
        };
        let socket = Client::unix(&server.data.join("quintet.sock"));
        socket
            .page(&format!("{what} /api/v1/queues/sec"), &headers)
            .status
    };
    assert_eq!(status("GET", "ann:hush"), 403);
    assert_eq!(status("DELETE", "ann:hush"), 403);
    assert_eq!(status("GET", "ann:wrong"), 401);
    assert_eq!(status("GET", "bob:hush"), 200);
    // The account that the server runs as may do everything.
    assert_eq!(status("GET", ""), 200);
    assert_eq!(status("DELETE", ""), 204);
}

#[test]
fn a_trace_needs_the_right_to_see_the_queue() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    let mut bob = memcache(&server, "bob");
    bob.send(b"set sec 0 0 1\r\nx\r\nset ann 0 0 1\r\ny\r\n");
    bob.expect(b"STORED\r\nSTORED\r\n");
    for id in [1, 2] {
        let line = format!("DELETE /messages/{id}");
        assert_eq!(api(&server, "bob", &line, &json!({})).0, 204);
    }
    let trace = |name: &str, id: u64| {
        api(
            &server,
            name,
            &format!("GET /messages/{id}/trace"),
            &json!({}),
        )
    };
    let (status, response) = trace("bob", 1);
    assert_eq!(
        (status, &response["end"], &response["by"]),
        (200, &json!("deleted"), &json!("user bob"))
    );
    assert_eq!(trace("ann", 1).0, 403);
    // Who did it is for those who operate the server.
    let (status, response) = trace("ann", 2);
    assert_eq!(
        (status, &response["end"], &response["by"]),
        (200, &json!("deleted"), &Value::Null)
    );
    // With its queue it is nobody's but theirs.
    assert_eq!(api(&server, "bob", "DELETE /queues/ann", &json!({})).0, 204);
    assert_eq!((trace("ann", 2).0, trace("bob", 2).0), (403, 200));
}

#[test]
fn an_attempt_is_shown_to_users_that_may_see_its_queue() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&dir.path().join("data"), 1);
    let bob = |line: &str, body: Value| {
        let (status, reply) = api(&server, "bob", line, &body);
        assert!((200..300).contains(&status), "{line}: {reply}");
        reply
    };
    let put = bob("POST /queues/sec/messages", json!({ "messages": [{}] }));
    let id = put["ids"][0].as_u64().expect("an id");
    let reserved = bob("POST /queues/sec/reserve", json!({ "lease_ms": 60_000 }));
    let lease = reserved["messages"][0]["lease"].as_str().expect("a lease");
    bob(
        &format!("POST /leases/{lease}/fail"),
        json!({ "error": "secret" }),
    );
    bob(&format!("POST /messages/{id}/move"), json!({ "to": "ann" }));
    let attempts = |name: &str| {
        let line = format!("GET /messages/{id}/trace");
        let (status, traced) = api(&server, name, &line, &json!({}));
        assert_eq!(status, 200, "{traced}");
        traced["past_attempts"].as_array().map(Vec::len)
    };
    assert_eq!((attempts("bob"), attempts("ann")), (Some(1), Some(0)));
}
