//! The http listener of the real binary: configuration, scripts, large files.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use crate::common::{
    Client, Data, PATIENCE, Reply, Server, Start, await_that, eventually, http, quintet,
};
use serde_json::{Value, json};

fn get(server: &Server, path: &str) -> Reply {
    server.ask(&format!("GET {path}"), "", "")
}

fn post(server: &Server, path: &str, body: &Value) -> Reply {
    server.ask(&format!("POST {path}"), http::JSON, body.to_string())
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address_of("http")).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}

fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("script.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    path.to_str().expect("text").to_owned()
}

/// A configuration with a queue `test` of that script.
fn config(script: &str, more: &str) -> String {
    format!(
        "[[queue]]\nname = \"test\"\nscript = \"{script}\"\nexec_prefix = \"\"\n{more}\n\
         [[listen]]\nprotocol = \"http\"\naddress = \"127.0.0.1:0\"\n\
         [[listen]]\nprotocol = \"memcache\"\naddress = \"127.0.0.1:0\"\n"
    )
}

fn start(data: &Path, config: &str) -> Server {
    Server::start_as_configured(data, Start::of(config))
}

#[test]
fn a_queue_of_the_settings_runs_its_script() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let script = script(folder.path(), "echo done $RQ_PARAM1 $RQ_ENV $GREETING >&3");
    let text = config(&script, "env_vars = { GREETING = 'hello' }");
    let server = start(&data, &format!("script_env = 'testing'\n{text}"));
    let made = post(&server, "/q/test/new_message", &json!({"param1": "one"})).json();
    let full = made[1].as_str().expect("an id").to_owned();
    assert!(
        full.starts_with(&format!("http://{}/q/test/", server.address_of("http"))),
        "{full}"
    );
    let id = full.rsplit('/').next().expect("a short id");
    let status = |id: &str| get(&server, &format!("/q/test/{id}.json")).json()["status"].clone();
    eventually("it is done", || {
        (status(id) == "done - one testing hello").then_some(())
    });
    // What comes in over another protocol runs too.
    let mut client = server.client_of("memcache");
    client.ask(b"set test 0 0 3\r\ntwo\r\n", b"STORED\r\n");
    eventually("the other is done", || {
        let done = get(&server, "/q/test/done.json").json();
        (done.as_array().map(Vec::len) == Some(2)).then_some(())
    });
    let queues = get(&server, "/q.txt").body;
    assert_eq!(queues, "/q/relay.txt\n/q/test.txt\n/q/webhook.txt\n");
    // What changed in the file counts from now on.
    let changed = text.replace(
        "{ GREETING = 'hello' }",
        "{ GREETING = 'bye' }\nnum_workers = 2",
    );
    server.configure(&changed);
    server.signal(rustix::process::Signal::HUP);
    eventually("it counts", || {
        let config = get(&server, "/q/test/config").json();
        (config["num_workers"] == 2).then_some(())
    });
    let made = post(&server, "/q/test/new_message", &json!({"param1": "three"})).json();
    let full = made[1].as_str().expect("an id").to_owned();
    let id = full.rsplit('/').next().expect("a short id");
    eventually("it is done", || {
        (status(id) == "done - three testing bye").then_some(())
    });
    assert!(server.stop().success());
}

#[test]
fn sighup_makes_changed_settings_in_a_folder_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let server = start(&data, &config(&script(folder.path(), "echo done >&3"), ""));
    let own = data.join("rq/queue/own");
    std::fs::create_dir_all(&own).expect("made");
    let path = own.join("config.json");
    let mut changed = None;
    for workers in [3, 5] {
        let text = json!({"script": "/bin/true", "num_workers": workers}).to_string();
        std::fs::write(&path, text).expect("written");
        let file = std::fs::File::options().append(true).open(&path);
        let file = file.expect("opened");
        let about = file.metadata().expect("there");
        // By the time of its change it would not be looked at again.
        let first = *changed.get_or_insert(about.modified().expect("there"));
        file.set_modified(first).expect("set");
        server.signal(rustix::process::Signal::HUP);
        eventually("it counts", || {
            let reply = get(&server, "/q/own/config.json");
            (reply.status == 200 && reply.json()["num_workers"] == workers).then_some(())
        });
    }
    assert!(server.stop().success());
}

