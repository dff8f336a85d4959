//! `quintet import --from quintet://`: another Quintet's messages, over its JSON API.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::common::{Connection, PATIENCE, Server, Start, await_that, http, noise, quintet, text};
use crate::moving::{all, done, dying, import};

const LISTEN: &[&str] = &["memcache=127.0.0.1:0", "http=127.0.0.1:0"];

fn served(dir: &tempfile::TempDir, config: Option<&str>) -> Server {
    let start = Start {
        listen: LISTEN,
        config,
        ..Start::default()
    };
    Server::start_with(&dir.path().join("old"), start)
}

fn from(server: &Server) -> String {
    format!("quintet://{}", server.address_of("http"))
}

/// A request to the API, and what it answers.
fn ask(server: &Server, head: &str, body: &Value) -> Value {
    let (method, path) = head.split_once(' ').unwrap();
    let reply = server.ask(
        &format!("{method} /api/v1{path}"),
        http::JSON,
        body.to_string(),
    );
    assert!((200..210).contains(&reply.status), "{path}: {reply:?}");
    reply.json()
}

fn put(server: &Server, queue: &str, messages: &Value) {
    let path = format!("POST /queues/{queue}/messages");
    ask(server, &path, &json!({ "messages": messages }));
}

fn many(server: &Server, count: usize) {
    let all: Vec<Value> = (0..count)
        .map(|number| json!({ "body": format!("message {number}") }))
        .collect();
    put(server, "work", &json!(all));
}

/// The report of each message, without the parts that another server counts anew; by queue and
/// body.
fn known(server: &Server) -> BTreeMap<String, Value> {
    let messages = all(server).into_iter().map(|mut message| {
        let own = message.as_object_mut().unwrap();
        for new in ["id", "place", "bury_order"] {
            own.remove(new);
        }
        let body = own.get("body").or(own.get("body_base64")).cloned();
        (format!("{} {}", message["queue"], body.unwrap()), message)
    });
    messages.collect()
}

fn bodies(server: &Server) -> BTreeSet<String> {
    let messages = all(server).into_iter();
    messages
        .map(|message| message["body"].to_string())
        .collect()
}

#[test]
fn all_of_a_quintet_moves_with_states_priorities_headers_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let old = served(&dir, None);
    let server = Server::start(&dir.path().join("data"));
    let full = json!({"body": "full", "key": "k\u{e9}", "headers": {"to": "7", "a": ""}, "priority": 5,
        "ttl_ms": 99_999_999, "ttr_ms": 7000});
    // Fields that no request of a client has.
    let created = 1_700_000_000_000_u64;
    let lines = [
        json!({"queue": "fields", "created_ms": created, "body": "of all kinds", "flags": 9,
            "name": "n", "key": {"base64": "/w=="}, "attrs": [["c", {"base64": "gA=="}]],
            "reserves": 3, "timeouts": 2, "releases": 1, "kicks": 4, "buries": 5,
            "changed_ms": 10}),
        json!({"queue": "fields", "created_ms": created, "body": "bad ones", "state": "buried",
            "status": {"base64": "/w=="}, "changed_ms": 11, "buries": 1}),
        json!({"queue": "paused", "created_ms": created, "body": "alone", "not_selectable": true}),
    ];
    let file = dir.path().join("fields.jsonl");
    std::fs::write(&file, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    done(&old.run(&["import", file.to_str().unwrap()]));
    put(
        &old,
        "mail",
        &json!([full, {"body": ""}, {"body_base64": "/wA="}]),
    );
    put(
        &old,
        "mail",
        &json!([{"body": "later", "delay_ms": 3_600_000, "headers": {"x": "y"}}]),
    );
    // A name that an address has to spell out.
    put(
        &old,
        "a%2Fb%20%5Cxff",
        &json!([{"body": "odd"}, {"body": "x".repeat(100_000)}]),
    );
    put(&old, "bad", &json!([{"body": "bad"}]));
    let held = ask(&old, "POST /queues/bad/reserve", &json!({}));
    let lease = held["messages"][0]["lease"].as_str().unwrap();
    ask(
        &old,
        &format!("POST /leases/{lease}/bury"),
        &json!({"reason": "why", "priority": 9}),
    );
    put(&old, "paused", &json!([{"body": "waits"}, {"body": "too"}]));
    ask(&old, "POST /queues/paused/pause", &json!({}));
    put(&old, "held", &json!([{"body": "in work"}]));
    ask(
        &old,
        "POST /queues/held/reserve",
        &json!({"lease_ms": 3_600_000}),
    );
    let large = noise(3_000_000);
    let mut client = old.client();
    client.send(format!("set large 0 0 {}\r\n", large.len()).as_bytes());
    client.send(&large);
    client.ask(b"\r\n", b"STORED\r\n");

    let counts = "a/b \\xff: 2 ready\nbad: 1 buried\nfields: 1 buried, 1 ready\n\
                  held: 1 reserved\nlarge: 1 ready\nmail: 1 delayed, 3 ready\npaused: 2 ready\n";
    assert_eq!(done(&import(&server, &from(&old), &["--dry-run"])), counts);
    assert!(all(&server).is_empty(), "a dry run moves nothing");
    let mut wanted = known(&old);
    wanted.retain(|name, _| !name.contains("in work") && !name.contains("alone"));
    assert_eq!(wanted.len(), 12);
    let one = format!("{}/bad", from(&old));
    done(&import(&server, &one, &["--into", "other"]));
    assert_eq!(all(&server)[0]["queue"], "other");
    assert_eq!(all(&server)[0]["status"], "why");
    wanted.retain(|name, _| !name.starts_with("\"bad\""));
    let output = import(&server, &from(&old), &[]);
    done(&output);
    let printed = text(&output.stderr);
    assert!(
        printed
            .lines()
            .any(|line| line.starts_with("11 messages stored")),
        "{printed}"
    );
    let mut found = known(&server);
    found.retain(|name, _| !name.starts_with("\"other\""));
    assert_eq!(found, wanted);
    // A reserved message stays there, and one that is not for consumers.
    let stay = ["\"alone\"", "\"in work\""].map(str::to_owned);
    assert_eq!(bodies(&old), BTreeSet::from(stay));

    let output = import(&server, &format!("{}/none", from(&old)), &[]);
    assert!(text(&output.stderr).contains("has no queue none"));
    // A memcache protocol is none, and nobody is nobody.
    let output = import(&server, &format!("quintet://{}", server.address()), &[]);
    assert_eq!(output.status.code(), Some(1));
    // The port of a client: nobody listens there, and nobody else can take it.
    let client = TcpStream::connect(server.address()).unwrap();
    let nobody = format!("quintet://{}", client.local_addr().unwrap());
    let output = import(&server, &nobody, &[]);
    assert_eq!(output.status.code(), Some(1));
}

