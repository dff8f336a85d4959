//! `/api/v1/schedules`: schedules are made, seen and steered; `/api/v1/cron`, as it was called.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::api::{Reply, ask};
use crate::common::{Data, Server, Start, eventually, faults, http};
use serde_json::{Value, json};

const CRON: &str = "[[cron]]\nname = 'nightly'\nschedule = '30 2 29 2 *'\nqueue = 'reports'\n\
                    body = 'all'\n\
                    [[cron]]\nname = 'a/b'\nschedule = '0 0 29 2 *'\nqueue = 'w'\n";
const LISTEN: &str = "[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n";

fn start(config: &str) -> Server {
    Start::of(config).serve_as_configured()
}

#[test]
fn tables_are_seen_and_steered_over_the_api() {
    let server = start(&format!("{CRON}{LISTEN}"));
    let steer = |path: &str| {
        let reply = ask(&server, &format!("POST /cron/{path}"), "", "");
        (reply.status, reply.json)
    };
    let seen = || {
        let reply = ask(&server, "GET /cron", "", "");
        assert_eq!(reply.status, 200);
        reply.json
    };
    let all = seen();
    assert_eq!(all.as_array().map(Vec::len), Some(2));
    assert_eq!(all[1]["name"], "nightly");
    assert_eq!(all[1]["schedule"], "30 2 29 2 *");
    assert_eq!(
        (&all[1]["zone"], &all[1]["source"]),
        (&json!("UTC"), &json!("file"))
    );
    assert_eq!(all[1]["outcome"], "none");
    assert_eq!(
        steer("nightly/pause"),
        (200, json!({ "changed": true, "message": null }))
    );
    assert_eq!(
        steer("nightly/pause"),
        (200, json!({ "changed": false, "message": null }))
    );
    assert_eq!(seen()[1]["paused"], true);
    assert_eq!(seen()[0]["paused"], false);
    let (status, put) = steer("nightly/run");
    assert_eq!(status, 200, "{put}");
    let message = put["message"].as_u64().expect("what was put");
    let found = ask(&server, &format!("GET /messages/{message}"), "", "").json;
    assert_eq!(
        (&found["queue"], &found["body"]),
        (&json!("reports"), &json!("all"))
    );
    let scheduled = found["headers"]["scheduled_at"].as_str();
    let scheduled = scheduled.and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
    let late = chrono::Utc::now() - scheduled.expect("a time").to_utc();
    assert!((0..60).contains(&late.num_seconds()), "{found}");
    assert_eq!(seen()[1]["message"], message);
    assert_eq!(steer("nightly/resume").1["changed"], true);
    assert_eq!(seen()[1]["paused"], false);
    // A name with a slash is escaped.
    assert_eq!(steer("a%2Fb/pause").0, 200);
    assert_eq!(seen()[0]["paused"], true);

    let (status, problem) = steer("nightlz/run");
    assert_eq!(status, 404);
    assert_eq!(problem["code"], "schedule_not_found");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("did you mean nightly?"), "{detail}");
    assert_eq!(steer("nightly/explode").0, 404);
    assert_eq!(ask(&server, "GET /cron/nightly/run", "", "").status, 405);
    server.run(&["drain"]);
    // A drain is done in a moment.
    let refused = eventually("it drains", || {
        let (status, problem) = steer("nightly/run");
        (status != 200).then(|| (status, problem["code"].clone()))
    });
    assert_eq!(refused, (503, json!("draining")));
    let document = ask(&server, "GET /openapi.json", "", "").json;
    let paths = &document["paths"];
    for path in [
        "",
        "/{name}",
        "/{name}/pause",
        "/{name}/resume",
        "/{name}/run",
    ] {
        let at = &paths[format!("/api/v1/schedules{path}")];
        assert_ne!(*at, Value::Null, "{path}");
    }
}