#[test]
fn a_script_that_ran_when_the_server_died_runs_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let go = folder.path().join("go");
    let text = format!(
        "echo run on >&3; while [ ! -e {} ]; do sleep 0.1; done; echo done >&3",
        go.display()
    );
    let text = config(&script(folder.path(), &text), "");
    let server = start(&data, &text);
    let made = post(&server, "/q/test/new_message", &json!({})).json();
    let id = made[1]
        .as_str()
        .and_then(|id| id.rsplit('/').next())
        .expect("an id")
        .to_owned();
    let path = format!("/q/test/{id}.json");
    eventually("it runs", || {
        (get(&server, &path).json()["status"] == "run - on").then_some(())
    });
    server.kill();
    let server = start(&data, &text);
    eventually("it runs again", || {
        (get(&server, &path).json()["status"] == "run - on").then_some(())
    });
    std::fs::write(&go, "").expect("written");
    eventually("it is done", || {
        (get(&server, &path).json()["state"] == "done").then_some(())
    });
    assert!(server.stop().success());
}

#[test]
fn others_need_a_login_or_a_word() {
    let data = Data::fresh();
    let refused = quintet(&["serve", "--listen", "http=0.0.0.0:0", "--data"])
        .arg(&data)
        .output()
        .expect("the binary runs");
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        why.contains("users") && why.contains("insecure = true"),
        "{why}"
    );
    for option in ["users = 'anna:secret'", "insecure = true"] {
        let text = format!("[[listen]]\nprotocol = 'http'\naddress = '0.0.0.0:0'\n{option}\n");
        assert!(start(&data, &text).stop().success());
    }
}

#[test]
fn readiness_ends_with_draining_and_health_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Start::default()
        .listen(&["http=0"])
        .serve_at(&folder.path().join("data"));
    let ok = (200, "ok".to_owned());
    assert_eq!(crate::common::page(&server, "/readyz"), ok);
    server.signal(rustix::process::Signal::USR1);
    await_that("it stays ready", || {
        crate::common::page(&server, "/readyz") != ok
    });
    let draining = (503, "503 - draining".to_owned());
    assert_eq!(crate::common::page(&server, "/readyz"), draining);
    assert_eq!(crate::common::page(&server, "/healthz"), ok);
}

