//! The end of message N.

use quintet_types::shard_of_queue;
use serde_json::Value;

use crate::common::{Connection, Data, PATIENCE, Server, Start, await_that, http};

const HTTP: &[&str] = &[
    "memcache=127.0.0.1:0",
    "beanstalk=127.0.0.1:0",
    "http=127.0.0.1:0",
];

fn put(server: &Server, queue: &str) -> u64 {
    server
        .printed(&["put", queue, "x"])
        .trim()
        .parse()
        .expect("an id")
}

fn trace(server: &Server, id: u64) -> Value {
    let output = server.printed(&["trace", &id.to_string(), "--json"]);
    let last = output.lines().last().expect("a line");
    serde_json::from_str(last).expect("JSON")
}

/// Who runs these tests, as the audit names it.
fn account() -> String {
    format!("uid {}", rustix::process::geteuid().as_raw())
}

/// The first line of its output.
fn says(server: &Server, id: u64) -> String {
    let output = server.printed(&["trace", &id.to_string()]);
    output.lines().next().expect("a line").to_owned()
}

#[test]
fn trace_shows_the_end_of_a_message_also_after_kill_9() {
    let data = Data::fresh();
    let config = "log_level = 'warn'\n[[queue]]\nname = 'full'\nmessages_max = 1\nwhen_full = 'drop_oldest'\n";
    let start = || Start {
        listen: HTTP,
        config: Some(config),
        sync: None,
    };
    let server = start().serve_at(&data);
    let ids: Vec<u64> = (0..5).map(|_| put(&server, "work")).collect();
    assert_eq!(server.printed(&["take", "work"]), "x");
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(b"watch work\r\n", b"WATCHING 2\r\n");
    beanstalk.send(b"reserve\r\n");
    beanstalk.until(b"x\r\n");
    // It is there.
    let there = trace(&server, ids[1]);
    assert_eq!(
        (&there["state"], &there["queue"]),
        (&"reserved".into(), &"work".into())
    );
    assert_eq!(there["attempts"], 1);
    let holder = there["holder"].as_str().expect("a holder");
    assert!(holder.contains("(beanstalk)"), "{holder}");
    assert!(says(&server, ids[1]).contains(&format!(
        "is reserved by {holder}, in work, after 1 attempt"
    )));
    beanstalk.ask(format!("delete {}\r\n", ids[1]).as_bytes(), b"DELETED\r\n");
    let done = trace(&server, ids[1]);
    assert_eq!(
        (&done["state"], &done["end"]),
        (&"gone".into(), &"finished".into())
    );
    assert!(
        done["by"].as_str().expect("who").contains("(beanstalk)"),
        "{done}"
    );

    server.printed(&["delete", &ids[2].to_string()]);
    let anew: u64 = server
        .printed(&["edit", &ids[3].to_string(), "--body", "y"])
        .trim()
        .parse()
        .expect("an id");
    let dropped = put(&server, "full");
    put(&server, "full");
    let expires: u64 = server
        .printed(&["put", "late", "x", "--ttl", "1ms"])
        .trim()
        .parse()
        .expect("an id");
    server.await_number("ready", |ready| ready == 3);
    let ended = [
        (ids[0], "removed"),
        (ids[1], "finished"),
        (ids[2], "deleted"),
        (dropped, "dropped"),
        (expires, "expired"),
    ];
    for (id, did) in [(ids[0], "was taken and removed"), (ids[2], "was deleted")] {
        let output = says(&server, id);
        let by = format!("message {id} {did} by {}, ", account());
        assert!(output.starts_with(&by), "{output}");
    }
    let all = |server: &Server| {
        for (id, end) in ended {
            let output = trace(server, id);
            assert_eq!(
                (&output["state"], &output["end"]),
                (&"gone".into(), &end.into()),
                "{output}"
            );
        }
        // From one id to the next.
        let lines = server.printed(&["trace", &ids[3].to_string()]);
        let mut lines = lines.lines();
        let first = lines.next().expect("a line");
        assert!(
            first.contains("got another body")
                && first.contains(&format!("it is message {anew} now")),
            "{first}"
        );
        assert!(
            lines
                .next()
                .expect("another")
                .starts_with(&format!("message {anew} is ready"))
        );
        let (_, why, code) = server.outputs(&["trace", "424242"]);
        assert_eq!(code, 1);
        assert!(why.contains("message 424242 is not known"), "{why}");
    };
    all(&server);
    // The page that finds it, and what is refused, say so too.
    let found = server.ask(&format!("GET /find?q={}", ids[2]), "", "");
    let to = found.header("location").expect("where to").to_owned();
    let page = server.ask(&format!("GET {to}"), "", "").body;
    assert!(
        page.contains(&format!("Message {} was deleted", ids[2])),
        "{page}"
    );
    let kicked = server.ask(&format!("POST /api/v1/messages/{}/kick", ids[2]), "", "");
    assert_eq!(kicked.status, 404);
    assert!(kicked.body.contains("was deleted"), "{}", kicked.body);

    let before = trace(&server, ids[2])["at_ms"].as_u64().expect("when");
    server.kill();
    let server = start().serve_at(&data);
    all(&server);
    let after = trace(&server, ids[2]);
    // Frames tell the time, of more than one thing.
    assert!(
        after["at_ms"].as_u64().expect("when").abs_diff(before) < 10_000,
        "{after}"
    );
    assert_eq!(trace(&server, ids[1])["by"], Value::Null);
    let output = says(&server, ids[1]);
    assert!(
        output.contains("the log does not keep it over a restart"),
        "{output}"
    );
}

