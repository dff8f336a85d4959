//! Faktory's protocol on the real binary: what outlives the server, and jobs
//! that come from or go to other protocols.

use std::path::Path;

use crate::common::{Client, Data, Server, Start, text};

fn start(data: &Path) -> Server {
    Start::of("[defaults]\nretry_delay = \"15s\"\n")
        .listen(&["memcache=0", "beanstalk=0", "faktory=0"])
        .serve_at(data)
}

fn hello(server: &Server) -> Client {
    let mut client = server.client_of("faktory");
    client.expect(b"+HI {\"v\":2}\r\n");
    ok(&mut client, "HELLO {\"v\":2}");
    client
}

fn ok(client: &mut Client, line: &str) {
    client.ask(format!("{line}\r\n").as_bytes(), b"+OK\r\n");
}

/// The reply to a command whose reply is a body.
fn bulk(client: &mut Client, line: &str) -> String {
    client.send(format!("{line}\r\n").as_bytes());
    let head = text(&client.until(b"\r\n"));
    let len = head.trim_end().strip_prefix('$').expect("a body");
    let len: usize = len.parse().expect("a length");
    let body = text(&client.exact(len));
    client.expect(b"\r\n");
    body
}

fn has(client: &mut Client, member: &str) {
    let info = bulk(client, "INFO");
    assert!(info.contains(member), "no {member}: {info}");
}

/// Case 51.
#[test]
fn a_worker_acknowledges_after_the_server_was_killed() {
    let data = Data::fresh();
    let server = start(&data);
    let mut worker = hello(&server);
    ok(
        &mut worker,
        r#"PUSH {"jid":"job00001","jobtype":"T","args":[1]}"#,
    );
    let job = bulk(&mut worker, "FETCH default");
    assert!(job.contains("\"args\":[1]"), "{job}");
    server.kill();
    let server = start(&data);
    let mut worker = hello(&server);
    has(&mut worker, "\"working\":1}");
    ok(&mut worker, r#"ACK {"jid":"job00001"}"#);
    has(&mut worker, "\"working\":0}");
    assert!(server.stop().success());
}

/// Cases 74 and 75.
#[test]
fn jobs_of_beanstalk_are_fetched_and_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"));
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(
        b"use mail\r\nput 0 0 60 5\r\nhello\r\n",
        b"USING mail\r\nINSERTED ",
    );
    let id: u64 = text(&beanstalk.until(b"\r\n"))
        .trim()
        .parse()
        .expect("an id");
    let mut worker = hello(&server);
    let job = bulk(&mut worker, "FETCH mail");
    let jid = format!("q-{id:016x}");
    let middle = format!("\"jid\":\"{jid}\",\"queue\":\"mail\",\"jobtype\":\"Message\"");
    assert!(job.contains(&middle), "{job}");
    assert!(job.ends_with("\"args\":[\"hello\"]}"), "{job}");
    ok(&mut worker, &format!("ACK {{\"jid\":\"{jid}\"}}"));
    has(&mut worker, "\"working\":0}");

    let body = br#"{"jid":"job00001","jobtype":"T","args":[1]}"#;
    beanstalk.ask(
        &[b"put 0 0 60 43\r\n", &body[..], b"\r\n"].concat(),
        b"INSERTED ",
    );
    let id: u64 = text(&beanstalk.until(b"\r\n"))
        .trim()
        .parse()
        .expect("an id");
    let job = bulk(&mut worker, "FETCH mail");
    let jid = format!("q-{id:016x}");
    let start = "\"custom\":{\"jid\":\"job00001\"},";
    let middle = format!("{start}\"jid\":\"{jid}\",\"queue\":\"mail\",\"jobtype\":\"T\"");
    assert!(
        job.contains(&middle) && job.ends_with("\"args\":[1]}"),
        "{job}"
    );
    ok(&mut worker, &format!("FAIL {{\"jid\":\"{jid}\"}}"));
    has(&mut worker, "\"retries\":1,");
    assert!(server.stop().success());
}

/// Case 76.
#[test]
fn a_job_that_beanstalk_holds_is_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"));
    let mut producer = hello(&server);
    ok(
        &mut producer,
        r#"PUSH {"jid":"job00001","jobtype":"T","args":[1],"created_at":"x"}"#,
    );
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(b"reserve\r\n", b"RESERVED ");
    let head = text(&beanstalk.until(b"\r\n"));
    let id = head.split(' ').next().expect("an id").to_owned();
    beanstalk.expect(
        b"{\"retry\":25,\"jid\":\"job00001\",\"queue\":\"default\",\"jobtype\":\"T\",\
          \"created_at\":\"x\",\"args\":[1]}\r\n",
    );
    ok(&mut producer, r#"ACK {"jid":"job00001"}"#);
    has(&mut producer, "\"working\":1}");
    beanstalk.ask(format!("delete {id}\r\n").as_bytes(), b"DELETED\r\n");
    has(&mut producer, "\"working\":0}");
    assert!(server.stop().success());
}

/// Case 77.
#[test]
fn bytes_that_are_no_text_come_as_base64() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"));
    server.client().put("bytes", b"\xff\xfe");
    let mut worker = hello(&server);
    let job = bulk(&mut worker, "FETCH bytes");
    assert!(
        job.contains("\"custom\":{\"encoding\":\"base64\"}"),
        "{job}"
    );
    assert!(job.ends_with("\"args\":[\"//4=\"]}"), "{job}");
    assert!(server.stop().success());
}

/// More than other protocols hold in memory.
#[test]
fn a_long_job_comes_back_whole_after_a_restart() {
    let data = Data::fresh();
    let server = start(&data);
    let args = format!("[\"{}\"]", "x".repeat(3_000_000));
    let mut worker = hello(&server);
    ok(
        &mut worker,
        &format!(r#"PUSH {{"jid":"job00001","jobtype":"T","args":{args}}}"#),
    );
    server.kill();
    let server = start(&data);
    let job = bulk(&mut hello(&server), "FETCH default");
    assert!(job.ends_with(&format!("\"args\":{args}}}")));
    assert!(server.stop().success());
}

/// In queues of other shards; "a" and "b" are.
#[test]
fn the_state_of_a_job_is_that_of_the_last_one_of_its_id() {
    let config = "shards = 4\n[[listen]]\nprotocol = 'faktory'\n\
                  address = '127.0.0.1:0'\nent = true\n";
    let server = Start::of(config).serve_as_configured();
    let mut worker = hello(&server);
    let is = |worker: &mut Client, state: &str| {
        let told = bulk(worker, "TRACK GET job00001");
        assert!(told.contains(&format!("\"state\":\"{state}\"")), "{told}");
    };
    for queue in ["a", "b", "a"] {
        let job = r#"{"jid":"job00001","jobtype":"T","args":[],"custom":{"track":1},"queue":"#;
        ok(&mut worker, &format!("PUSH {job}\"{queue}\"}}"));
        is(&mut worker, "enqueued");
        bulk(&mut worker, &format!("FETCH {queue}"));
        is(&mut worker, "working");
        ok(&mut worker, r#"ACK {"jid":"job00001"}"#);
        is(&mut worker, "success");
    }
    assert!(server.stop().success());
}