#[test]
fn metrics_have_each_queue_and_the_requested_families() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Start::of("metrics_queues = 2\n")
        .listen(&["http=0", "memcache=0"])
        .serve_at(&folder.path().join("data"));
    let mut client = server.client_of("memcache");
    for (queue, bytes) in [("small", 1), ("mail:out", 30), ("large", 200)] {
        client.put(queue, "x".repeat(bytes).as_bytes());
    }
    let (status, text) = crate::common::page(&server, "/metrics");
    assert_eq!(status, 200);
    let has = |line: &str| text.lines().any(|output| output == line);
    for line in [
        "quintet_group_info{group=\"0\"} 1",
        "quintet_messages_ready 3",
        "quintet_queues_with_series 2",
        "quintet_peeks_total 0",
        "quintet_looks_total 0",
        "quintet_queue_messages{queue=\"mail:out\",state=\"ready\"} 1",
        "quintet_queue_bytes{queue=\"large\"} 200",
        "quintet_queue_puts_total{queue=\"large\"} 1",
        "# TYPE quintet_queue_puts_total counter",
        "quintet_commands_total{protocol=\"memcache\",voice=\"memcache\",command=\"put\"} 3",
        "# TYPE quintet_reply_seconds histogram",
        "quintet_reply_seconds_bucket{protocol=\"memcache\",voice=\"memcache\",family=\"put\",le=\"+Inf\"} 3",
        "quintet_reply_seconds_count{protocol=\"memcache\",voice=\"memcache\",family=\"take\"} 0",
        "# TYPE quintet_log_frame_records histogram",
    ] {
        assert!(has(line), "{line}\n{text}");
    }
    assert!(!text.contains("\"small\""), "{text}");

    let (_, some) = crate::common::page(&server, "/metrics?name=quintet_messages_ready");
    assert_eq!(some.lines().count(), 3, "{some}");
    let (_, some) = crate::common::page(&server, "/metrics?name[]=quintet_queue_b*");
    assert!(some.contains("quintet_queue_bytes{") && some.contains("quintet_queue_buries_total{"));
    assert!(!some.contains("quintet_messages"), "{some}");
    // A queue that is gone leaves no series.
    client.ask(b"delete large\r\n", b"DELETED\r\n");
    let (_, text) = crate::common::page(&server, "/metrics");
    assert!(
        !text.contains("\"large\"") && text.contains("\"small\""),
        "{text}"
    );

    let accept = "accept: application/openmetrics-text; version=1.0.0,text/plain;q=0.5\r\n";
    let reply = crate::common::whole_page(&server, "/metrics", accept);
    assert!(
        reply.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{reply}"
    );
    assert!(reply.contains("# TYPE quintet_queue_puts counter\n") && reply.ends_with("# EOF\n"));
    assert_eq!(crate::common::page(&server, "/livez").0, 200);
}

#[test]
fn messages_of_rq_are_not_passed_over_in_silence() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("rq");
    for id in ["20091109.0558.57.780.1", "20091109.0558.57.780.2"] {
        let message = root.join("queue/mail/que").join(id);
        std::fs::create_dir_all(&message).expect("made");
        std::fs::write(message.join("msg"), "{}").expect("written");
    }
    let settings = format!("script_root = '{}'\n", root.display());
    let data = folder.path().join("data");
    let refused = Start::of(&settings).listen(&["http=0"]).output(&data);
    let output = crate::common::text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{output}");
    assert!(
        output.contains("holds 2 messages") && output.contains("2 in que of mail"),
        "{output}"
    );
    assert!(output.contains("ignore_rq_messages = true"), "{output}");
    let settings = format!("ignore_rq_messages = true\n{settings}");
    let server = Start::of(&settings).listen(&["http=0"]).serve_at(&data);
    assert_eq!(crate::common::page(&server, "/healthz").0, 200);
}

#[test]
fn a_unix_socket_is_served_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("http.sock");
    let listen = format!("http=unix:{}", socket.display());
    let server = Start::default()
        .listen(&[&listen])
        .serve_at(&folder.path().join("data"));
    let reply = Client::unix(&socket).page("GET /healthz", "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok"));
    assert!(server.stop().success());
    assert!(!socket.exists());
}

/// Resident memory, bytes.
fn resident(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(path).expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a number")
        << 10
}