#[test]
fn a_message_that_went_to_another_shard_is_followed_and_so_many_are_known() {
    let config = "shards = 4\nends_max = 4000\n";
    let server = Start::of(config).listen(&["beanstalk=0"]).serve();
    let to = (0..).map(|n| format!("to{n}"));
    let mut to = to.filter(|name| shard_of_queue(name.as_bytes(), 4) != shard_of_queue(b"work", 4));
    let to = to.next().expect("another shard");
    let id = put(&server, "work");
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(b"watch work\r\n", b"WATCHING 2\r\n");
    let reserved = format!("RESERVED {id} 1\r\nx\r\n");
    beanstalk.ask(b"reserve\r\n", reserved.as_bytes());
    beanstalk.ask(format!("release {id} 0 0\r\n").as_bytes(), b"RELEASED\r\n");
    server.printed(&["move", "work", &to, "--yes"]);
    server.await_number("ready", |ready| ready == 1);
    let lines = server.printed(&["trace", &id.to_string()]);
    let lines: Vec<&str> = lines.lines().collect();
    assert!(
        lines[0].contains("was moved") && lines[0].contains(&format!("to {to}; it is message")),
        "{lines:?}"
    );
    let last = lines.last().expect("a line");
    assert!(last.contains("is ready, in "), "{lines:?}");
    // Its attempts are known by each of its ids, also when it is gone.
    let now = trace(&server, id)["id"].as_u64().expect("an id");
    server.printed(&["delete", &now.to_string()]);
    let end = trace(&server, now);
    assert_eq!((&end["id"], &end["end"]), (&now.into(), &"deleted".into()));
    assert_eq!(end["past_attempts"][0]["end"], "released", "{end}");

    let server = Start::of("ends_max = 3\n").serve();
    let ids: Vec<u64> = (0..4).map(|_| put(&server, "work")).collect();
    server.printed(&["purge", "work", "--yes"]);
    assert_eq!(server.outputs(&["trace", &ids[0].to_string()]).2, 1);
    assert!(says(&server, ids[1]).contains("was purged"));
    server.configure("ends_max = 0\n");
    server.printed(&["reload"]);
    assert_eq!(server.outputs(&["trace", &ids[1].to_string()]).2, 1);
}

#[test]
fn trace_shows_attempts_with_worker_and_error_and_without_the_worker_after_kill_9() {
    let data = Data::fresh();
    let start = || Start {
        listen: HTTP,
        config: Some("[[queue]]\nname = 'work'\nretry_delay = '1h'\n"),
        sync: None,
    };
    let server = start().serve_at(&data);
    let id = put(&server, "work");
    let reserve = "POST /api/v1/queues/work/reserve";
    let worker = "{\"worker\": \"w-7\", \"lease_ms\": 60000}";
    let reserved = server.ask(reserve, http::JSON, worker).json();
    let lease = reserved["messages"][0]["lease"].as_str().expect("a lease");
    let fail = format!("POST /api/v1/leases/{lease}/fail");
    let failed = server.ask(&fail, http::JSON, "{\"error\": \"HTTP 503\\nmore\"}");
    assert!((200..300).contains(&failed.status), "{failed:?}");
    let attempt = |server: &Server| {
        let attempts = trace(server, id)["past_attempts"].clone();
        assert_eq!(attempts.as_array().map(Vec::len), Some(1), "{attempts}");
        let attempt = attempts[0].clone();
        let told = ["end", "error"].map(|field| attempt[field].as_str());
        assert_eq!(told, [Some("failed"), Some("HTTP 503")], "{attempt}");
        assert_eq!(attempt["number"], 1);
        // Below the sentence about the message.
        let lines = server.printed(&["trace", &id.to_string()]);
        let text = attempt["text"].as_str().expect("a sentence");
        assert!(lines.contains(&format!("\n  {text} (")), "{lines}");
        (attempt["by"].clone(), text.to_owned())
    };
    let (by, text) = attempt(&server);
    let by = by.as_str().expect("a worker");
    assert!(by.starts_with("worker w-7"), "{by}");
    assert_eq!(text, format!("attempt 1 by {by} failed: HTTP 503"));
    server.kill();
    let server = start().serve_at(&data);
    let told = attempt(&server);
    assert_eq!(told, (Value::Null, "attempt 1 failed: HTTP 503".to_owned()));
    let page = server.ask(&format!("GET /messages/{id}"), "", "").body;
    assert!(page.contains("attempt 1 failed: HTTP 503</dd>"), "{page}");
    assert!(
        page.contains("forgets their workers at a restart"),
        "{page}"
    );
}

