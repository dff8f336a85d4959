//! Users, logins and rights of the real binary, over real sockets.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_auth::{NewToken, Password};
use rustix::process::Signal;

use crate::common::{Client, Data, PATIENCE, Server, Start, await_that, quintet, text};

const LISTEN: &[&str] = &[
    "memcache=127.0.0.1:0",
    "beanstalk=127.0.0.1:0",
    "lineup=127.0.0.1:0",
    "jobqueue=127.0.0.1:0",
    "http=127.0.0.1:0",
];

/// Ann may work, Bob everything; each client of jobqueue is Cyd, who may put.
fn users(ann: &str) -> String {
    let hash = Password::of_cost(b"hush", [1; 16], 8, 1).expect("a hash");
    let token = NewToken::of([2; 32]).id.show();
    format!(
        "[[listen]]\nprotocol = 'jobqueue'\nuser = 'cyd'\n\
         [[user]]\nname = '{ann}'\npassword = '{}'\ngroups = ['workers']\n\
         [[user]]\nname = 'bob'\ntokens = ['{token} 2999-01-01T00:00:00Z']\n\
         [[user]]\nname = 'cyd'\n\
         [[grant]]\ngroup = 'workers'\nqueues = ['work*', 'lineup']\n\
         rights = ['put', 'take', 'settle']\n\
         [[grant]]\nuser = 'bob'\nqueues = ['*']\n\
         rights = ['put', 'take', 'settle', 'peek', 'admin', 'server']\n\
         [[grant]]\nuser = 'cyd'\nqueues = ['mails']\nrights = ['put']\n\
         [[user]]\nname = 'scraper'\ntokens = ['{}']\n\
         [[grant]]\nuser = 'scraper'\nrights = ['metrics']\n",
        hash.as_str(),
        NewToken::of([3; 32]).id.show()
    )
}

fn token() -> String {
    NewToken::of([2; 32]).text
}

fn start() -> Server {
    Start::of(&users("ann")).listen(LISTEN).serve()
}

/// Sends this and receives that.
#[track_caller]
fn says(client: &mut Client, words: &str, answer: &str) {
    client.ask(words.as_bytes(), answer.as_bytes());
}

fn memcache(server: &Server) -> Client {
    let mut client = server.client_of("memcache");
    says(&mut client, "set x 0 0 8\r\nann hush\r\n", "STORED\r\n");
    client
}

/// A server that refuses a login answers: a second try would only make the address wait.
#[test]
fn wait_tries_a_wrong_login_once() {
    let server = start();
    let mut wait = quintet(&["wait", "--user", "bob", "--data"]);
    let waited = wait
        .arg(&server.data)
        .env("QUINTET_TOKEN", "wrong")
        .output();
    let waited = waited.unwrap();
    assert!(waited.status.success(), "{}", text(&waited.stderr));
    assert_eq!(server.number("logins_failed"), 1);
}