#[test]
fn schedules_need_the_right_server_to_see_and_steer() {
    let users = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['*']\n\
                 rights = ['put', 'peek', 'take', 'settle', 'admin']\n";
    let server = start(&format!("{CRON}{users}{LISTEN}user = 'ann'\n"));
    for head in [
        "GET /cron",
        "POST /cron/nightly/pause",
        "POST /cron/nightly/resume",
        "POST /cron/nightly/run",
        // Not even whether it is there.
        "POST /cron/nowhere/run",
        "GET /schedules",
        "GET /schedules/nightly",
        "PUT /schedules/nightly",
        "DELETE /schedules/nightly",
        "POST /schedules/nightly/run",
    ] {
        let reply = ask(&server, head, "", "");
        assert_eq!(reply.status, 403, "{head}: {}", reply.json);
    }
    assert_eq!(server.number("ready"), 0);
    assert_eq!(server.number("cron_nightly_paused"), 0);
}

fn define(server: &Server, name: &str, spec: &Value) -> Reply {
    ask(
        server,
        &format!("PUT /schedules/{name}"),
        "",
        &spec.to_string(),
    )
}

fn show(server: &Server, name: &str) -> Value {
    ask(server, &format!("GET /schedules/{name}"), "", "").json
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn tag(reply: &Reply) -> String {
    let line = reply
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "));
    line.expect("a version").trim().to_owned()
}

/// Reserves a message of the queue and finishes it.
fn finish(server: &Server, queue: &str) {
    let held = ask(server, &format!("POST /queues/{queue}/reserve"), "", "{}").json;
    let lease = held["messages"][0]["lease"].as_str().expect("a lease");
    let done = ask(server, &format!("POST /leases/{lease}/finish"), "", "");
    assert!(done.status < 300, "{}", done.json);
}

/// Due once in four years.
fn leap(queue: &str) -> Value {
    json!({ "cron": "0 0 29 2 *", "queue": queue, "body": "due", "missed": "once" })
}

#[test]
fn a_schedule_is_made_shown_changed_and_removed() {
    let server = start(&format!("schedules_max = 2\n{CRON}{LISTEN}"));
    let made = define(&server, "leap", &leap("w"));
    assert_eq!(made.status, 201, "{}", made.json);
    assert_eq!(made.json, json!({ "changed": true, "message": null }));
    let again = define(&server, "leap", &leap("w"));
    assert_eq!((again.status, &again.json["changed"]), (200, &json!(false)));
    assert_eq!(tag(&again), tag(&made));

    let shown = ask(&server, "GET /schedules/leap", "", "");
    assert_eq!(tag(&shown), tag(&made));
    let shown = shown.json;
    assert_eq!(shown["definition"], leap("w"));
    assert_eq!(
        (&shown["source"], &shown["missed"]),
        (&json!("api"), &json!("once"))
    );
    assert_eq!(
        (&shown["schedule"], &shown["queue"]),
        (&json!("0 0 29 2 *"), &json!("w"))
    );
    let nexts = shown["nexts_ms"].as_array().unwrap();
    assert_eq!((nexts.len(), &nexts[0]), (10, &shown["next_ms"]));
    assert_eq!(shown["last_runs"], json!([]));

    // Only what was seen is changed.
    let mut other = leap("v");
    other["overlap"] = json!("skip");
    let stale = "If-Match: \"7777\"\r\n";
    let no = ask(&server, "PUT /schedules/leap", stale, &other.to_string());
    assert_eq!((no.status, &no.json["code"]), (412, &json!("changed")));
    let no = ask(&server, "DELETE /schedules/leap", stale, "");
    assert_eq!(no.status, 412);
    let any = "If-Match: *\r\n";
    let no = ask(&server, "PUT /schedules/absent", any, &other.to_string());
    assert_eq!((no.status, &no.json["code"]), (412, &json!("changed")));
    assert_eq!(ask(&server, "GET /schedules/absent", "", "").status, 404);
    let same = ask(&server, "PUT /schedules/leap", any, &leap("w").to_string());
    assert_eq!((same.status, &same.json["changed"]), (200, &json!(false)));
    let fresh = format!("If-Match: {}\r\n", tag(&made));
    let yes = ask(&server, "PUT /schedules/leap", &fresh, &other.to_string());
    assert_eq!(
        (yes.status, &yes.json["changed"]),
        (200, &json!(true)),
        "{}",
        yes.json
    );
    assert_ne!(tag(&yes), tag(&made));
    assert_eq!(show(&server, "leap")["queue"], "v");

    // A run, and what becomes of its message.
    let run = ask(&server, "POST /schedules/leap/run", "", "");
    let id = run.json["message"].as_u64().expect("a message");
    let last = |what: &str| show(&server, "leap")["last_runs"][0][what].clone();
    assert_eq!(
        (last("message"), last("outcome")),
        (json!(id), json!("by_hand"))
    );
    assert_eq!(last("became"), "ready");
    // The runs must not overlap.
    let no = ask(&server, "POST /schedules/leap/run", "", "");
    assert_eq!((no.status, &no.json["code"]), (409, &json!("duplicate")));
    finish(&server, "v");
    assert_eq!(last("became"), "finished");
    assert_eq!(ask(&server, "POST /schedules/leap/run", "", "").status, 200);

    // The list comes in pages, in the order of names.
    assert_eq!(define(&server, "zz", &leap("w")).status, 201);
    let full = define(&server, "too-many", &leap("w"));
    assert_eq!(
        (full.status, &full.json["code"]),
        (507, &json!("schedules_full"))
    );
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = ask(&server, &format!("GET /schedules?limit=1{after}"), "", "").json;
        names.push(page["schedules"][0]["name"].as_str().unwrap().to_owned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace('/', "%2F")),
            None => break,
        }
    }
    assert_eq!(names, ["a/b", "leap", "nightly", "zz"]);
    assert_eq!(ask(&server, "GET /schedules?limit=0", "", "").status, 400);
    assert_eq!(server.number("schedules"), 4);

    // The configuration wins.
    let no = define(&server, "nightly", &leap("w"));
    assert_eq!(
        (no.status, &no.json["code"]),
        (409, &json!("in_configuration"))
    );
    assert_eq!(
        ask(&server, "DELETE /schedules/nightly", "", "").status,
        409
    );

    assert_eq!(ask(&server, "DELETE /schedules/leap", "", "").status, 204);
    assert_eq!(ask(&server, "DELETE /schedules/leap", "", "").status, 404);
    assert_eq!(ask(&server, "GET /schedules/leap", "", "").status, 404);
    let audit = server.printed(&["audit"]);
    for line in [
        " http PUT /api/v1/schedules/leap 201",
        " http DELETE /api/v1/schedules/leap 204",
        " http POST /api/v1/schedules/leap/run 200",
    ] {
        assert!(audit.contains(line), "{line}: {audit}");
    }
}