#[test]
fn trace_names_the_purge_that_made_an_end_unknown() {
    let server = Start::of("ends_max = 3\n").listen(&["http=0"]).serve();
    let ids: Vec<u64> = (0..4).map(|_| put(&server, "work")).collect();
    server.printed(&["purge", "work", "--yes"]);
    assert!(says(&server, ids[1]).contains("was purged by"));
    let is_told = |text: &str| {
        let first = format!(
            "essage {} is not known: queue work was purged by {}, ",
            ids[0],
            account()
        );
        assert!(
            text.contains(&first) && text.contains(" ago; this message may have been in it"),
            "{text}"
        );
    };
    let (_, why, code) = server.outputs(&["trace", &ids[0].to_string()]);
    assert_eq!(code, 1);
    is_told(&why);
    for path in [
        "GET /api/v1/messages/ID/trace",
        "POST /api/v1/messages/ID/kick",
    ] {
        let reply = server.ask(&path.replace("ID", &ids[0].to_string()), "", "");
        assert_eq!(reply.status, 404, "{reply:?}");
        is_told(&reply.body);
    }
    let found = server.ask(&format!("GET /find?q={}", ids[0]), "", "");
    let to = found.header("location").expect("where to").to_owned();
    is_told(&server.ask(&format!("GET {to}"), "", "").body);
    // Ids that were never given.
    let (_, why, code) = server.outputs(&["trace", &(ids[3] + 1000).to_string()]);
    assert_eq!(code, 1);
    assert!(why.contains("it never existed"), "{why}");
}

#[test]
fn the_audit_has_counts_of_messages_and_new_ids() {
    let server = Start {
        listen: HTTP,
        ..Start::default()
    }
    .serve();
    let ids: Vec<u64> = (0..6).map(|_| put(&server, "work")).collect();
    let anew = server.printed(&["edit", &ids[0].to_string(), "--body", "y"]);
    let json = "content-type: application/json\r\n";
    let edit = format!("PATCH /api/v1/messages/{}", ids[1]);
    let edited = server.ask(&edit, json, "{\"body\": \"z\"}").json();
    let purged = "POST /api/v1/queues/work/operations/purge";
    assert_eq!(
        server.ask(purged, json, "{\"max\": 2}").json()["messages"],
        2
    );
    assert_eq!(
        server.ask(purged, json, "{\"dry_run\": true}").json()["messages"],
        4
    );
    server.printed(&["purge", "work", "--yes"]);
    let audit = server.printed(&["audit"]);
    for line in [
        format!(
            "http PATCH /api/v1/messages/{} of work 200, now message {}",
            ids[0],
            anew.trim()
        ),
        format!(
            "http PATCH /api/v1/messages/{} of work 200, now message {}",
            ids[1], edited["ids"][0]
        ),
        format!("http {purged} 200, 2 messages\n"),
        format!("http {purged} 200, 4 messages\n"),
    ] {
        assert!(audit.contains(&line), "{line}: {audit}");
    }
    let counted = format!("http {purged} 200\n");
    assert!(!audit.contains(&counted), "a dry run does nothing: {audit}");
}

/// The end of a message that was purged in this way.
fn purged(server: &Server, queue: &str, way: impl FnOnce()) -> Value {
    let id = put(server, queue);
    way();
    // A flush frees its messages in slices.
    await_that("the end is not known", || {
        trace(server, id)["state"] == "gone"
    });
    let end = trace(server, id);
    assert!(end["at_ms"].as_u64().is_some_and(|at| at > 0), "{end}");
    end
}

