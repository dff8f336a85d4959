//! Access: the requesters who are let in, and their rights.

use crate::common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use common::{Reply, World};
use serde_json::json;

#[test]
fn a_page_of_another_site_can_do_nothing() {
    let world = World::new();
    world.paused_queue("test");
    let form = ("content-type", "application/x-www-form-urlencoded");
    for strange in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("referer", "http://evil.example/page"),
    ] {
        for path in [
            "/q/test/new_message",
            "/q/test/adminoper",
            "/new_queue",
            "/delete_queue",
        ] {
            let body = b"mesg={}&down=1&queue_name=test&queue[name]=x&queue[script]=/bin/true";
            let reply = world.ask("POST", path, &[form, strange], body);
            assert_eq!(reply.status, 403, "{path} {strange:?}");
        }
    }
    let text = world.get("/q/test.txt").text();
    assert!(
        text.contains("status: PAUSE") && text.contains("que: 0"),
        "{text}"
    );
    let own = format!("http://{}", world.address);
    let reply = world.ask(
        "POST",
        "/q/test/new_message",
        &[form, ("origin", &own)],
        b"mesg={}",
    );
    assert_eq!(reply.json()[0], "ok");
}

#[test]
fn a_name_pointed_at_us_is_not_ours() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    let reply = world.ask("GET", "/q/test.json", &[("host", "evil.example:3333")], b"");
    assert_eq!(reply.status, 403);
    assert_eq!(
        world
            .ask("GET", "/q.txt", &[("host", "localhost")], b"")
            .status,
        200
    );
    // Whoever asks whether it lives may call it anything.
    assert_eq!(
        world.ask("GET", "/healthz", &[("host", "any")], b"").status,
        200
    );
}

#[test]
fn logins() {
    let world = World::with(|settings| {
        settings.users = vec![quintet_http::User {
            name: "anna".to_owned(),
            password: "secret".to_owned(),
        }];
    });
    world.queue("test", "echo done >&3");
    let reply = world.get("/q.txt");
    assert_eq!(reply.status, 401);
    let asks = reply.header("www-authenticate");
    assert_eq!(asks, Some("Basic realm=\"RQ\", charset=\"UTF-8\""));
    // anna:secret, anna:wrong
    let with = |code: &str| world.ask("GET", "/q.txt", &[("authorization", code)], b"");
    assert_eq!(with("Basic YW5uYTpzZWNyZXQ=").status, 200);
    assert_eq!(with("Basic YW5uYTp3cm9uZw==").status, 401);
    assert_eq!(world.get("/healthz").status, 200);
}

#[test]
fn everything_may_live_under_a_prefix() {
    let world = World::with(|settings| settings.relative_root = "/rq/".to_owned());
    world.queue("test", "echo done >&3");
    assert_eq!(world.get("/q.txt").status, 404);
    assert_eq!(world.get("//rq//q.txt").text(), "/rq/q/test.txt\n");
    let console = world.get("/rq").text();
    assert!(console.contains("href=\"/rq/queues/test\""), "{console}");
    let page = world.get("/rq/q").text();
    assert!(page.contains("href=\"/rq/q/test\""), "{page}");
    let reply = world.post_json("/rq/q/test/new_message", &json!({}));
    let id = reply.json()[1].as_str().expect("an id").to_owned();
    assert!(
        id.starts_with(&format!("http://{}/rq/q/test/", world.address)),
        "{id}"
    );
    let reply = world.post("/rq/q/test/adminoper", "pause=1");
    assert!(reply.leads_to().starts_with("/rq/q/test?notice="));
}

#[test]
fn forms_have_limits_with_names() {
    let world = World::with(|settings| {
        settings.limits.form_bytes_max = 10_000;
        settings.limits.fields_max = 5;
    });
    world.paused_queue("test");
    let long = format!("mesg={}", "x".repeat(10_000));
    let reply = world.post("/q/test/new_message", &long);
    assert_eq!(reply.status, 413);
    assert!(reply.text().contains("max_form"), "{}", reply.text());
    let many = "a=1&".repeat(6);
    let reply = world.post("/q/test/new_message", &many);
    assert_eq!(reply.status, 413);
    assert!(reply.text().contains("max_fields"), "{}", reply.text());
    let json = json!({"param1": "x".repeat(10_000)});
    assert_eq!(world.post_json("/q/test/new_message", &json).status, 413);
    let part = "x".repeat(10_000);
    let parts: &[(&str, &[u8])] = &[("mesg", part.as_bytes())];
    assert_eq!(world.post_parts("/q/test/new_message", parts).status, 413);
}

/// Sends the bytes of a head and reads the head of the answer.
fn answered(world: &World, head: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut socket = std::net::TcpStream::connect(world.address).expect("connected");
    socket.write_all(head.as_bytes()).expect("sent");
    // It may have answered and closed already.
    let _closed = socket.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn heads_have_a_limit_to_the_byte() {
    const MAX: usize = 8 << 10;
    let world = World::with(|settings| settings.limits.header_bytes_max = MAX);
    for (path, typed) in [("/q.txt", "text/plain"), ("/api/v1/queues", "application/")] {
        let head = |bytes: usize| {
            let begin = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
            let fill = "x".repeat(bytes - begin.len() - 4);
            format!("{begin}{fill}\r\n\r\n")
        };
        for (bytes, status) in [
            (MAX - 1, 200),
            (MAX, 200),
            (MAX + 1, 431),
            (2 * MAX - 1, 431),
        ] {
            let head = head(bytes);
            assert_eq!(head.len(), bytes);
            let answer = answered(&world, &head);
            let begin = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&begin), "{bytes}: {answer}");
            assert!(answer.contains(typed), "{answer}");
        }
        // The head may be as long when a body follows it at once.
        let begin =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\nX-Long: ");
        let fill = "x".repeat(MAX - begin.len() - 4);
        let answer = answered(
            &world,
            &format!("{begin}{fill}\r\n\r\n{}", "b".repeat(9000)),
        );
        assert!(!answer.contains(" 431 "), "{answer}");
    }
}