#[test]
fn a_definition_that_makes_no_sense_is_refused() {
    let server = start(LISTEN);
    let past = now() - 1000;
    for (spec, field) in [
        (json!({ "cron": "0 0 30 2 *", "queue": "w" }), "cron"),
        (
            json!({ "cron": "0 0 * * *", "zone": "Mars/Base", "queue": "w" }),
            "zone",
        ),
        (json!({ "at_ms": [past, 7], "queue": "w" }), "at_ms"),
        (
            json!({ "every_ms": 1000, "end_ms": past, "queue": "w" }),
            "end_ms",
        ),
        (json!({ "every_ms": 10, "queue": "w" }), "every_ms"),
        (json!({ "every_ms": 1000 }), "queue"),
        (
            json!({ "every_ms": 1000, "queue": "w", "ttl_ms": 316_224_000_001_u64 }),
            "ttl_ms",
        ),
        (
            json!({ "every_ms": 1000, "queue": "w", "colour": "red" }),
            "colour",
        ),
    ] {
        let no = define(&server, "a", &spec);
        assert_eq!(no.status, 400, "{spec}: {}", no.json);
        assert_eq!(no.json["field"], field, "{spec}: {}", no.json);
    }
    let long = define(&server, &"n".repeat(256), &leap("w"));
    assert_eq!((long.status, &long.json["field"]), (400, &json!("name")));
    assert_eq!(server.number("schedules"), 0);
}

#[test]
fn a_schedule_needs_the_right_to_put_into_its_queue() {
    let users = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['mine']\n\
                 rights = ['put', 'server']\n";
    let server = start(&format!("{users}{LISTEN}user = 'ann'\n"));
    let no = define(&server, "a", &leap("theirs"));
    assert_eq!(
        (no.status, &no.json["code"]),
        (403, &json!("not_permitted")),
        "{}",
        no.json
    );
    assert_eq!(define(&server, "a", &leap("mine")).status, 201);
    // Nor is one there made to put elsewhere.
    assert_eq!(define(&server, "a", &leap("theirs")).status, 403);
    let shown = show(&server, "a");
    assert_eq!(
        (&shown["queue"], &shown["defined_by"]),
        (&json!("mine"), &json!("ann"))
    );
    // Its body is a message of a queue that he may not look into.
    assert_eq!(shown["definition"], Value::Null);
}