/// The bound does not depend on the size: 48 MiB would break it as 1 GiB
/// does. `QUINTET_ATTACHMENT_MIB=1024` tests that too.
#[test]
fn large_attachments_pass_through() {
    const GROWTH_MAX: u64 = 20 << 20;
    let mib = std::env::var("QUINTET_ATTACHMENT_MIB").ok();
    let mib: u64 = mib.and_then(|mib| mib.parse().ok()).unwrap_or(48);
    let folder = tempfile::tempdir().expect("a folder");
    let text = config(&script(folder.path(), "echo done >&3"), "");
    let server = start(&folder.path().join("data"), &text);
    let made = post(&server, "/q/test/new_message", &json!({"_method": "prep"})).json();
    let id = made[1]
        .as_str()
        .and_then(|id| id.rsplit('/').next())
        .expect("an id")
        .to_owned();
    let before = resident(&server);
    let head = "--x\r\nContent-Disposition: form-data; name=\"filedata\"; filename=\"big\"\r\n\r\n";
    let tail =
        "\r\n--x\r\nContent-Disposition: form-data; name=\"x_format\"\r\n\r\njson\r\n--x--\r\n";
    let total = head.len() as u64 + (mib << 20) + tail.len() as u64;
    let mut stream = connect(&server);
    let request = format!(
        "POST /q/test/{id}/attach/new HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: multipart/form-data; boundary=x\r\ncontent-length: {total}\r\n\r\n{head}"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let piece: Vec<u8> = (0..1u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let began = Instant::now();
    for _ in 0..mib {
        stream.write_all(&piece).expect("sent");
    }
    stream.write_all(tail.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.contains("-Attached successfully"), "{reply}");
    let took_in = began.elapsed();
    let grown_in = resident(&server) - before;
    let began = Instant::now();
    let mut stream = connect(&server);
    let request = format!(
        "GET /q/test/{id}/attach/big HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut out = std::io::BufReader::new(stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        std::io::BufRead::read_line(&mut out, &mut line).expect("a head");
    }
    let mut got = vec![0; piece.len()];
    for at in 0..mib {
        out.read_exact(&mut got).expect("all of it");
        assert!(got == piece, "MiB {at} is another");
    }
    assert_eq!(out.read(&mut got).expect("its end"), 0);
    let grown = resident(&server) - before;
    println!(
        "{mib} MiB in {took_in:?}, out {:?}; memory grew by {} KiB, then {} KiB",
        began.elapsed(),
        grown_in >> 10,
        grown >> 10
    );
    assert!(grown < GROWTH_MAX, "memory grew by {grown} bytes");
    assert!(server.stop().success());
}

#[test]
fn a_backup_has_the_attachments() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let text = config(&script(folder.path(), "echo some words; echo done >&3"), "");
    let server = start(&data, &text);
    let made = post(
        &server,
        "/q/test/new_message",
        &json!({"_method": "prep", "param1": "x"}),
    );
    let made = made.json();
    let id = made[1]
        .as_str()
        .and_then(|id| id.rsplit('/').next())
        .expect("an id")
        .to_owned();
    let body = "--x\r\nContent-Disposition: form-data; name=\"filedata\"; filename=\"a.txt\"\r\n\r\n\
                attached\r\n--x--\r\n";
    let mut stream = connect(&server);
    let request = format!(
        "POST /q/test/{id}/attach/new?x_format=json HTTP/1.1\r\nhost: localhost\r\n\
         connection: close\r\ncontent-type: multipart/form-data; boundary=x\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.contains("-Attached successfully"), "{reply}");
    let made = post(&server, "/q/test/new_message", &json!({})).json();
    let ran = made[1]
        .as_str()
        .and_then(|id| id.rsplit('/').next())
        .expect("an id")
        .to_owned();
    eventually("one is done", || {
        let state = get(&server, &format!("/q/test/{ran}/state.json")).json();
        (state == json!(["done"])).then_some(())
    });
    let target = copy.to_str().expect("text");
    let backup = server.run(&["backup", target]);
    assert!(
        backup.status.success(),
        "{}",
        String::from_utf8_lossy(&backup.stderr)
    );
    let printed = String::from_utf8_lossy(&backup.stdout).into_owned();
    assert!(printed.contains(" of scripts"), "{printed}");
    server.kill();
    let server = start(&copy, &text);
    let file = get(&server, &format!("/q/test/{id}/attach/a.txt"));
    assert_eq!(file.body, "attached");
    let log = get(&server, &format!("/q/test/{ran}/log/stdio.log")).body;
    assert!(log.contains("some words"), "{log}");
    assert!(server.stop().success());
}

#[test]
fn an_acknowledged_error_is_buried_to_others_and_survives_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let script = script(folder.path(), "echo err bad $RQ_PARAM1 >&3");
    let beanstalk = "[[listen]]\nprotocol = \"beanstalk\"\naddress = \"127.0.0.1:0\"\n";
    let text = config(&script, "") + beanstalk;
    let server = start(&data, &text);
    let path = |server: &Server, param1: &str| {
        let made = post(server, "/q/test/new_message", &json!({ "param1": param1 }));
        let full = made.json()[1].as_str().expect("an id").to_owned();
        let short = full.rsplit('/').next().expect("a short id").to_owned();
        format!("/q/test/{short}.json")
    };
    let status = |server: &Server, path: &str| get(server, path).json()["status"].clone();
    let one = path(&server, "one");
    eventually("it has failed", || {
        (status(&server, &one) == "err - bad one").then_some(())
    });
    let acked = post(&server, "/q/test/ack_errs?x_format=json", &json!({}));
    assert_eq!(acked.json(), json!(["ok", 1]));
    // What was answered is kept.
    server.kill();
    let server = start(&data, &text);
    assert_eq!(status(&server, &one), "errack - bad one");
    let sizes = get(&server, "/q/test.json").json();
    assert_eq!(
        (&sizes["err_size"], &sizes["errack_size"]),
        (&json!(0), &json!(1))
    );
    let mut client = server.client_of("beanstalk");
    client.ask(b"use test\r\npeek-buried\r\n", b"USING test\r\n");
    let found = String::from_utf8(client.until(b"one\r\n")).expect("text");
    assert!(found.starts_with("FOUND "), "{found}");
    client.ask(b"kick 10\r\n", b"KICKED 1\r\n");
    eventually("it has failed again", || {
        (status(&server, &one) == "err - bad one").then_some(())
    });
    let sizes = get(&server, "/q/test.json").json();
    assert_eq!(
        (&sizes["err_size"], &sizes["errack_size"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn rules_route_messages_over_http_and_ruby_alone_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let rules = data.join("rq/config");
    std::fs::create_dir_all(&rules).expect("made");
    let ruby = rules.join("rq_router_rules.rb");
    std::fs::write(&ruby, "rule 'default'\naction :err\n").expect("written");
    let script = script(folder.path(), "echo done $RQ_PARAM1 >&3");
    let text = config(&script, "");
    let path = folder.path().join("config.toml");
    std::fs::write(&path, &text).expect("written");
    let refused = quintet(&["serve", "--config"])
        .arg(&path)
        .arg("--data")
        .arg(&data)
        .output()
        .expect("runs");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && why.contains("rq_router_rules.toml"),
        "{why}"
    );
    std::fs::remove_file(ruby).expect("removed");
    std::fs::write(
        rules.join("rq_router_rules.toml"),
        "[[rule]]\ndesc = 'later'\nsrc = 'later'\naction = 'relay'\nroute = ['here']\n",
    )
    .expect("written");
    let server = start(&data, &text);
    let toml = format!(
        "[[rule]]\ndesc = 'mine'\ndest = '/test$'\naction = 'balance'\nroute = ['{}']\n",
        server.address_of("http")
    );
    std::fs::write(rules.join("rq_router_rules.toml"), toml).expect("written");
    let made = post(&server, "/q/test/new_message", &json!({"param1": "one"})).json();
    let full = made[1].as_str().expect("an id");
    let (_, id) = full.split_once("/q/rq_router/").expect("the router's");
    let status = eventually("it is sent on", || {
        let message = get(&server, &format!("/q/rq_router/{id}.json")).json();
        let status = message["status"].as_str()?.to_owned();
        status.starts_with("done - ").then_some(status)
    });
    let (_, copy) = status.split_once("/q/test/").expect("where to");
    eventually("its script has run", || {
        let message = get(&server, &format!("/q/test/{copy}.json")).json();
        (message["status"] == "done - one").then_some(())
    });
}