#[test]
fn trace_shows_user_and_time_of_a_purge_of_any_interface() {
    let listen = ["memcache=0", "beanstalk=0", "sqs=0", "http=0"];
    let server = Start::default().listen(&listen).serve();
    let mut memcache = server.client_of("memcache");
    let mut beanstalk = server.client_of("beanstalk");
    let (none, local) = ("a client without a login", account());
    let local = local.as_str();
    let is = |end: Value, how: &str, by: &str| {
        assert_eq!(end["end"], how, "{end}");
        assert!(
            end["by"].as_str().is_some_and(|who| who.contains(by)),
            "{by}: {end}"
        );
        let words = match how {
            "purged" => "was purged by ",
            _ => "was deleted with its queue by ",
        };
        assert!(
            end["text"]
                .as_str()
                .is_some_and(|text| text.contains(words)),
            "{end}"
        );
    };
    let cli = |args: &[&str]| drop(server.printed(args));
    let post = |path: &str, headers: &str, body: &str| {
        let reply = server.ask(&format!("POST {path}"), headers, body);
        assert!(reply.status < 400, "{reply:?}");
    };
    is(
        purged(&server, "q", || cli(&["purge", "q", "--yes"])),
        "purged",
        local,
    );
    let some = ["purge", "q", "--contains", "x", "--yes"];
    is(purged(&server, "q", || cli(&some)), "purged", local);
    let act = || post("/api/v1/queues/q/operations/purge", http::JSON, "{}");
    is(purged(&server, "q", act), "purged", none);
    let clear = || beanstalk.ask(b"clear-tube q\r\n", b"CLEARED 1\r\n");
    is(purged(&server, "q", clear), "purged", "(beanstalk)");
    let flush = || memcache.ask(b"flush q\r\n", b"END\r\n");
    is(purged(&server, "q", flush), "purged", "(memcache)");
    let flush = || memcache.ask(b"flush_all\r\n", b"OK\r\n");
    is(purged(&server, "q", flush), "purged", "(memcache)");
    let sqs = || {
        let address = server.address_of("sqs");
        let target =
            "x-amz-target: AmazonSQS.PurgeQueue\r\ncontent-type: application/x-amz-json-1.0\r\n";
        let body = format!("{{\"QueueUrl\": \"http://{address}/000000000000/q\"}}");
        let connection = Connection::tcp(address, PATIENCE).expect("connected");
        let reply = http::ask(connection, "POST /", target, body.as_bytes()).expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
    };
    is(purged(&server, "q", sqs), "purged", none);
    let drop_it = || cli(&["drop", "q", "--messages"]);
    is(purged(&server, "q", drop_it), "queue_deleted", local);
    // One that was deleted by its id was not purged.
    let id = put(&server, "q");
    cli(&["delete", &id.to_string()]);
    assert_eq!(trace(&server, id)["end"], "deleted");
    // A worker that ends its lease has not deleted the queue.
    let id = put(&server, "q");
    beanstalk.ask(b"watch q\r\n", b"WATCHING 2\r\n");
    beanstalk.ask(
        b"reserve\r\n",
        format!("RESERVED {id} 1\r\nx\r\n").as_bytes(),
    );
    cli(&["drop", "q", "--messages"]);
    beanstalk.ask(format!("release {id} 0 0\r\n").as_bytes(), b"RELEASED\r\n");
    let end = trace(&server, id);
    assert_eq!(
        (&end["end"], &end["by"]),
        (&"queue_deleted".into(), &Value::Null)
    );
}

