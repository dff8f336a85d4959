//! The console over the real binary: who may see and do what.

use quintet_auth::{NewToken, Password};

use crate::common::{
    Client, Connection, Data, PATIENCE, Server, Start, await_that, http, page, text, whole_page,
};

/// Sends a form with the token of the page at `from`; answers the status.
fn send(server: &Server, from: &str, path: &str) -> u16 {
    let (_, shown) = page(server, from);
    let (_, rest) = shown.split_once("name=\"csrf\" value=\"").expect("a form");
    let (token, _) = rest.split_once('"').expect("its end");
    server
        .ask(&format!("POST {path}"), http::FORM, format!("csrf={token}"))
        .status
}

#[test]
fn a_requester_sees_and_does_only_what_was_granted() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek', 'take', 'settle']\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    // The operator's own way in.
    let put = |queue: &str, body: &str| text(&server.run(&["put", queue, body]).stdout);
    let (seen, hidden) = (put("mine", "open"), put("theirs", "unseen"));
    let (seen, hidden) = (seen.trim(), hidden.trim());

    let (status, overview) = page(&server, "/");
    assert_eq!(status, 200);
    assert!(overview.contains("/queues/mine\"") && !overview.contains("theirs"));
    let (status, list) = page(&server, "/queues/mine");
    assert!(status == 200 && list.contains("open"), "{list}");
    assert!(list.contains("/put?queue=mine\""), "{list}");
    assert!(
        !list.contains("ask/drop") && !list.contains("do/pause"),
        "{list}"
    );
    // Nothing that could be done to a queue, so none is to be selected.
    assert!(!overview.contains("name=\"queue\""), "{overview}");
    let (status, bulk) = page(&server, "/bulk/purge?queue=mine");
    assert!(
        status == 200 && bulk.contains("you have no right to do this"),
        "{bulk}"
    );
    assert!(!bulk.contains("name=\"token\""), "{bulk}");
    for path in [
        "/queues/theirs",
        "/queues/theirs/ask/purge",
        "/queues/mine/ask/purge",
        "/queues/mine/ask/drop",
        "/connections",
        &format!("/messages/{hidden}"),
        &format!("/messages/{hidden}/body"),
        &format!("/messages/{hidden}/log"),
        "/bulk/pause?queue=theirs",
    ] {
        let (status, shown) = page(&server, path);
        assert_eq!(status, 403, "{path}: {shown}");
        assert!(!shown.contains("unseen"), "{path}: {shown}");
    }
    // Whether it is there is not told either.
    let (_, found) = page(&server, "/find?q=theirs");
    assert!(!found.contains("queues/theirs"), "{found}");

    for (path, status) in [
        ("/queues/mine/do/pause".to_owned(), 403),
        ("/queues/theirs/do/pause".to_owned(), 403),
        (format!("/messages/{hidden}/do/bury"), 403),
        (format!("/messages/{hidden}/do/retry"), 403),
        (format!("/messages/{seen}/do/bury"), 303),
    ] {
        assert_eq!(send(&server, "/put", &path), status, "{path}");
    }
    let left = text(&server.run(&["queues"]).stdout);
    let ready = |queue: &str| {
        let mut rows = left.lines().map(|row| row.split_whitespace());
        let row = rows.find_map(|mut row| (row.next() == Some(queue)).then(|| row.next()));
        row.flatten().map(str::to_owned)
    };
    assert_eq!(ready("theirs").as_deref(), Some("1"), "{left}");
    assert_ne!(ready("mine").as_deref(), Some("1"), "{left}");
}

/// Ann may do everything and logs in with a password, Bob with a token.
fn with_logins(password: &str) -> String {
    let hash = Password::of_cost(password.as_bytes(), [1; 16], 8, 1).expect("a hash");
    let token = NewToken::of([2; 32]).id.show();
    format!(
        "[[user]]\nname = 'ann'\npassword = '{}'\n\
         [[user]]\nname = 'bob'\ntokens = ['{token} 2999-01-01T00:00:00Z']\n\
         [[grant]]\nuser = 'ann'\nqueues = ['*']\nrights = ['put', 'peek', 'admin', 'server']\n\
         [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n",
        hash.as_str(),
    )
}