#[test]
fn memcache_logs_in_with_a_password() {
    let server = start();
    let mut client = server.client_of("memcache");
    let refused = "CLIENT_ERROR unauthenticated\r\n";
    says(&mut client, "get work\r\nversion\r\n", &refused.repeat(2));
    let wrong = "CLIENT_ERROR authentication failure\r\n";
    says(&mut client, "set x 0 0 9\r\nann wrong\r\n", wrong);
    says(&mut client, "set x 0 0 2\r\n\u{fe}\r\n", wrong);
    // What follows in the same packet is decided as hers.
    let login = "set x 0 0 8\r\nann hush\r\nset work 0 0 2\r\nhi\r\nget work\r\n";
    let answer = "STORED\r\nSTORED\r\nVALUE work 0 2\r\nhi\r\nEND\r\n";
    says(&mut client, login, answer);
    for (line, data) in [
        ("set other 0 0 2\r\n", "hi\r\n"),
        ("get other\r\n", ""),
        ("get work/peek\r\n", ""),
        ("flush work\r\n", ""),
        ("flush_all\r\n", ""),
        ("stats\r\n", ""),
        ("dump_config\r\n", ""),
        ("status quiescent\r\n", ""),
        ("reload\r\n", ""),
    ] {
        let mut client = memcache(&server);
        says(
            &mut client,
            &format!("{line}{data}"),
            "CLIENT_ERROR not permitted\r\n",
        );
    }
    // Such a reload counts once.
    let before = server.number("commands_not_permitted");
    let mut client = memcache(&server);
    says(&mut client, "reload\r\n", "CLIENT_ERROR not permitted\r\n");
    assert_eq!(server.number("commands_not_permitted"), before + 1);
    // Nobody is shown what the hash is.
    let mut bob = server.client_of("memcache");
    let word = format!("bob {}", token());
    says(
        &mut bob,
        &format!("set x 0 0 {}\r\n{word}\r\n", word.len()),
        "STORED\r\n",
    );
    bob.send(b"dump_config\r\n");
    let config = text(&bob.until(b"END\r\n"));
    assert!(
        config.contains("name = \"ann\"") && !config.contains("$argon2"),
        "{config}"
    );
    server.stop();
}

#[test]
fn beanstalk_logs_in_with_a_token_and_acts_by_id() {
    let server = start();
    let mut ann = server.client_of("beanstalk");
    says(&mut ann, "put 0 0 9 2\r\nhi\r\n", "NOT_PERMITTED\r\n");
    says(&mut ann, "auth ann nope\r\n", "NOT_PERMITTED\r\n");
    says(&mut ann, "auth ann hush\r\n", "OK\r\n");
    says(&mut ann, "use secret\r\n", "NOT_PERMITTED\r\n");
    says(&mut ann, "use work\r\n", "USING work\r\n");
    says(&mut ann, "watch work\r\n", "WATCHING 2\r\n");
    says(&mut ann, "ignore default\r\n", "WATCHING 1\r\n");
    says(&mut ann, "put 0 0 9 2\r\nhi\r\n", "INSERTED 1\r\n");

    let mut bob = server.client_of("beanstalk");
    says(&mut bob, &format!("auth bob {}\r\n", token()), "OK\r\n");
    says(&mut bob, "use secret\r\n", "USING secret\r\n");
    says(&mut bob, "put 0 0 9 6\r\nsecret\r\n", "INSERTED 2\r\n");
    says(&mut bob, "peek 2\r\n", "FOUND 2 6\r\nsecret\r\n");
    // By its id, the queue is known in the shard alone.
    for line in [
        "peek 2",
        "delete 2",
        "reserve-job 2",
        "kick-job 2",
        "stats-job 2",
        "peek 1",
    ] {
        says(&mut ann, &format!("{line}\r\n"), "NOT_PERMITTED\r\n");
    }
    says(&mut ann, "stats-tube secret\r\n", "NOT_PERMITTED\r\n");
    says(
        &mut ann,
        "list-tubes\r\n",
        "OK 21\r\n---\n- default\n- work\n\r\n",
    );
    says(&mut ann, "reserve\r\n", "RESERVED 1 2\r\nhi\r\n");
    says(&mut ann, "delete 1\r\n", "DELETED\r\n");
    says(&mut bob, "delete 2\r\n", "DELETED\r\n");
    server.stop();
}