/// With the words of each protocol that can give a reason, in `trace`, `browse`, the API and on
/// the message's page.
#[test]
fn every_protocol_that_buries_with_a_reason_has_it_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.sh");
    std::fs::write(&script, "#!/bin/sh\necho err said by a script >&3\n").expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&script, private).expect("executable");
    let hooks = folder.path().join("hooks.lua");
    std::fs::write(
        &hooks,
        "function after_put(msg)\n  if msg.queue == 'hook' then quintet.bury(msg.id, 'said by a hook') end\nend\n",
    )
    .expect("written");
    let config = format!(
        "hooks = '{}'\n[[queue]]\nname = 'script'\nscript = '{}'\nexec_prefix = ''\n\
         [[queue]]\nname = 'fail'\nretry_max = 0\nattempts_max = 1\n",
        hooks.display(),
        script.display()
    );
    let server = Start::of(&config).listen(&["faktory=0", "http=0"]).serve();
    let lease = |queue: &str| {
        let path = format!("POST /api/v1/queues/{queue}/reserve");
        let reserved = server.ask(&path, http::JSON, "{}").json();
        let lease = reserved["messages"][0]["lease"].as_str();
        lease.expect("a lease").to_owned()
    };
    let settle = |lease: &str, how: &str, body: &str| {
        let path = format!("POST /api/v1/leases/{lease}/{how}");
        let reply = server.ask(&path, http::JSON, body);
        assert!(reply.status < 300, "{reply:?}");
    };
    let mut worker = server.client_of("faktory");
    worker.until(b"\r\n");
    worker.ask(b"HELLO {\"v\":2}\r\n", b"+OK\r\n");
    let push = r#"PUSH {"jid":"killed00","jobtype":"T","args":[],"queue":"faktory"}"#;
    worker.ask(format!("{push}\r\n").as_bytes(), b"+OK\r\n");
    worker.send(b"FETCH faktory\r\n");
    worker.until(b"}\r\n");
    let fail = r#"FAIL {"jid":"killed00","errtype":"E","message":"said by a job"}"#;
    worker.ask(format!("{fail}\r\n").as_bytes(), b"+OK\r\n");
    let kill = r#"MUTATE {"cmd":"kill","target":"retries","filter":{"jids":["killed00"]}}"#;
    worker.ask(format!("{kill}\r\n").as_bytes(), b"+OK\r\n");

    put(&server, "api");
    settle(&lease("api"), "bury", "{\"reason\": \"said by the API\"}");
    put(&server, "fail");
    settle(&lease("fail"), "fail", "{\"error\": \"said by a failure\"}");
    put(&server, "script");
    put(&server, "hook");
    let console = put(&server, "console");
    let page = server.ask(&format!("GET /messages/{console}"), "", "").body;
    let (_, csrf) = page.split_once("name=\"csrf\" value=\"").expect("a token");
    let csrf = csrf.split('"').next().expect("its end");
    let form = format!("csrf={csrf}&reason=said+by+the+console");
    let buried = server.ask(
        &format!("POST /messages/{console}/do/bury"),
        http::FORM,
        &form,
    );
    assert_eq!(buried.status, 303, "{buried:?}");

    for (queue, reason) in [
        ("api", "said by the API"),
        ("fail", "said by a failure"),
        ("script", "said by a script"),
        ("hook", "said by a hook"),
        ("faktory", "killed"),
        ("console", "said by the console"),
    ] {
        let path = format!("GET /api/v1/queues/{queue}/messages?state=buried");
        let mut found = Value::Null;
        await_that(&format!("{queue}: it is not buried"), || {
            found = server.ask(&path, "", "").json()["messages"].take();
            found.get(0).is_some()
        });
        let id = found[0]["id"].as_u64().expect("an id");
        let shown = server
            .ask(&format!("GET /api/v1/messages/{id}"), "", "")
            .body;
        let page = server.ask(&format!("GET /messages/{id}"), "", "").body;
        let (_, why) = page
            .split_once("class=\"why\"")
            .expect("a reason on the page");
        let why = why.split("</div>").next().unwrap_or_default();
        let listed = server.printed(&["browse", queue, "--state", "buried"]);
        for (place, text) in [
            ("API", &*shown),
            ("page", why),
            ("trace", &says(&server, id)),
            ("browse", &listed),
        ] {
            assert!(text.contains(reason), "{queue}, {place}: {text}");
        }
    }
}

/// In `trace` and `browse`; what it says moves no cursor.
#[test]
fn a_buried_message_says_why() {
    let start = Start {
        listen: &["memcache=127.0.0.1:0", "http=127.0.0.1:0"],
        ..Start::default()
    };
    let server = start.serve();
    let ids = [put(&server, "work"), put(&server, "work")];
    let listed = server.printed(&["browse", "work"]);
    assert!(!listed.contains("error"), "{listed}");
    let json = "content-type: application/json\r\n";
    let reserved = server.ask("POST /api/v1/queues/work/reserve", json, "{}");
    let reserved: Value = serde_json::from_str(&reserved.body).expect("JSON");
    let token = reserved["messages"][0]["lease"].as_str().expect("a lease");
    let why = "{\"reason\": \"no such host\\u001b[2J\\nat line 7\"}";
    let buried = server.ask(&format!("POST /api/v1/leases/{token}/bury"), json, why);
    assert!(buried.status < 300, "{}", buried.body);
    let says = says(&server, ids[0]);
    let wanted = format!(
        "message {} is buried, in work, after 1 attempt: no such host",
        ids[0]
    );
    assert!(says.starts_with(&wanted), "{says}");
    let listed = server.printed(&["browse", "work", "--state", "buried"]);
    assert!(
        listed.contains("error") && listed.contains("no such host"),
        "{listed}"
    );
    assert!(!says.contains('\u{1b}') && !listed.contains('\u{1b}'));
}