/// A form as a browser sends it; answers the whole reply.
fn post(server: &Server, path: &str, headers: &str, body: &str) -> String {
    let headers = format!("{headers}{}", http::FORM);
    let reply = server.ask(&format!("POST {path}"), &headers, body);
    format!("{}\r\n\r\n{}", reply.head, reply.body)
}

/// Logs in; answers where it leads, and the cookie.
fn log_in(server: &Server, form: &str) -> (String, String) {
    let reply = post(server, "/login", "", form);
    let head = |name: &str| {
        let line = reply.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} {reply}")).to_owned()
    };
    let cookie = head("set-cookie: ");
    let (cookie, _) = cookie.split_once(';').expect("attributes");
    (head("location: "), format!("cookie: {cookie}\r\n"))
}

const HTML: &str = "accept: text/html,*/*\r\n";

#[test]
fn a_start_says_where_the_console_is_and_whether_everybody_can_use_it() {
    let open = Start::default().listen(&["http=0"]).serve();
    let closed = Start::of(&with_logins("hush")).serve_as_configured();
    let says = |server: &Server, line: &str| server.lines.iter().any(|said| said == line);
    for (server, is_open) in [(&open, true), (&closed, false)] {
        let console = format!("console: http://{}/", server.address_of("http"));
        assert!(says(server, &console), "{:?}", server.lines);
        let line = "no users are configured: every account on this machine can use this server";
        assert_eq!(says(server, line), is_open, "{:?}", server.lines);
    }
}

#[test]
fn a_browser_logs_in_and_out() {
    let config = with_logins("hush");
    let server = Start::of(&config).serve_as_configured();
    assert!(server.run(&["put", "mine", "body"]).status.success());
    let get = |path: &str, headers: &str| whole_page(&server, path, headers);

    // A browser is led to the page; tools, RQ's clients and the API are told what they know.
    let led = get("/queues/mine?state=ready", HTML);
    assert!(
        led.starts_with("HTTP/1.1 303") && led.contains("location: /login?next=%2Fqueues%2Fmine"),
        "{led}"
    );
    for (path, headers) in [("/", ""), ("/q", HTML), ("/api/v1/queues", HTML)] {
        let response = get(path, headers);
        assert!(response.starts_with("HTTP/1.1 401"), "{path} {response}");
    }
    let login = get("/login", HTML);
    assert!(login.contains("name=\"secret\""), "{login}");
    let (_, sheet) = login
        .split_once("rel=\"stylesheet\" href=\"")
        .expect("a sheet");
    let sheet = get(sheet.split_once('"').expect("its end").0, "");
    assert!(sheet.starts_with("HTTP/1.1 200"), "{sheet}");
    // Another site's page cannot log anybody in.
    let form = "name=ann&secret=hush&next=%2Fqueues%2Fmine";
    let other = "origin: http://evil.example\r\n";
    assert!(post(&server, "/login", other, form).starts_with("HTTP/1.1 403"));

    let (leads, ann) = log_in(&server, form);
    assert_eq!(leads, "/queues/mine");
    let shown = get("/queues/mine", &ann);
    assert!(
        shown.contains("ann</summary>") && shown.contains("do/pause"),
        "{shown}"
    );
    assert!(get("/api/v1/queues", &ann).starts_with("HTTP/1.1 200"));
    let (_, again) = log_in(&server, form);
    let (_, bob) = log_in(&server, &format!("secret={}", NewToken::of([2; 32]).text));
    assert!(get("/queues/mine", &bob).starts_with("HTTP/1.1 403"));

    let token = |page: &str| {
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split_once('"').expect("its end").0.to_owned()
    };
    let csrf = token(&shown);
    let out = |cookie: &str, form: &str| post(&server, "/logout", cookie, form);
    assert!(out(&ann, "csrf=00").starts_with("HTTP/1.1 403"));
    assert!(get("/", &ann).starts_with("HTTP/1.1 200"));
    let response = out(&ann, &format!("csrf={csrf}"));
    assert!(
        response.contains("location: /login") && response.contains("Max-Age=0"),
        "{response}"
    );
    assert!(get("/", &ann).starts_with("HTTP/1.1 401"));
    assert!(get("/", &again).starts_with("HTTP/1.1 200"));
    let (_, third) = log_in(&server, form);
    out(&third, &format!("csrf={csrf}&everywhere=1"));
    assert!(get("/", &again).starts_with("HTTP/1.1 401"));
    assert!(get("/", &bob).starts_with("HTTP/1.1 200"));

    // Whoever fails is slowed, so nothing is asked after these.
    for wrong in [
        "name=ann&secret=wrong",
        "name=nobody&secret=hush",
        "secret=hush",
        "",
    ] {
        let response = post(&server, "/login", "", wrong);
        let refused = response.starts_with("HTTP/1.1 403") || response.starts_with("HTTP/1.1 503");
        assert!(
            refused && !response.contains("set-cookie"),
            "{wrong} {response}"
        );
    }
}