#[test]
fn each_protocol_has_its_way() {
    let server = start();
    let mut lineup = server.client_of("lineup");
    says(&mut lineup, "POP\r\n", "-NOT_PERMITTED\r\n");
    says(&mut lineup, "AUTH ann hush\r\n", "+OK\r\n");
    // Whoever comes to this listener is Cyd.
    let mut jobs = server.client_of("jobqueue");
    jobs.ask(
        b"CONNECT\0ADD\0mails\0\x01\0\0\0\x3c\0\0\0\x01\0\0\0x",
        b"OK\0ADDED\0",
    );
    let code = BASE64_STANDARD.encode("ann:hush");
    let bearer = format!("Bearer {}", token());
    let scraper = format!("Bearer {}", NewToken::of([3; 32]).text);
    for (path, login, status) in [
        ("/q.txt", None, 401),
        ("/q.txt", Some("Basic !".to_owned()), 401),
        ("/q.txt", Some(format!("Basic {code}")), 200),
        ("/q/mails.json", Some(format!("Basic {code}")), 403),
        ("/metrics", Some(format!("Basic {code}")), 403),
        ("/q/mails.json", Some(bearer.clone()), 200),
        ("/metrics", Some(bearer), 200),
        ("/metrics", Some(scraper.clone()), 200),
        ("/q/mails.json", Some(scraper.clone()), 403),
        ("/new_queue", Some(scraper), 403),
        ("/q.txt", Some("Bearer qt_x".to_owned()), 401),
        ("/healthz", None, 200),
    ] {
        let login = login.map_or(String::new(), |login| format!("authorization: {login}\r\n"));
        let reply = server.ask(&format!("GET {path}"), &login, "");
        assert_eq!(reply.status, status, "{path}");
    }
    // The operator needs none of it.
    let queues = server.run(&["queues"]);
    assert!(queues.status.success() && text(&queues.stdout).contains("mails"));
    server.stop();
}

#[test]
fn failures_slow_only_the_failing_address() {
    let server = start();
    let mut client = server.client_of("memcache");
    let began = std::time::Instant::now();
    loop {
        client.send(b"set x 0 0 9\r\nann wrong\r\n");
        let answer = text(&client.until(b"\r\n"));
        match answer.as_str() {
            "CLIENT_ERROR authentication failure\r\n" => {}
            "CLIENT_ERROR too many failed logins, try again later\r\n" => break,
            other => panic!("{other}"),
        }
        assert!(began.elapsed() < PATIENCE, "it may go on for ever");
    }
    let metrics = text(&server.run(&["metrics"]).stdout);
    assert!(
        !metrics.contains("quintet_logins_failed_total 0"),
        "{metrics}"
    );
    assert!(
        !metrics.contains("quintet_logins_throttled_total 0"),
        "{metrics}"
    );
    server.stop();
}

#[test]
fn a_user_that_loses_its_rights_keeps_its_connection() {
    let server = start();
    let mut worker = memcache(&server);
    worker.put("work", b"one");
    let mut waits = server.client_of("beanstalk");
    says(
        &mut waits,
        "auth ann hush\r\nwatch work2\r\nignore default\r\n",
        "OK\r\nWATCHING 2\r\nWATCHING 1\r\n",
    );
    waits.send(b"reserve\r\n");
    // A configuration that is wrong changes nothing.
    server.configure("[[grant]]\nuser = 'zoe'\nrights = ['put']\n");
    server.signal(Signal::HUP);
    await_audit(&server, "reloaded - failed");
    worker.put("work", b"two");
    let elsewhere = "queues = ['elsewhere']";
    server.configure(&users("ann").replace("queues = ['work*', 'lineup']", elsewhere));
    server.signal(Signal::HUP);
    await_audit(&server, "reloaded - ok");
    says(
        &mut worker,
        "set work 0 0 5\r\nthree\r\n",
        "CLIENT_ERROR not permitted\r\n",
    );
    // What comes for one who waits goes to somebody who may.
    let mut bob = server.client_of("beanstalk");
    let login = format!("auth bob {}\r\nuse work2\r\nput 0 0 9 2\r\nhi\r\n", token());
    says(&mut bob, &login, "OK\r\nUSING work2\r\nINSERTED ");
    bob.until(b"\r\n");
    waits.expect_end();
    says(
        &mut bob,
        "watch work2\r\nreserve\r\n",
        "WATCHING 2\r\nRESERVED ",
    );
    server.stop();
}