/// Reads a request for a Quintet, and answers it when `meets` has seen it; if it `hides` anything,
/// as one without records and priorities.
fn answers(
    near: &mut BufReader<TcpStream>,
    to: &str,
    hides: bool,
    meets: &dyn Fn(&str),
) -> std::io::Result<()> {
    let (mut first, mut headers, mut length) = (String::new(), String::new(), 0);
    near.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        near.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "if-match" | "content-type" => headers += &line,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    near.read_exact(&mut body)?;
    let Some(what) = first.strip_suffix(" HTTP/1.1\r\n") else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    meets(what);
    let (status, text) = if hides && what.contains("/record") {
        let problem = json!({"code": "no_such_address", "detail": "there is no such address"});
        (404, problem.to_string())
    } else if what.starts_with("HEAD ") {
        (200, String::new())
    } else {
        let reply = http::ask(Connection::tcp(to, PATIENCE)?, what, &headers, &body)?;
        let text = match hides {
            true => reply.body.replace("\"priority\":", "\"unknown\":"),
            false => reply.body,
        };
        (reply.status, text)
    };
    let length = text.len();
    let reply = format!("HTTP/1.1 {status} -\r\ncontent-length: {length}\r\n\r\n{text}");
    near.get_mut().write_all(reply.as_bytes())
}

/// Between an import and a server, see [`answers`].
fn between(server: &Server, hides: bool, meets: impl Fn(&str) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = server.address_of("http").to_owned();
    let meets = Arc::new(meets);
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (mut near, to) = (BufReader::new(near.unwrap()), to.clone());
            let meets = Arc::clone(&meets);
            std::thread::spawn(move || while answers(&mut near, &to, hides, &*meets).is_ok() {});
        }
    });
    address
}

#[test]
fn a_change_to_a_message_while_it_is_moved_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let old = served(&dir, None);
    let server = Server::start(&dir.path().join("data"));
    let later = json!({"body": "later", "delay_ms": 3_600_000, "priority": 5});
    put(&old, "work", &json!([later]));
    let id = all(&old)[0]["id"].as_u64().unwrap();
    let (to, lists) = (old.address_of("http").to_owned(), AtomicUsize::new(0));
    // Its version and its fields are read one behind the other.
    let address = between(&old, false, move |what| {
        if what.contains("state=delayed") && lists.fetch_add(1, Ordering::Relaxed) == 1 {
            let what = format!("PATCH /api/v1/messages/{id}");
            let connection = Connection::tcp(&to, PATIENCE).unwrap();
            let reply = http::ask(connection, &what, http::JSON, b"{\"priority\":3}").unwrap();
            assert!((200..210).contains(&reply.status), "{reply:?}");
        }
    });
    done(&import(&server, &format!("quintet://{address}"), &[]));
    assert!(all(&old).is_empty());
    let mut here = all(&server).into_iter();
    assert!(here.any(|message| message["priority"] == 3));
}