#[test]
fn a_session_ends_with_its_user_s_password() {
    let config = with_logins("hush");
    let server = Start::of(&config).serve_as_configured();
    let (_, ann) = log_in(&server, "name=ann&secret=hush");
    let get = || whole_page(&server, "/", &ann);
    assert!(get().starts_with("HTTP/1.1 200"));
    server.configure(&with_logins("other"));
    server.signal(rustix::process::Signal::HUP);
    await_that("the session goes on", || {
        let mut client = server.client_of("http");
        client.send(format!("GET / HTTP/1.1\r\nhost: localhost\r\n{ann}\r\n").as_bytes());
        // The new configuration closes a connection whose request it meets.
        client.some().starts_with(b"HTTP/1.1 401")
    });
    log_in(&server, "name=ann&secret=other");
}

#[test]
fn event_streams_of_the_console_end_with_their_session() {
    let config = with_logins("hush") + "max_sessions = 3\n";
    let server = Start::of(&config).serve_as_configured();
    let form = "name=ann&secret=hush";
    let stream = |cookie: &str| {
        let mut stream = server.client_of("http");
        let head = "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n";
        stream.send(format!("{head}{cookie}\r\n").as_bytes());
        stream.until(b"event: queues\n");
        stream
    };
    // Events go on coming for as long as it is there.
    let ends = |mut stream: Client| {
        let began = std::time::Instant::now();
        while !stream.some().is_empty() {
            assert!(
                began.elapsed() < crate::common::PATIENCE,
                "the stream goes on"
            );
        }
    };
    let logins = [(); 3].map(|()| log_in(&server, form).1);
    let [first, second, third] = logins.each_ref().map(|cookie| stream(cookie));
    let shown = whole_page(&server, "/", &logins[1]);
    let (_, csrf) = shown.split_once("name=\"csrf\" value=\"").expect("a form");
    let (csrf, _) = csrf.split_once('"').expect("its end");
    let response = post(&server, "/logout", &logins[1], &format!("csrf={csrf}"));
    assert!(response.contains("location: /login"), "{response}");
    ends(second);
    // One more than there may be ends the oldest.
    let [_, fifth] = [(); 2].map(|()| log_in(&server, form).1);
    ends(first);
    let fifth = stream(&fifth);
    post(
        &server,
        "/logout",
        &logins[2],
        &format!("csrf={csrf}&everywhere=1"),
    );
    ends(third);
    ends(fifth);
    let audit = server.printed(&["audit", "--since", "1h"]);
    assert!(audit.contains("ann 127.0.0.1 http login ended"), "{audit}");
}

fn says(client: &mut Client, line: &str, reply: &str) {
    client.ask(format!("{line}\r\n").as_bytes(), reply.as_bytes());
}

