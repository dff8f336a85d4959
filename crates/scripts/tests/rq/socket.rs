//! RQ's sockets, as another program meets them.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use quintet_client::{AuditLog, Entry};
use quintet_scripts::socket::{PAYLOAD_MAX, frame, parse};
use serde_json::{Value, json};

use crate::common::{World, many};

fn send(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).expect("connected");
    // A server that has read enough may have closed.
    let _sent = stream.write_all(bytes);
    let _closed = stream.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("a reply");
    reply
}

fn ask(path: &Path, command: &str, argument: Value) -> Value {
    let argument = match argument {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let reply = send(path, &frame(format!("{command} {argument}").as_bytes()));
    serde_json::from_slice(parse(&reply).expect("a frame")).expect("JSON")
}

struct SocketTest {
    world: World,
}

impl SocketTest {
    fn new() -> Self {
        let world = World::new();
        world.queue("test", "echo done it >&3\n");
        Self { world }
    }

    fn manager(&self, command: &str, argument: Value) -> Value {
        ask(
            &self.world.root().join("config/queuemgr.sock"),
            command,
            argument,
        )
    }

    fn queue(&self, command: &str, argument: Value) -> Value {
        ask(
            &self.world.root().join("queue/test/queue.sock"),
            command,
            argument,
        )
    }
}

/// Lines of the audit.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl AuditLog for Heard {
    fn write(&self, entry: &Entry<'_>) {
        let (said, what, result) = (entry.said.expect("RQ's word"), entry.what, entry.result);
        let line = format!("{said} {what} {result}: {}", entry.operation.name());
        self.0.lock().expect("no panic").push(line);
    }
}

#[test]
fn administrative_requests_are_in_the_audit() {
    let heard = Arc::new(Heard::default());
    let audit: Arc<dyn AuditLog> = heard.clone();
    let world = World::with(|options| options.audit = Some(audit));
    world.queue("test", "echo done it >&3\n");
    let socket_test = SocketTest { world };
    let paused = socket_test.manager("pause_queue", json!("test"));
    assert_eq!(paused, json!(["ok", "test"]));
    socket_test.queue("ping", Value::Null);
    let created = socket_test.queue("create_message", json!({"dest": "test"}));
    let id = id(&created);
    let deleted = socket_test.queue("delete_message", json!({"msg_id": id}));
    assert_eq!(deleted, json!(["ok", "msg deleted"]));
    socket_test.manager("delete_queue", json!("none"));
    socket_test.manager("nonsense", json!("test"));
    let config = json!({"name": "new", "script": "/bin/true", "env_vars": {"KEY": "hush"}});
    let made = socket_test.manager("create_queue", config);
    assert_eq!(made[0], "success", "{made}");
    let expected = [
        "rq pause_queue test ok: pause".to_owned(),
        format!("rq delete_message test {id} ok: delete"),
        "rq delete_queue none failed: delete_queue".to_owned(),
        "rq create_queue new ok: new_queue".to_owned(),
    ];
    assert_eq!(*heard.0.lock().expect("no panic"), expected);
}

/// The short id in `["ok", full id]`.
fn id(answer: &Value) -> String {
    assert_eq!(answer[0], "ok", "{answer}");
    let full = answer[1].as_str().expect("an id");
    full.rsplit('/').next().expect("its end").to_owned()
}