/// A configuration takes effect.
#[track_caller]
fn reload(server: &Server, text: &str) {
    server.configure(text);
    let reloads = || {
        let audit = server.printed(&["audit", "--since", "1h"]);
        audit.matches("reloaded - ok").count()
    };
    let before = reloads();
    server.signal(Signal::HUP);
    await_that("it is reloaded", || reloads() > before);
}

/// Connections of somebody with this token: a wait of beanstalk, an idle one of lineup, and of HTTP
/// an idle one, a poll, an event stream, and one of a session of the console.
fn all_ways(server: &Server, token: &str) -> Vec<(&'static str, Client)> {
    let http = |what: &str, login: &str, body: &str| {
        let mut client = server.client_of("http");
        let head = format!("{what} HTTP/1.1\r\nhost: localhost\r\n{login}");
        let len = body.len();
        client.send(format!("{head}content-length: {len}\r\n\r\n{body}").as_bytes());
        client
    };
    let mut waits = server.client_of("beanstalk");
    says(&mut waits, &format!("auth bob {token}\r\n"), "OK\r\n");
    waits.send(b"reserve\r\n");
    let mut idle = server.client_of("lineup");
    says(&mut idle, &format!("AUTH bob {token}\r\n"), "+OK\r\n");
    let bearer = format!("authorization: Bearer {token}\r\n");
    let mut kept = http("GET /api/v1/queues", &bearer, "");
    kept.until(b"\r\n\r\n");
    let mut events = http("GET /api/v1/events", &bearer, "");
    events.until(b"event: queues\n");
    let json = format!("{bearer}content-type: application/json\r\n");
    let poll = http(
        "POST /api/v1/queues/work/reserve",
        &json,
        "{\"wait_ms\": 60000}",
    );
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let mut session = http("POST /login", form, &format!("name=&secret={token}"));
    let answer = text(&session.until(b"\r\n\r\n"));
    let cookie = answer.split_once("set-cookie: ").expect(&answer).1;
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().expect("one"));
    let mut console = http("GET /api/v1/events", &cookie, "");
    console.until(b"event: queues\n");
    server.await_number("waiters", |waiters| waiters == 2);
    vec![
        ("beanstalk", waits),
        ("lineup", idle),
        ("keep-alive", kept),
        ("events", events),
        ("poll", poll),
        ("console", console),
    ]
}