#[test]
fn an_older_quintet_is_left_with_what_it_does_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let old = served(&dir, None);
    let server = Server::start(&dir.path().join("data"));
    let now = json!({"body": "now", "priority": 5, "flags": 9, "key": "k", "headers": {"a": "b"}});
    let later = json!({"body": "later", "delay_ms": 3_600_000, "name": "n"});
    put(&old, "work", &json!([now, later]));
    let file = dir.path().join("alone.jsonl");
    let line = json!({"queue": "paused", "body": "alone", "not_selectable": true});
    std::fs::write(&file, line.to_string()).unwrap();
    done(&old.run(&["import", file.to_str().unwrap()]));
    put(&old, "paused", &json!([{"body": "waits"}]));
    ask(&old, "POST /queues/paused/pause", &json!({}));
    let mut wanted = known(&old);
    wanted.retain(|name, _| name.starts_with("\"work\""));
    let from = format!("quintet://{}", between(&old, true, |_| ()));
    done(&import(&server, &from, &[]));
    let mut found = known(&server);
    for message in wanted.values_mut().chain(found.values_mut()) {
        let own = message.as_object_mut().unwrap();
        own.remove("flags");
        own.remove("changed_ms");
    }
    assert_eq!(found, wanted);
    // Which of these is for consumers it does not tell.
    let stay = ["\"alone\"", "\"waits\""].map(str::to_owned);
    assert_eq!(bodies(&old), BTreeSet::from(stay));
}