/// Each second, for ever: a run is put if the one before is done, and else skipped.
/// A put needs no more room in the tables than its schedule took when it was made.
#[test]
fn every_schedule_that_was_accepted_puts_in_full_tables() {
    let server = start(&format!("tables_bytes_max = '32KiB'\n{LISTEN}"));
    let spec = json!({ "every_ms": 1000, "queue": "w", "body": "x".repeat(100) });
    let mut made = Vec::new();
    for number in 0..1000 {
        let name = format!("s-{number}");
        match define(&server, &name, &spec).status {
            201 => made.push(name),
            status => {
                assert_eq!(status, 507, "{number}");
                break;
            }
        }
    }
    assert!((10..100).contains(&made.len()), "{}", made.len());
    for name in made {
        eventually("it puts twice", || {
            (show(&server, &name)["runs"].as_u64() > Some(1)).then_some(())
        });
        assert_eq!(show(&server, &name)["outcome"], "put");
    }
}

#[test]
fn runs_that_must_not_overlap_wait_for_the_last_one() {
    let server = start(&format!("shards = 3\n{LISTEN}"));
    for (name, overlap) in [("s", "skip"), ("r", "replace"), ("a", "allow")] {
        let spec = json!({ "every_ms": 1000, "queue": name, "body": "tick", "overlap": overlap });
        assert_eq!(define(&server, name, &spec).status, 201);
    }
    let ready = |queue: &str| {
        let stats = ask(&server, &format!("GET /queues/{queue}"), "", "").json;
        stats["ready"].as_u64().unwrap_or(0)
    };
    eventually("it is skipped", || {
        (show(&server, "s")["outcome"] == "skipped").then_some(())
    });
    eventually("it is put again", || (ready("a") > 1).then_some(()));
    assert_eq!(ready("s"), 1);
    let first = show(&server, "s")["message"].clone();
    finish(&server, "s");
    eventually("the next is put", || {
        (show(&server, "s")["message"] != first).then_some(())
    });
    // Each run took the place of the one before, which a consumer then keeps.
    eventually("it is replaced", || {
        (show(&server, "r")["runs"].as_u64() > Some(2)).then_some(())
    });
    assert_eq!(ready("r"), 1);
    let held = ask(&server, "POST /queues/r/reserve", "", "{}").json;
    assert_eq!(held["messages"][0]["body"], "tick");
    eventually("it is held", || {
        (show(&server, "r")["outcome"] == "skipped").then_some(())
    });
    assert_eq!(ready("r"), 0);
    assert!(server.number("schedule_runs") > 4);
}