#[test]
fn the_console_lists_workers_and_quiets_or_ends_them() {
    let config = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
                  [[listen]]\nprotocol = 'faktory'\naddress = '127.0.0.1:0'\n";
    let server = Start::of(config).serve_as_configured();
    let (status, none) = page(&server, "/workers");
    assert!(
        status == 200 && none.contains("No worker is known"),
        "{none}"
    );
    let mut worker = server.client_of("faktory");
    worker.expect(b"+HI {\"v\":2}\r\n");
    let hello = r#"HELLO {"v":2,"wid":"w/1<","hostname":"box","pid":7,"labels":["a","b"]}"#;
    says(&mut worker, hello, "+OK\r\n");
    let push = r#"PUSH {"jid":"job00001","jobtype":"T","args":[],"queue":"default"}"#;
    says(&mut worker, push, "+OK\r\n");
    worker.send(b"FETCH default\r\n");
    let head = text(&worker.until(b"\r\n"));
    let len = head.trim_end().strip_prefix('$').expect("a job");
    worker.exact(len.parse::<usize>().expect("a length") + 2);
    let heartbeat = r#"BEAT {"wid":"w/1<","rss_kb":2048}"#;
    says(&mut worker, heartbeat, "+OK\r\n");

    let (_, shown) = page(&server, "/workers");
    // What is more than a plain name stands in addresses in hex.
    let part = "~772f313c";
    assert!(
        shown.contains("w/1&#60;") && shown.contains("box, process 7"),
        "{shown}"
    );
    let row = shown
        .split_once(&format!("data-f=\"w/{part}\""))
        .expect("its row")
        .1;
    for cell in [
        "<span class=\"sub\">a, b</span>",
        "<span class=\"tag good\">running</span>",
        "data-l=\"jobs\"><data value=\"1\">1</data>",
        "data-l=\"connections\"><data value=\"1\">1</data>",
        "data-l=\"memory\">2.00 MiB<",
    ] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
    // It is asked first, with what it has.
    let ask = format!("/workers/{part}/ask/quiet");
    let (status, question) = page(&server, &ask);
    assert!(
        status == 200 && question.contains("Ask the worker to be quiet, with 1 job<"),
        "{question}"
    );
    says(&mut worker, heartbeat, "+OK\r\n");
    assert_eq!(
        send(&server, &ask, &format!("/workers/{part}/do/quiet")),
        303
    );
    says(&mut worker, heartbeat, "$17\r\n{\"state\":\"quiet\"}\r\n");
    let (_, shown) = page(&server, "/workers");
    assert!(
        !shown.contains("/ask/quiet") && shown.contains("/ask/terminate"),
        "a request that was sent is not offered again: {shown}"
    );
    let ask = format!("/workers/{part}/ask/terminate");
    assert_eq!(
        send(&server, &ask, &format!("/workers/{part}/do/terminate")),
        303
    );
    says(
        &mut worker,
        heartbeat,
        "$21\r\n{\"state\":\"terminate\"}\r\n",
    );
    for path in [
        "/workers/none/ask/quiet",
        &format!("/workers/{part}/ask/explode"),
    ] {
        assert_eq!(page(&server, path).0, 404, "{path}");
    }
    assert!(server.stop().success());
}

#[test]
fn workers_and_batches_need_rights() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                  rights = ['put', 'peek']\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let make = |queue: &str| {
        let made = server.run(&["batch", "new", "--success", &format!("{queue}=all done")]);
        text(&made.stdout).trim().to_owned()
    };
    let (mine, theirs) = (make("mine"), make("theirs"));
    let (status, list) = page(&server, "/batches");
    assert!(
        status == 200 && list.contains(&mine) && !list.contains(&theirs),
        "{list}"
    );
    assert!(!list.contains("href=\"/workers\""), "{list}");
    for path in [
        "/workers".to_owned(),
        "/workers/w1/ask/quiet".to_owned(),
        format!("/batches/{theirs}"),
        format!("/batches/{theirs}/ask/forget"),
    ] {
        assert_eq!(page(&server, &path).0, 403, "{path}");
    }
    let from = format!("/batches/{mine}");
    for (path, status) in [
        ("/workers/w1/do/quiet".to_owned(), 403),
        (format!("/batches/{theirs}/do/commit"), 403),
        (format!("/batches/{theirs}/do/forget"), 403),
        (format!("/batches/{mine}/do/commit"), 303),
    ] {
        assert_eq!(send(&server, &from, &path), status, "{path}");
    }
    let shown = text(&server.run(&["batch", "--json"]).stdout);
    let open = |id: &str| {
        let mut lines = shown.lines();
        let line = lines.find(|line| line.contains(id)).expect("it is there");
        line.contains("\"open\":true")
    };
    assert!(open(&theirs) && !open(&mine), "{shown}");
    let audit = text(&server.run(&["audit"]).stdout);
    for act in [
        format!("POST /batches/{mine}/do/commit"),
        format!("POST /batches/{theirs}/do/forget"),
        "POST /workers/w1/do/quiet".to_owned(),
    ] {
        assert!(audit.contains(&act), "{audit}");
    }
    assert!(server.stop().success());
}