#[test]
fn an_import_says_which_copies_wait_for_a_kick_or_are_in_no_batch() {
    let dir = tempfile::tempdir().unwrap();
    let old = served(&dir, None);
    let server = Server::start(&dir.path().join("data"));
    let batch = done(&old.run(&["batch", "new", "--success", "ran=all ran"]));
    done(&old.run(&["put", "work", "page", "--batch", batch.trim()]));
    let parent = done(&old.run(&["put", "build", "make"]));
    // It stays there.
    let lease = json!({"lease_ms": 3_600_000});
    ask(&old, "POST /queues/build/reserve", &lease);
    done(&old.run(&["put", "deploy", "ship", "--after", parent.trim()]));
    let output = import(&server, &from(&old), &[]);
    done(&output);
    let printed = text(&output.stderr);
    for expected in [
        "1 message of the source waited for other messages",
        "1 message of the source belonged to batches",
    ] {
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn a_quintet_that_dies_or_is_refused_loses_nothing() {
    const ALL: usize = 700;
    for bytes in [2_000, 60_000, 150_000, 250_000] {
        let dir = tempfile::tempdir().unwrap();
        let old = served(&dir, None);
        let server = Server::start(&dir.path().join("data"));
        many(&old, ALL);
        let address = dying(old.address_of("http"), bytes);
        let output = import(&server, &format!("quintet://{address}"), &[]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{bytes}: {printed}");
        assert!(printed.contains(&address), "{bytes}: {printed}");
        let (here, there) = (bodies(&server), bodies(&old));
        assert!(!there.is_empty(), "{bytes}: it was not that long");
        assert_eq!(here.union(&there).count(), ALL, "{bytes}: lost");
        // What it held there is moved when its leases are over; the rest at once.
        done(&import(&server, &from(&old), &[]));
        let (here, there) = (bodies(&server), all(&old));
        let reserved = there.iter().all(|message| message["state"] == "reserved");
        assert!(reserved, "{bytes}");
        let there: BTreeSet<String> = there.iter().map(|left| left["body"].to_string()).collect();
        assert_eq!(here.union(&there).count(), ALL, "{bytes}: lost");
    }

    let dir = tempfile::tempdir().unwrap();
    let old = served(&dir, None);
    let config = "[[queue]]\nname = \"work\"\nmessages_max = 300\n";
    let server = Start::of(config).serve_at(&dir.path().join("data"));
    many(&old, ALL);
    let output = import(&server, &from(&old), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("are released there"));
    assert_eq!(all(&server).len() + all(&old).len(), ALL, "each once");
    let there = all(&old);
    assert!(there.iter().all(|message| message["state"] == "ready"));
}

/// Puts into `work` until it has to stop; how many it put.
fn pours(server: &Server, over: &AtomicBool) -> usize {
    let mut client = server.client();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        client.put("work", format!("message {count}").as_bytes());
        count += 1;
    }
    count
}

#[test]
fn an_interrupted_import_gives_back_its_messages() {
    let dir = tempfile::tempdir().unwrap();
    let old = served(&dir, None);
    let server = Server::start(&dir.path().join("data"));
    let over = AtomicBool::new(false);
    // While something comes there it would never be done.
    let (count, output) = std::thread::scope(|scope| {
        let puts = scope.spawn(|| pours(&old, &over));
        let mut command = quintet(&["import", "--from", &from(&old), "--data"]);
        command.arg(&server.data).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        await_that("nothing comes", || !all(&server).is_empty());
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        (puts.join().unwrap(), output)
    });
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(printed.contains(" stored"), "{printed}");
    let (here, there) = (all(&server), all(&old));
    assert_eq!(here.len() + there.len(), count, "each once");
    let ready = there.iter().all(|message| message["state"] == "ready");
    assert!(ready, "its held messages are given back");
    assert_eq!(bodies(&server).union(&bodies(&old)).count(), count);
    done(&import(&server, &from(&old), &[]));
    assert_eq!(bodies(&server).len(), count, "the same command goes on");
}

#[test]
fn another_quintet_is_read_as_a_user_and_under_tls() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("cert"), dir.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, private).unwrap();
    let config = format!(
        "tls_cert = '{}'\ntls_key = '{}'\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
         users = 'ann:hu@sh'\n[[listen]]\nprotocol = 'memcache'\n\
         address = '127.0.0.1:0'\ntls = false\n",
        cert.display(),
        key.display()
    );
    let start = Start::of(&config);
    let old = Server::start_as_configured(&dir.path().join("old"), start);
    old.client_of("memcache").put("work", b"hello");
    let server = Server::start(&dir.path().join("data"));
    let at = old.address_of("http").replace("127.0.0.1", "localhost");
    let requested = |login: &str, secret: Option<&str>, ca: bool| {
        let from = format!("quintet+https://{login}{at}");
        let mut command = quintet(&["import", "--from", &from, "--data"]);
        command.arg(&server.data);
        if ca {
            command.arg("--from-ca").arg(&cert);
        }
        if let Some(secret) = secret {
            command.env("QUINTET_FROM_TOKEN", secret);
        }
        let output = command.output().unwrap();
        (output.status.success(), text(&output.stderr))
    };
    let (done, why) = requested("", None, true);
    assert!(!done && why.contains("rejected the login"), "{why}");
    let (done, why) = requested("ann@", None, true);
    assert!(!done && why.contains("needs a password"), "{why}");
    let (done, why) = requested("ann:other@", None, true);
    assert!(!done && !why.contains("other"), "{why}");
    let (done, why) = requested("ann@", Some("hu@sh"), false);
    assert!(!done && why.contains("ertificate"), "{why}");
    assert!(all(&server).is_empty());
    let (done, why) = requested("ann@", Some("hu@sh\n"), true);
    assert!(done && why.starts_with("1 message stored"), "{why}");
    old.client_of("memcache").put("work", b"again");
    let (done, why) = requested("ann:hu%40sh@", None, true);
    assert!(done && why.starts_with("1 message stored"), "{why}");
    assert_eq!(bodies(&server).len(), 2);
}

#[test]
fn a_server_does_not_import_its_own_messages_to_where_they_are() {
    const PROTOCOLS: [(&str, &str); 3] = [
        ("quintet", "http"),
        ("kestrel", "memcache"),
        ("beanstalk", "beanstalk"),
    ];
    let server = Start::default()
        .listen(&["memcache=0", "http=0", "beanstalk=0"])
        .serve();
    put(&server, "work", &json!([{"body": "a"}, {"body": "b"}]));
    for (scheme, protocol) in PROTOCOLS {
        let from = format!("{scheme}://{}/work", server.address_of(protocol));
        for more in [&[][..], &["--into", "work"]] {
            let output = import(&server, &from, more);
            let printed = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{scheme}: {printed}");
            assert!(printed.contains("is this server itself"), "{printed}");
        }
        let all = all(&server);
        assert!(all.len() == 2 && all.iter().all(|one| one["state"] == "ready"));
    }
    // From one of its queues to another there is an end.
    for (scheme, protocol) in PROTOCOLS {
        let from = |queue: &str| format!("{scheme}://{}/{queue}", server.address_of(protocol));
        done(&import(&server, &from("work"), &["--into", "other"]));
        assert!(all(&server).iter().all(|one| one["queue"] == "other"));
        done(&import(&server, &from("other"), &["--into", "work"]));
    }
    assert_eq!(bodies(&server).len(), 2);
}
