//! Lua hooks in the real binary, from each protocol.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Client, Server, Start, await_that, http, text};
use rustix::process::Signal;

const LISTEN: &[&str] = &[
    "memcache=127.0.0.1:0",
    "lineup=127.0.0.1:0",
    "beanstalk=127.0.0.1:0",
    "jobqueue=127.0.0.1:0",
    "pinpriq=127.0.0.1:0",
];

/// A directory with a file of hooks and room for data.
struct Place {
    dir: tempfile::TempDir,
    settings: String,
}

impl Place {
    fn new(hooks: &str) -> Self {
        let place = Self {
            dir: tempfile::tempdir().expect("directory"),
            settings: String::new(),
        };
        place.write(hooks);
        place
    }

    fn with(mut self, settings: &str) -> Self {
        self.settings.push_str(settings);
        self
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("hooks.lua")
    }

    fn write(&self, hooks: &str) {
        // Whole at once: the server reads it whenever it changes.
        let new = self.dir.path().join("new");
        std::fs::write(&new, hooks).expect("written");
        std::fs::rename(new, self.file()).expect("renamed");
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn config(&self) -> String {
        format!("hooks = {:?}\n{}", self.file(), self.settings)
    }

    fn start(&self) -> Server {
        let config = self.config();
        let start = Start::of(&config).listen(LISTEN);
        Server::start_with(&self.data(), start)
    }
}

/// The API ends a lease under the condition that it lasts.
#[test]
fn a_worker_over_http_is_refused_the_end_of_its_lease() {
    let place = Place::new(
        "function settle(s) if s.how == 'finish' then return false, 'not ' .. s.how end end",
    );
    let config = place.config();
    let server = Start::of(&config).listen(&["http=0"]).serve();
    let post = |path: &str, body: &str| {
        let head = format!("POST /api/v1{path}");
        server.ask(&head, http::JSON, body)
    };
    let put = post("/queues/q/messages", r#"{"messages":[{"body":"x"}]}"#);
    assert_eq!(put.status, 201);
    let held = post("/queues/q/reserve", "{}").json();
    let lease = held["messages"][0]["lease"].as_str().expect("a lease");
    let end = |how: &str| post(&format!("/leases/{lease}/{how}"), "{}");
    let refused = end("finish");
    assert!(refused.body.contains("not finish"), "{refused:?}");
    assert_eq!(end("release").status, 204);
    assert_eq!(end("release").status, 409);
}

#[test]
fn a_put_is_refused_in_each_protocols_own_words() {
    let place = Place::new("function before_put(msg) return false, 'no ' .. msg.queue end");
    let server = place.start();
    let job = b"ADD\0mails\0\x01\0\0\0\0\0\0\0\x01\0\0\0x";
    for (protocol, hello, put, command_error) in [
        (
            "memcache",
            &b""[..],
            &b"set q 0 0 1\r\na\r\n"[..],
            &b"SERVER_ERROR no q\r\n"[..],
        ),
        ("lineup", b"", b"PUSH 1 1\r\na\r\n", b"-no default\r\n"),
        (
            "beanstalk",
            b"",
            b"put 1 0 1 1\r\na\r\n",
            b"INTERNAL_ERROR\r\n",
        ),
        ("jobqueue", b"CONNECT\0", job, b"ERROR\0no mails\0"),
    ] {
        let mut client = server.client_of(protocol);
        if !hello.is_empty() {
            client.send(hello);
            client.until(b"\0");
        }
        // Twice, as the connection lives.
        for _ in 0..2 {
            client.ask(put, command_error);
        }
    }
    let put = server.run(&["put", "q", "a"]);
    assert!(!put.status.success() && text(&put.stderr).contains("no q"));
    let mut client = server.client();
    client.ask(b"set q 0 0 1 noreply\r\na\r\nget q\r\n", b"END\r\n");
}

#[test]
fn a_put_is_changed_sent_elsewhere_and_split() {
    let place = Place::new(
        "function before_put(msg)
           if msg.queue == 'up' then msg.body = msg.body:upper() end
           if msg.queue == 'else' then return 'where' end
           if msg.queue == 'split' then
             local all = {}
             for word in msg.body:gmatch('%a+') do all[#all + 1] = { queue = word, body = word } end
             return all
           end
           if msg.queue == 'both' then quintet.put('copy', msg.body) end
         end",
    );
    let server = place.start();
    let mut client = server.client();
    for queue in ["up", "else", "both"] {
        client.put(queue, b"body");
    }
    client.put("split", b"one two");
    client.take("up", b"BODY");
    client.take_nothing("else");
    client.take("where", b"body");
    client.take("both", b"body");
    client.take("copy", b"body");
    client.take("one", b"one");
    client.take("two", b"two");
    client.take_nothing("split");
}

/// Time ends a call as instructions do, where these would not for hours.
#[test]
fn a_hook_s_time_is_bounded_whatever_it_may_count() {
    let place = Place::new("function before_put(msg) while true do end end").with(
        "hook_refuse_on_error = true\nhook_time = '20ms'\nhook_instructions_max = 1000000000000\n",
    );
    let server = place.start();
    let mut client = server.client_of("memcache");
    client.send(b"set w 0 0 1\r\nx\r\n");
    let refused = text(&client.until(b"\r\n"));
    assert!(refused.starts_with("SERVER_ERROR"), "{refused}");
    let stats = text(&server.run(&["stats", "--json"]).stdout);
    assert!(stats.contains("ran longer than 20 ms"), "{stats}");
}

#[test]
fn lineup_gets_new_commands_and_others_keep_their_errors() {
    let place = Place::new(
        "quintet.command('STATS', function(args)
           return 'ready ' .. quintet.stats(args[1] or 'default').ready
         end)
         quintet.command('DUMP', function() return 'two\\nlines' end)
         quintet.command('STOP', function() return false, 'not you' end)",
    );
    let server = place.start();
    let mut client = server.client_of("lineup");
    client.send(b"PUSH 1 1\r\na\r\nSTATS\r\nPOP\r\nSTATS\r\nDUMP\r\nSTOP\r\nFOO\r\nPING\r\n");
    client.expect(b"+OK\r\n+ready 1\r\n$1\r\na\r\n+ready 0\r\n$9\r\ntwo\nlines\r\n");
    client.expect(b"-not you\r\n-INVALID_COMMAND\r\n+PONG\r\n");
    let mut client = server.client_of("beanstalk");
    client.send(b"bar\r\nSTATS default\r\nfoo\r\n");
    client.expect(b"UNKNOWN_COMMAND\r\nready 0\r\nUNKNOWN_COMMAND\r\n");
    let mut client = server.client();
    client.ask(
        b"dump\r\nunheard of\r\n",
        b"VALUE hook 0 9\r\ntwo\nlines\r\nEND\r\nERROR\r\n",
    );
    client.expect_end();
}

#[test]
fn a_taken_message_is_changed_or_kept_also_when_it_was_waited_for() {
    let place = Place::new(
        "function after_take(msg)
           if msg.body == 'keep' then return 'kept' end
           msg.body = msg.body .. '!'
         end",
    );
    let server = place.start();
    let mut client = server.client();
    client.put("q", b"a");
    client.take("q", b"a!");
    client.take_nothing("q");
    // A take that waits.
    let mut waits = server.client();
    waits.send(b"get w/t=120000\r\n");
    await_that("a consumer in line", || {
        server.number_of("w", "waiters") == Some(1)
    });
    client.put("w", b"b");
    waits.expect_value("w", b"b!");
    // One that is kept leaves nothing for the consumer.
    client.put("q", b"keep");
    client.take_nothing("q");
    client.send(b"get kept/peek\r\n");
    client.expect_value("kept", b"keep");
    // A reserve keeps its lease, and the message its body.
    let mut worker = server.client_of("beanstalk");
    worker.ask(
        b"use b\r\nput 1 0 10 1\r\na\r\nwatch b\r\nreserve\r\n",
        b"USING b\r\n",
    );
    let inserted = text(&worker.until(b"\r\n"));
    let id = inserted
        .trim()
        .rsplit(' ')
        .next()
        .expect("an id")
        .to_owned();
    worker.expect(b"WATCHING 2\r\n");
    worker.expect(format!("RESERVED {id} 2\r\na!\r\n").as_bytes());
    worker.send(format!("release {id} 1 0\r\npeek {id}\r\ndelete {id}\r\n").as_bytes());
    worker.expect(format!("RELEASED\r\nFOUND {id} 1\r\na\r\nDELETED\r\n").as_bytes());
}

#[test]
fn a_consumer_that_dies_leaves_no_message_leased() {
    let place = Place::new("function after_take(msg) end").with("sync = \"never\"\n");
    let server = place.start();
    let mut client = server.client();
    for round in 0..50 {
        client.put("q", format!("{round}").as_bytes());
        let mut dies = Client::tcp(server.address());
        dies.send(b"get q/t=120000\r\n");
        drop(dies);
    }
    // Each was handed to nobody, or to somebody whose kernel took it.
    await_that("no lease", || server.queue_number("q", "reserved") == 0);
}

#[test]
fn hooks_decide_about_expiry_and_ends_of_leases() {
    let place = Place::new(
        "function expire(msg) return 'expired' end
         function lease_end(msg) quintet.put('told', 'late ' .. msg.body) end
         function dead_letter(msg) if msg.body == 'b' then return 'mine' end end",
    )
    .with("[[queue]]\nname = \"tries\"\nattempts_max = 1\ndead_letter = \"dead\"\n");
    let server = place.start();
    let mut client = server.client();
    client.ask(b"set short 0 1 1\r\nx\r\n", b"STORED\r\n");
    client.send(b"get expired/t=120000\r\n");
    client.expect_value("expired", b"x");
    let mut worker = server.client_of("beanstalk");
    worker.send(b"use late\r\nput 1 0 1 1\r\na\r\nwatch late\r\nreserve\r\n");
    client.send(b"get told/t=120000\r\n");
    client.expect_value("told", b"late a");
    client.take("late", b"a");
    for body in [b"a", b"b"] {
        client.put("tries", body);
        let mut gone = server.client();
        gone.send(b"get tries/open\r\n");
        gone.expect_value("tries", body);
    }
    client.send(b"get dead/t=120000\r\nget mine/t=120000\r\n");
    client.expect_value("dead", b"a");
    client.expect_value("mine", b"b");
}

#[test]
fn connections_are_refused_and_counted() {
    let place = Place::new(
        "function connect(conn)
           if conn.protocol == 'lineup' then return false, 'not today' end
           quintet.counter('open'):add(1)
         end
         function disconnect(conn)
           if conn.protocol == 'beanstalk' then quintet.put('gone', conn.protocol) end
         end",
    );
    let server = place.start();
    let mut client = server.client_of("lineup");
    client.expect(b"-not today\r\n");
    client.expect_end();
    drop(server.client_of("beanstalk"));
    let mut client = server.client();
    client.send(b"get gone/t=120000\r\n");
    client.expect_value("gone", b"beanstalk");
}

#[test]
fn a_mistake_at_the_start_is_named_and_later_leaves_the_old_hooks() {
    let place = Place::new("function before_put(msg)\n  msg.body = \nend");
    let config = place.config();
    let start = Start::of(&config);
    let started = Server::command(&place.data(), &start)
        .stdout(Stdio::null())
        .output()
        .expect("run");
    assert!(!started.status.success());
    let output = text(&started.stderr);
    assert!(output.contains("hooks.lua:3"), "{output}");

    place.write("function before_put(msg) msg.body = 'old' end");
    let server = place.start();
    let mut client = server.client();
    client.put("q", b"a");
    client.take("q", b"old");
    place.write("function before_put(msg) msg.body = 'new' end");
    await_that("the new hooks", || {
        let mut client = server.client();
        client.put("q", b"a");
        client.send(b"get q\r\n");
        client
            .until(b"END\r\n")
            .windows(3)
            .any(|part| part == b"new")
    });
    // A broken one, and SIGHUP, which is answered in order with a later reload.
    place.write("function before_put(msg) msg.body = end");
    server.signal(Signal::HUP);
    let mut client = server.client();
    client.ask(b"reload\r\n", b"Reloaded config.\r\n");
    client.put("q", b"a");
    client.take("q", b"new");
    place.write("function before_put(msg) msg.body = 'newest' end");
    await_that("the newest hooks", || {
        let mut client = server.client();
        client.put("q", b"a");
        client.send(b"get q\r\n");
        client
            .until(b"END\r\n")
            .windows(6)
            .any(|part| part == b"newest")
    });
}

#[test]
fn a_hook_that_fails_or_runs_for_ever_harms_only_what_it_was_called_for() {
    let place = Place::new(
        "function before_put(msg)
           if msg.body == 'loop' then while true do pcall(function() while true do end end) end end
           if msg.body == 'error' then error('broken') end
           if msg.body == 'memory' then local t = {} while true do t[#t + 1] = ('x'):rep(1000) end end
           msg.body = msg.body .. '!'
         end",
    )
    .with("hook_refuse_on_error = true\n");
    let server = place.start();
    let mut client = server.client();
    for body in ["loop", "memory", "error"] {
        let put = format!("set q 0 0 {}\r\n{body}\r\n", body.len());
        client.ask(put.as_bytes(), b"SERVER_ERROR refused: a hook failed\r\n");
        client.put("q", b"a");
        client.take("q", b"a!");
    }
    let stats = server.run(&["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).expect("JSON");
    assert_eq!(stats["hook_before_put_errors"], 3, "{stats}");
    assert_eq!(stats["hook_before_put_calls"], 6);
    let last = stats["hook_before_put_last_error"].as_str().expect("text");
    assert!(last.contains("hooks.lua:"), "{last}");
}

#[test]
fn connections_that_race_past_the_same_guard_never_both_win() {
    let place = Place::new(
        "function before_put(msg)
           local seen = quintet.table('seen')
           if seen:get(msg.body) then return false, 'seen' end
           seen:set(msg.body, '1')
         end",
    )
    .with("shards = 4\nio_threads = 4\nsync = \"never\"\n");
    let server = place.start();
    const KEYS: usize = 200;
    let stored: usize = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..8)
            .map(|racer| {
                let mut client = server.client();
                scope.spawn(move || {
                    let mut stored = 0;
                    for key in 0..KEYS {
                        let body = format!("key{key}");
                        let put = format!("set q{racer} 0 0 {}\r\n{body}\r\n", body.len());
                        client.send(put.as_bytes());
                        match text(&client.until(b"\r\n")).as_str() {
                            "STORED\r\n" => stored += 1,
                            "SERVER_ERROR seen\r\n" => {}
                            other => panic!("{other}"),
                        }
                    }
                    stored
                })
            })
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().expect("ended"))
            .sum()
    });
    assert_eq!(stored, KEYS);
}

fn listed(server: &Server, queue: &str, file: &Path) -> Vec<String> {
    let exported = server.run(&["export", queue, "--output", file.to_str().expect("path")]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let lines = std::fs::read_to_string(file).expect("written");
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn hooks_decide_about_messages_due_while_no_server_ran() {
    let place = Place::new("function expire(msg) return 'expired' end");
    let server = place.start();
    let mut client = server.client();
    client.ask(b"set short 0 1 1\r\nx\r\n", b"STORED\r\n");
    server.kill();
    // One second of a ttl, which nothing but time ends.
    std::thread::sleep(Duration::from_millis(1_100));
    let server = place.start();
    let mut client = server.client();
    client.send(b"get expired/t=120000\r\n");
    client.expect_value("expired", b"x");
}

#[test]
fn decisions_of_hooks_are_in_the_log_and_need_no_hooks_at_replay() {
    let mut place = Place::new(
        "function before_put(msg)
           local n = quintet.table('numbers'):add('n')
           msg.body = n .. ' ' .. msg.body
           if n % 3 == 0 then quintet.put('thirds', msg.body) end
         end
         function after_put(msg) if msg.queue == 'q' then quintet.metric('puts', 1) end end",
    );
    let server = place.start();
    let mut client = server.client();
    for n in 0..20 {
        client.put("q", format!("m{n}").as_bytes());
    }
    let files = |name: &str| place.dir.path().join(name);
    let before = [
        listed(&server, "q", &files("a")),
        listed(&server, "thirds", &files("b")),
    ];
    assert_eq!(before[0].len(), 20);
    assert!(!before[1].is_empty());
    server.kill();
    // Without the hooks the same is there.
    std::fs::remove_file(place.file()).expect("removed");
    let server = Start::default().listen(LISTEN).serve_at(&place.data());
    let after = [
        listed(&server, "q", &files("c")),
        listed(&server, "thirds", &files("d")),
    ];
    assert_eq!(after, before);
    let mut client = server.client();
    client.put("q", b"plain");
    drop(server);
    // And the table goes on where it was.
    place.settings.clear();
    place.write(
        "quintet.command('N', function() return tostring(quintet.table('numbers'):get('n')) end)",
    );
    let server = place.start();
    let mut client = server.client_of("lineup");
    client.send(b"N\r\n");
    let output = text(&client.until(b"\r\n"));
    let n: u32 = output
        .trim_start_matches('+')
        .trim()
        .parse()
        .expect("a number");
    // The puts into "thirds" were counted too, as they are puts.
    assert!(n >= 20, "{output}");
}

#[test]
fn timers_and_start_run_once_for_the_server() {
    let place = Place::new(
        "function start() quintet.put('events', 'start') end
         quintet.every(20, function()
           if quintet.table('t'):add('n') == 3 then quintet.put('events', 'third') end
         end)",
    )
    .with("io_threads = 3\n");
    let server = place.start();
    let mut client = server.client();
    for expected in ["start", "third"] {
        client.send(b"get events/t=120000\r\n");
        client.expect_value("events", expected.as_bytes());
    }
    assert!(server.stop().success());
}

/// Hooks see the trace of a put over HTTP before the put is stored and when the message is taken.
#[test]
fn a_trace_is_among_the_attributes_that_hooks_see() {
    let place = Place::new(
        "function before_put(msg) msg.body = 'put in ' .. (msg.attrs.traceparent or 'none') end
         function after_take(msg) msg.body = msg.body .. ', of ' .. (msg.attrs.tracestate or 'none') end",
    );
    let config = place.config();
    let server = Start::of(&config)
        .listen(&["http=0", "memcache=0"])
        .serve_at(&place.data());
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (trace, body) in [
        (
            format!("traceparent: {parent}\r\ntracestate: a=1\r\n"),
            format!("put in {parent}, of a=1"),
        ),
        (String::new(), "put in none, of none".to_owned()),
    ] {
        let json = r#"{"messages":[{}]}"#;
        let headers = format!("{trace}{}", http::JSON);
        let reply = server.ask("POST /api/v1/queues/traced/messages", &headers, json);
        assert_eq!(reply.status, 201);
        server.client_of("memcache").take("traced", body.as_bytes());
    }
}

#[test]
fn hooks_see_logins_and_messages_of_http_and_scripts() {
    let place = Place::new(
        "function auth(user, secret, conn)
           if user == 'anna' then return secret == 'right' end
           if user ~= '' then return false end
         end
         function before_put(msg) if msg.body == 'bad' then return false, 'no bad ones' end end",
    );
    let config = place.config();
    let server = Start::of(&config)
        .listen(&["http=0", "memcache=0"])
        .serve_at(&place.data());
    // anna:right, anna:wrong, bert:right; and nobody, of whom no hook says anything.
    for (login, status) in [
        ("Authorization: Basic YW5uYTpyaWdodA==\r\n", 200),
        ("Authorization: Basic YW5uYTp3cm9uZw==\r\n", 401),
        ("Authorization: Basic YmVydDpyaWdodA==\r\n", 401),
        ("", 200),
    ] {
        assert_eq!(
            server.ask("GET /q.txt", login, "").status,
            status,
            "{login}"
        );
    }
    let mut client = server.client_of("memcache");
    client.put("q", b"x");
    client.take("q", b"x");
    client.put("made", b"good");
    let post = |body: &str| {
        let json = format!("{{\"param1\":\"{body}\"}}");
        server
            .ask("POST /q/made/new_message", http::JSON, json)
            .body
    };
    assert!(post("good").contains("\"ok\""));
    let refused = post("bad");
    assert!(
        refused.contains("\"fail\"") && refused.contains("no bad ones"),
        "{refused}"
    );
}

/// A file that loads on trial and on no thread: one line, however often a thread tries it.
#[test]
fn hooks_that_a_thread_cannot_load_are_reported_once() {
    // The trial, whose time is then over, leaves no room for metrics of another time.
    let place = Place::new(
        "local now = quintet.time.now()
         for n = 1, 1000 do quintet.metric('m' .. now .. '_' .. n) end
         repeat until quintet.time.now() > now",
    );
    let config = place.config();
    let server = Start::of(&config).listen(LISTEN).serve_logged();
    // They might refuse any client.
    server.client().expect_end();
    // The thread that looks for a change has tried the first file several times by then.
    place.write("error('nor here')");
    await_that("the second file", || {
        server.stderr_text().contains("nor here")
    });
    let log = server.stderr_text();
    let failed = log.matches("cannot load the hooks on a thread").count();
    assert_eq!(failed, 1, "{log}");
    assert!(log.contains("there are too many metrics"), "{log}");
    assert!(server.stop().success());
}