/// The server closes these connections. It may send something before.
#[track_caller]
fn all_end(server: &Server, clients: Vec<(&'static str, Client)>) {
    for (way, mut client) in clients {
        let mut last = Vec::new();
        loop {
            let more = client.some();
            if more.is_empty() {
                break;
            }
            last = more;
        }
        assert!(!text(&last).contains("RESERVED"), "{way}: {}", text(&last));
    }
    let audit = || server.printed(&["audit", "--since", "1h"]);
    await_that("a line for each", || {
        let ends = audit()
            .lines()
            .filter(|line| line.contains("login ended"))
            .count();
        ends >= 6
    });
}

#[test]
fn connections_of_an_expired_token_end() {
    let server = start();
    let mut ann = memcache(&server);
    let clients = all_ways(&server, &token());
    let soon = chrono::Utc::now() + chrono::TimeDelta::seconds(2);
    let soon = soon.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    reload(
        &server,
        &users("ann").replace("2999-01-01T00:00:00Z", &soon),
    );
    all_end(&server, clients);
    ann.put("work", b"goes on");
    server.stop();
}

#[test]
fn connections_of_a_revoked_token_end() {
    let server = start();
    let mut ann = memcache(&server);
    let clients = all_ways(&server, &token());
    let id = |byte: u8| NewToken::of([byte; 32]).id.show();
    reload(&server, &users("ann").replace(&id(2), &id(4)));
    all_end(&server, clients);
    ann.put("work", b"goes on");
    server.stop();
}

#[test]
fn connections_end_with_a_password_and_with_their_user() {
    let server = start();
    let mut ann = memcache(&server);
    let mut bob = server.client_of("lineup");
    says(&mut bob, &format!("AUTH bob {}\r\n", token()), "+OK\r\n");
    let other = Password::of_cost(b"other", [1; 16], 8, 1).expect("a hash");
    let hush = Password::of_cost(b"hush", [1; 16], 8, 1).expect("a hash");
    let changed = users("ann").replace(hush.as_str(), other.as_str());
    reload(&server, &changed);
    ann.expect_end();
    let mut ann = server.client_of("memcache");
    says(&mut ann, "set x 0 0 9\r\nann other\r\n", "STORED\r\n");
    reload(&server, &users("zoe"));
    ann.expect_end();
    says(&mut bob, "PING\r\n", "+PONG\r\n");
    await_audit(&server, "login ended");
    server.stop();
}

#[track_caller]
fn await_audit(server: &Server, line: &str) {
    let audit = || server.printed(&["audit", "--since", "1h"]);
    await_that(line, || audit().contains(line));
}

#[test]
fn operations_are_in_the_audit() {
    let server = start();
    let _ann = memcache(&server);
    let mut bob = server.client_of("memcache");
    let word = format!("bob {}", token());
    let login = format!("set x 0 0 {}\r\n{word}\r\nflush work\r\n", word.len());
    says(&mut bob, &login, "STORED\r\nEND\r\n");
    let dropped = server.run(&["drop", "nothing*"]);
    assert!(dropped.status.success(), "{dropped:?}");
    let audit = text(&server.run(&["audit"]).stdout);
    for line in [
        "ann 127.0.0.1 login - ok",
        "bob 127.0.0.1 login - ok",
        "bob 127.0.0.1 flush work ok",
        " - http DELETE /api/v1/queues of nothing* 200",
    ] {
        assert!(audit.contains(line), "{line}: {audit}");
    }
    assert!(!audit.contains("hush") && !audit.contains("qt_"), "{audit}");
    let json = text(&server.run(&["audit", "--since", "1h", "--json"]).stdout);
    let lines = json.lines().map(serde_json::from_str::<serde_json::Value>);
    assert!(lines.clone().count() >= 4 && lines.into_iter().all(|line| line.is_ok()));
    server.stop();
}

#[test]
fn a_start_without_logins_beyond_loopback_is_refused() {
    let data = Data::fresh();
    for protocol in [
        "memcache",
        "lineup",
        "jobqueue",
        "beanstalk",
        "pinpriq",
        "http",
    ] {
        let refused = quintet(&[
            "serve",
            "--listen",
            &format!("{protocol}=0.0.0.0:0"),
            "--data",
        ])
        .arg(&data)
        .output()
        .expect("it ends");
        let why = text(&refused.stderr);
        assert!(
            !refused.status.success() && why.contains("insecure"),
            "{why}"
        );
    }
    let open = ["memcache=0.0.0.0:0,insecure"];
    let server = Start::default().listen(&open).serve_at(&data);
    let port = server
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    Client::tcp(&format!("127.0.0.1:{port}")).put("work", b"hi");
    server.stop();
}

#[test]
fn passwords_and_tokens_are_made_and_pasted() {
    use std::io::Write as _;
    let mut child = quintet(&["passwd", "ann"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"hush\n").expect("written");
    drop(stdin);
    let made = child.wait_with_output().expect("it ends");
    let made = text(&made.stdout);
    let token = quintet(&["token", "ann", "--days", "1"])
        .output()
        .expect("it runs");
    let token = text(&token.stdout);
    let (secret, line) = token.split_once('\n').expect("lines");
    let grant = "[[grant]]\nuser = 'ann'\nqueues = ['*']\nrights = ['put']\n";
    let config = format!("{made}{line}{grant}");
    let server = Start::of(&config).serve();
    for word in ["ann hush".to_owned(), format!("ann {secret}")] {
        let login = format!("set x 0 0 {}\r\n{word}\r\n", word.len());
        says(&mut server.client(), &login, "STORED\r\n");
    }
    server.stop();
}