#[test]
fn a_ping_byte_by_byte_as_rq_wrote_it() {
    let socket_test = SocketTest::new();
    for socket in ["config/queuemgr.sock", "queue/test/queue.sock"] {
        let path = socket_test.world.root().join(socket);
        assert_eq!(
            send(&path, b"rq1 00000005 ping "),
            b"rq1 00000008 [\"pong\"]"
        );
        let mut stream = UnixStream::connect(&path).expect("connected");
        for byte in b"rq1 00000005 ping " {
            stream.write_all(&[*byte]).expect("sent");
        }
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply");
        assert_eq!(reply, "rq1 00000008 [\"pong\"]");
        let mode = path.metadata().expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_message_with_a_file_from_its_first_word_to_its_end() {
    let socket_test = SocketTest::new();
    let file = socket_test.world.folder.path().join("file.txt");
    std::fs::write(&file, "hello\n").expect("written");
    let prepared = socket_test.queue(
        "prep_message",
        json!({"dest": "test", "param1": "p", "count": 0}),
    );
    let id = id(&prepared);
    assert_eq!(
        socket_test.queue("get_message_state", json!({"msg_id": id})),
        json!(["ok", "prep"])
    );
    let attached = socket_test.queue("attach_message", json!({"msg_id": id, "pathname": file}));
    let text = "b1946ac92492d2347c6235b4d2611184-Attached successfully";
    assert_eq!(attached, json!(["ok", text]));
    let message = socket_test.queue("get_message", json!({"msg_id": id}));
    assert_eq!(message[1]["_attachments"]["file.txt"]["size"], 6);
    let deleted = socket_test.queue(
        "delete_attach_message",
        json!({"msg_id": id, "attachment_name": "file.txt"}),
    );
    assert_eq!(deleted, json!(["ok", "Attachment deleted successfully"]));
    assert_eq!(
        socket_test.queue("commit_message", json!({"msg_id": id})),
        json!(["ok", "msg commited"])
    );
    socket_test.world.end("test", &id);
    assert_eq!(
        socket_test.queue("get_message_status", json!({"msg_id": id})),
        json!(["ok", {"status": "done - it"}])
    );
    let again = socket_test.queue("commit_message", json!({"msg_id": id}));
    assert_eq!(again, json!(["fail", "cannot find message"]));
    let late = socket_test.queue("attach_message", json!({"msg_id": id, "pathname": file}));
    assert_eq!(late, json!(["fail", "cannot find message"]));
    let clone = socket_test.queue("clone_message", json!({"msg_id": id}));
    let clone = self::id(&clone);
    socket_test.world.end("test", &clone);
    assert_eq!(
        socket_test.queue("messages", json!({"state": "done", "limit": 1})),
        json!([clone])
    );
    assert_eq!(socket_test.queue("num_messages", Value::Null)["done"], 2);
    assert_eq!(
        socket_test.queue("delete_message", json!({"msg_id": id})),
        json!(["ok", "msg deleted"])
    );
    let gone = socket_test.queue("get_message", json!({"msg_id": id}));
    assert_eq!(gone, json!(["fail", "msg not found"]));
}

#[test]
fn a_paused_queue_shows_what_waits_and_a_queue_that_is_down_refuses() {
    let socket_test = SocketTest::new();
    assert_eq!(
        socket_test.manager("pause", json!("test")),
        json!(["ok", "test"])
    );
    assert_eq!(
        socket_test.queue("status", Value::Null),
        json!(["PAUSE", "PAUSE"])
    );
    let first = id(&socket_test.queue("create_message", json!({"due": 5})));
    let again = id(&socket_test.queue("single_que", json!({})));
    assert_eq!(first, again);
    let waiting = socket_test.queue("messages", json!({"state": "que"}));
    assert_eq!(waiting[0][0], json!(first));
    socket_test.manager("down", json!("test"));
    assert_eq!(
        socket_test.queue("create_message", json!({})),
        json!(["fail", "status: DOWN"])
    );
    assert_eq!(socket_test.queue("status", Value::Null)[0], "DOWN");
    assert_eq!(socket_test.queue("ping", Value::Null), json!(["pong"]));
    assert_eq!(socket_test.queue("num_messages", Value::Null)["que"], 1);
    socket_test.manager("up", json!("test"));
    socket_test.manager("resume", json!("test"));
    assert_eq!(socket_test.world.end("test", &first), "done - it");
}

#[test]
fn the_manager_makes_and_deletes_queues_with_their_sockets() {
    let socket_test = SocketTest::new();
    let script = socket_test.world.script("other", "echo done other >&3\n");
    let config = json!({"name": "other", "script": script, "num_workers": "1", "exec_prefix": ""});
    let made = socket_test.manager("create_queue", config.clone());
    assert_eq!(made, json!(["success", "queue created - awesome"]));
    let twice = socket_test.manager("create_queue", config);
    assert_eq!(twice[0], "fail");
    assert_eq!(
        socket_test.manager("queues", Value::Null),
        json!(["other", "test"])
    );
    let socket = socket_test.world.root().join("queue/other/queue.sock");
    let message = ask(&socket, "create_message", json!({}));
    socket_test.world.end("other", &id(&message));
    assert_eq!(ask(&socket, "config", Value::Null)[1]["num_workers"], 1);
    assert_eq!(socket_test.manager("delete_queue", json!("other"))[0], "ok");
    assert!(!socket.exists());
    for bad in ["bad que", "a.b", "../x"] {
        let refused = socket_test.manager("create_queue", json!({"name": bad, "script": script}));
        assert_eq!(
            refused,
            json!(["fail", "queue name has invalid characters"]),
            "{bad}"
        );
    }
}

#[test]
fn an_invalid_request_gets_an_error_and_harms_no_other_client() {
    let socket_test = SocketTest::new();
    let path = socket_test.world.root().join("queue/test/queue.sock");
    for (bytes, why) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "not an rq1 packet"),
        (b"rq1 000000", "packet ends too early"),
        (b"rq1 00000099 ping ", "packet ends too early"),
        (b"rq1 99999999 ", "packet too long"),
        (b"rq1 00000002 \xff\xfe", "request is not UTF-8"),
    ] {
        let reply = send(&path, bytes);
        let reply: Value = serde_json::from_slice(parse(&reply).expect("a frame")).expect("JSON");
        assert_eq!(reply, json!(["fail", why]), "{}", bytes.escape_ascii());
    }
    const { assert!(PAYLOAD_MAX < 99_999_999) };
    assert_eq!(socket_test.queue("dance", json!({})), json!(["ERROR"]));
    assert_eq!(socket_test.manager("dance", Value::Null), json!(["error"]));
    for (command, argument, why) in [
        (
            "create_message",
            json!("no json"),
            "the argument is not JSON",
        ),
        (
            "create_message",
            json!("[]"),
            "the argument is not an object",
        ),
        (
            "create_message",
            json!({"due": "soon"}),
            "due is not a time: soon",
        ),
        ("get_message", json!({}), "lacking 'msg_id' field"),
        ("messages", json!({}), "lacking 'state' field"),
        (
            "messages",
            json!({"state": "gone"}),
            "invalid 'state' field (gone)",
        ),
        (
            "attach_message",
            json!({"msg_id": "x"}),
            "lacking 'pathname' field",
        ),
        (
            "attach_message",
            json!({"msg_id": "x", "pathname": "a"}),
            "pathname is not a full path",
        ),
        (
            "attach_message",
            json!({"msg_id": "x", "pathname": "/dev/null"}),
            "pathname is not a file",
        ),
        (
            "get_message",
            json!({"msg_id": "../../etc"}),
            "msg not found",
        ),
    ] {
        let reply = socket_test.queue(command, argument.clone());
        assert_eq!(reply[0], "fail", "{command} {argument}");
        let text = reply[1].as_str().expect("text");
        assert!(text.starts_with(why), "{command} {argument}: {text}");
    }
    // A client that says nothing keeps nobody else waiting.
    let _silent = UnixStream::connect(&path).expect("connected");
    assert_eq!(socket_test.queue("ping", Value::Null), json!(["pong"]));
}