#[test]
fn a_queue_of_sqs_is_shown_in_the_words_of_sqs() {
    let config = "[[queue]]\nname = 'orders.fifo'\ngroups = 'ordered'\nattempts_max = 4\n\
                  dead_letter = 'dead.fifo'\ntags = { team = 'blue' }\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";
    let with = format!("{config}[[listen]]\nprotocol = 'sqs'\naddress = '127.0.0.1:0'\n");
    let data = Data::fresh();
    let begin = |config: &str| Server::start_as_configured(&data, Start::of(config));
    let server = begin(&with);
    for (queue, key) in [("orders.fifo", "a"), ("orders.fifo", "b"), ("a b", "c")] {
        let put = server.run(&["put", queue, "x", "--with-key", key]);
        assert!(put.status.success(), "{}", text(&put.stderr));
    }
    let (_, shown) = page(&server, "/queues/orders.fifo");
    let response = shown
        .split_once("id=\"elsewhere\"")
        .expect("the words of SQS")
        .1;
    let response = response.split("</details>").next().expect("its end");
    let url = format!(
        "http://{}/000000000000/orders.fifo",
        server.address_of("sqs")
    );
    for (word, text) in [
        ("URL", url.as_str()),
        ("ApproximateNumberOfMessages (visible)", "2"),
        ("ApproximateNumberOfMessagesNotVisible (in flight)", "0"),
        ("ApproximateNumberOfMessagesDelayed", "0"),
        ("DeduplicationScope", "queue"),
    ] {
        let cell = format!("data-f=\"else/{word}\">{text}</dd>");
        assert!(response.contains(&cell), "{cell}: {response}");
    }
    assert!(
        response.contains("FIFO queue") && response.contains("maxReceiveCount 4"),
        "{response}"
    );
    // Its keys mean something, whoever put them.
    assert!(
        shown.contains("<dt>Message groups</dt><dd>2 (ordered)</dd>"),
        "{shown}"
    );
    // A name that SQS does not have.
    let (_, other) = page(&server, "/queues/~612062");
    assert!(
        !other.contains("id=\"elsewhere\"") && !other.contains("<dt>Message groups</dt>"),
        "{other}"
    );
    // What SQS made is marked in the list, and nothing else.
    let (_, list) = page(&server, "/");
    assert!(!list.contains("SQS"), "{list}");
    let connection = Connection::tcp(server.address_of("sqs"), PATIENCE).expect("connected");
    let create =
        "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.CreateQueue\r\n";
    let body = br#"{"QueueName": "made.fifo", "Attributes": {"FifoQueue": "true"}}"#;
    let made = http::ask(connection, "POST /", create, body).expect("a reply");
    assert_eq!(made.status, 200, "{}", made.body);
    let (_, list) = page(&server, "/");
    assert!(
        list.matches("<span class=\"tag\">SQS FIFO</span>").count() == 1
            && list.contains("ApproximateNumberOfMessagesNotVisible"),
        "{list}"
    );
    assert!(server.stop().success());
    // Without a listener nothing is said.
    let server = begin(config);
    let (_, shown) = page(&server, "/queues/orders.fifo");
    assert!(!shown.contains("id=\"elsewhere\""), "{shown}");
    let (_, list) = page(&server, "/");
    assert!(!list.contains("SQS"), "{list}");
    assert!(server.stop().success());
}