#[test]
fn a_second_host_is_refused() {
    let world = World::new();
    for (path, typed) in [
        ("/q.txt", "text/plain"),
        ("/healthz", "text/plain"),
        ("/api/v1/queues", "application/problem+json"),
    ] {
        for hosts in [
            "localhost\r\nHost: localhost",
            "localhost\r\nhost: evil.example",
        ] {
            let answer = answered(
                &world,
                &format!("GET {path} HTTP/1.1\r\nHost: {hosts}\r\n\r\n"),
            );
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            assert!(
                answer.contains(typed) && answer.contains("one Host line"),
                "{answer}"
            );
            assert!(
                answer.to_ascii_lowercase().contains("connection: close"),
                "{answer}"
            );
        }
    }
    // A body that is still on its way does not cost the answer.
    let body = "b".repeat(900 << 10);
    let (hosts, len) = ("localhost\r\nHost: localhost", body.len());
    let head = format!("POST /q.txt HTTP/1.1\r\nHost: {hosts}\r\nContent-Length: {len}\r\n\r\n");
    let answer = answered(&world, &(head + &body));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn a_silent_client_is_disconnected() {
    let world = World::with(|settings| {
        settings.limits.timeout = Duration::from_secs(3);
        settings.limits.idle = Duration::from_secs(3);
    });
    world.paused_queue("test");
    // Half a head: closed, with or without a word.
    let mut stream = world.connect();
    stream
        .write_all(b"GET /q.txt HTTP/1.1\r\nho")
        .expect("sent");
    let mut rest = Vec::new();
    let ended = std::io::Read::read_to_end(&mut stream, &mut rest);
    assert!(ended.is_ok(), "{ended:?}");
    // Half a form.
    let mut stream = world.connect();
    let head =
        "POST /q/test/new_message HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nmesg=";
    stream.write_all(head.as_bytes()).expect("sent");
    let reply = Reply::read(&mut stream);
    assert_eq!(reply.status, 408, "{}", reply.text());
}

#[test]
fn rubbish_gets_an_answer_and_the_server_goes_on() {
    let world = World::new();
    world.queue("test", "echo done >&3");
    for bytes in [
        &b"\x00\x01\x02\x03\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /q/test/new_message HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"POST /q/test/new_message HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /q/%ff%fe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"GET /q/test?%ff=%zz&&&=== HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        b"POST /q/test/1/attach/new HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: multipart/form-data; boundary=x\r\ncontent-length: 7\r\n\r\n--y\r\n\r\n",
    ] {
        let mut stream = world.connect();
        stream.write_all(bytes).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("shut");
        let mut answer = Vec::new();
        let _reset = std::io::Read::read_to_end(&mut stream, &mut answer);
        assert!(!answer.windows(4).any(|w| w == b" 500"), "{}", String::from_utf8_lossy(&answer));
    }
    assert_eq!(world.get("/q.txt").status, 200);
}

#[test]
fn many_at_once() {
    let world = World::with(|settings| settings.limits.connections_max = 4);
    world.paused_queue("test");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(world.post("/q/test/new_message", "mesg={}").json()[0], "ok");
                }
            });
        }
    });
    assert!(world.get("/q/test.txt").text().contains("que: 100"));
}

#[test]
fn the_api_names_the_error_of_a_host_that_is_not_ours() {
    let world = World::new();
    let foreign = |path: &str| {
        answered(
            &world,
            &format!("GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
        )
    };
    let answer = foreign("/api/v1/queues");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("\"code\":\"wrong_host\""), "{answer}");
    let page = foreign("/");
    assert!(
        page.starts_with("HTTP/1.1 403 ") && !page.contains("wrong_host"),
        "{page}"
    );
}

/// Reads one reply; the connection stays.
fn head_of_reply(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (String::new(), [0]);
    while !head.ends_with("\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a reply");
        head.push(char::from(byte[0]));
    }
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|len| len.parse().ok()).expect("a length");
    stream.read_exact(&mut vec![0; length]).expect("its body");
    head
}

/// A request that is refused before its body is read: the client sends the rest, and goes on.
#[test]
fn a_refusal_does_not_cut_off_a_client_that_still_sends() {
    let world = World::new();
    let body = vec![b' '; 600_000];
    for (method, path) in [
        ("POST", "/api/v1/queues/%ff/hold"),
        ("POST", "/api/v1/queues/%ff/messages"),
        ("PUT", "/api/v1/schedules/%ff"),
        ("POST", "/api/v1/nothing"),
        ("POST", "/nothing"),
    ] {
        let mut stream = world.connect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let refusal = head_of_reply(&mut stream);
        assert!(refusal.starts_with("HTTP/1.1 4"), "{path}: {refusal}");
        stream.write_all(&body).expect("the server reads it");
        let next = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(next).expect("sent");
        assert_eq!(Reply::read(&mut stream).status, 200, "{path}");
    }
}