/// A kill -9 takes no definition, pause or run with it; a clock that is set forward misses runs, and
/// all of them are made up for where the schedule says so.
#[test]
fn a_schedule_outlives_a_kill_and_makes_up_for_missed_runs() {
    const DAY: i64 = 86_400_000;
    let data = Data::fresh();
    let faults = faults(&data);
    let start = |config: &str| {
        let start = Start::of(config).listen(&["http=0"]).sync("always");
        Server::start_under(&faults, &data, &start)
    };
    let config = "shards = 2\n";
    let server = start(config);
    let daily = |missed: &str, queue: &str| json!({ "every_ms": DAY, "queue": queue, "body": "due", "missed": missed, "count": 5 });
    for missed in ["skip", "once", "all", "paused"] {
        let how = if missed == "paused" { "all" } else { missed };
        let made = define(&server, missed, &daily(how, missed));
        assert_eq!(made.status, 201, "{}", made.json);
    }
    assert_eq!(
        ask(&server, "POST /schedules/paused/pause", "", "").status,
        200
    );
    server.kill();
    // It was off for three days and a bit.
    let off = 3 * DAY + DAY / 2;
    faults.shift_clock(off);
    let server = start(config);
    eventually("they are made up for", || {
        (show(&server, "all")["runs"].as_u64() >= Some(3)).then_some(())
    });
    eventually("it is made up for", || {
        (show(&server, "once")["runs"] == 1).then_some(())
    });
    eventually("it is missed", || {
        (show(&server, "skip")["missed_runs"].as_u64() >= Some(3)).then_some(())
    });
    let runs = show(&server, "all")["last_runs"].clone();
    let due = |at: usize| runs[at]["due_ms"].as_i64().unwrap();
    assert_eq!(due(0) - due(1), DAY, "newest first: {runs}");
    assert_eq!(show(&server, "skip")["runs"], 0);
    assert_eq!(show(&server, "paused")["paused"], true);
    assert_eq!(show(&server, "paused")["last_runs"], json!([]));
    server.kill();
    // After five runs it has ended; nothing is put twice.
    faults.shift_clock(off + 4 * DAY);
    let server = start(config);
    eventually("it ends", || {
        (show(&server, "all")["ended"] == true).then_some(())
    });
    let all = show(&server, "all");
    assert_eq!(
        (&all["runs"], &all["next_ms"], &all["nexts_ms"]),
        (&json!(5), &Value::Null, &json!([]))
    );
    let stats = ask(&server, "GET /queues/all", "", "").json;
    assert_eq!(stats["ready"], 5);
    // A table of the same name wins, and says so. It shares the pause.
    let steer = |act: &str| {
        let head = format!("POST /schedules/all/{act}");
        assert_eq!(ask(&server, &head, "", "").status, 200, "{act}");
    };
    steer("pause");
    server.configure(&format!("{config}{}", CRON.replace("nightly", "all")));
    server.printed(&["reload"]);
    let all = show(&server, "all");
    assert_eq!(
        (&all["source"], &all["shadows"], &all["paused"]),
        (&json!("file"), &json!(true), &json!(true)),
        "{all}"
    );
    server.configure(config);
    server.printed(&["reload"]);
    let all = show(&server, "all");
    assert_eq!(
        (&all["source"], &all["definition"]["count"], &all["paused"]),
        (&json!("api"), &json!(5), &json!(true)),
        "{all}"
    );
    // Without the table it continues, and its count begins anew.
    steer("resume");
    eventually("its count begins anew", || {
        let all = show(&server, "all");
        (all["runs"] == 0 && all["ended"] == false).then_some(())
    });
}

/// A thousand that are due in one moment are put, and how late they were is printed.
#[test]
fn a_thousand_are_due_in_one_moment() {
    const COUNT: usize = 1000;
    const HOUR: u64 = 3_600_000;
    let data = Data::fresh();
    let faults = faults(&data);
    let start = Start::default().listen(&["http=0"]);
    let server = Server::start_under(&faults, &data, &start);
    let due = now() + HOUR;
    let due = due - due % 1000;
    let mut client = server.client_of("http");
    for number in 0..COUNT {
        let spec = json!({ "at_ms": [due], "queue": format!("q{}", number % 8), "body": "due" });
        let (spec, head) = (spec.to_string(), "HTTP/1.1\r\nhost: localhost");
        let request = format!(
            "PUT /api/v1/schedules/s{number:04} {head}\r\n{}content-length: {}\r\n\r\n{spec}",
            http::JSON,
            spec.len()
        );
        client.send(request.as_bytes());
        assert_eq!(http::read(&mut client).expect("a reply").status, 201);
    }
    assert_eq!(server.number("schedules"), COUNT as u64);
    // Soon it is due.
    let ahead = due - now() - 3000;
    faults.shift_clock(i64::try_from(ahead).unwrap());
    server.await_number("schedule_runs", |runs| runs == COUNT as u64);
    let mut late: Vec<u64> = (0..COUNT)
        .step_by(13)
        .map(|number| {
            let run = &show(&server, &format!("s{number:04}"))["last_runs"][0];
            run["at_ms"].as_u64().unwrap() - run["due_ms"].as_u64().unwrap()
        })
        .collect();
    late.sort_unstable();
    println!(
        "late by ms: median {}, most {}",
        late[late.len() / 2],
        late[late.len() - 1]
    );
    assert_eq!(server.number("ready"), COUNT as u64);
    assert_eq!(server.number("schedule_missed"), 0);
}