#[test]
fn errors_are_acknowledged() {
    let socket_test = SocketTest::new();
    socket_test.world.queue("bad", "echo err no >&3");
    let bad = |command: &str, argument: Value| {
        let path = socket_test.world.root().join("queue/bad/queue.sock");
        ask(&path, command, argument)
    };
    let (id, _) = socket_test.world.run("bad", json!({}));
    let short = id.rsplit('/').next().expect("a short id");
    assert_eq!(bad("messages", json!({"state": "errack"})), json!([]));
    assert_eq!(bad("ack_errs", Value::Null), json!(["ok", 1]));
    assert_eq!(bad("messages", json!({"state": "errack"})), json!([short]));
    assert_eq!(bad("messages", json!({"state": "err"})), json!([]));
    let numbers = bad("num_messages", Value::Null);
    assert_eq!(
        (&numbers["err"], &numbers["errack"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(
        bad("get_message_state", json!({"msg_id": short})),
        json!(["ok", "errack"])
    );
    socket_test.manager("down", json!("bad"));
    assert_eq!(
        bad("ack_errs", Value::Null),
        json!(["fail", "status: DOWN"])
    );
}

#[test]
fn many_at_once_are_all_answered() {
    let socket_test = SocketTest::new();
    std::thread::scope(|scope| {
        for _ in 0..many(4) {
            scope.spawn(|| assert_eq!(socket_test.queue("ping", Value::Null), json!(["pong"])));
        }
    });
}
