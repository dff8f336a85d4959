//! `quintet cron`: tables are listed and steered, and that is written down.

use crate::common::{Data, Server, Start};
use serde_json::Value;

/// A table that is due on a 29 February alone, and one that is named alike.
const CONFIG: &str = "[[cron]]\nname = 'nightly'\nschedule = '30 2 29 2 *'\nzone = 'Europe/Berlin'\n\
                      queue = 'reports'\nbody = 'all'\n\
                      [[cron]]\nname = 'a b'\nschedule = '0 0 29 2 *'\nqueue = 'w'\nmissed = 'once'\n";

fn start(config: &str) -> Server {
    Start::of(config).serve()
}

fn listed(server: &Server) -> Vec<Value> {
    let lines = server.printed(&["cron", "--json"]);
    let lines = lines.lines();
    let all = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    // They come by name; the last one is the one of most tests.
    let mut all: Vec<Value> = all.collect();
    all.reverse();
    all
}

#[test]
fn tables_are_listed_paused_resumed_and_run() {
    let server = start(CONFIG);
    let all = listed(&server);
    assert_eq!(all.len(), 2);
    let nightly = &all[0];
    for (key, value) in [
        ("name", "nightly"),
        ("schedule", "30 2 29 2 *"),
        ("zone", "Europe/Berlin"),
        ("queue", "reports"),
        ("missed", "skip"),
        ("outcome", "none"),
    ] {
        assert_eq!(nightly[key], value, "{key}");
    }
    assert_eq!(nightly["paused"], false);
    assert_eq!(nightly["missed_runs"], 0);
    assert!(nightly["next_ms"].is_u64() && nightly["last_ms"].is_null());
    assert_eq!(all[1]["missed"], "once");
    let shown = server.printed(&["cron"]);
    // By the clocks of the zone, in winter.
    assert!(shown.contains("-02-29 02:30:00 +01:00"), "{shown}");

    let paused = server.printed(&["cron", "pause", "nightly", "a b"]);
    assert_eq!(paused, "nightly paused\na b paused\n");
    let again = server.printed(&["cron", "pause", "nightly"]);
    assert_eq!(again, "nightly was paused already\n");
    assert_eq!(listed(&server)[0]["paused"], true);
    assert!(listed(&server)[0]["next_ms"].is_null());
    assert_eq!(server.number("cron_nightly_paused"), 1);
    let shown = server.printed(&["cron"]);
    assert!(shown.lines().nth(1).unwrap().contains("paused"), "{shown}");

    // Also while it is paused, and its message is its own.
    let run_now = server.printed(&["cron", "run", "nightly"]);
    let id: u64 = run_now
        .strip_prefix("nightly put as message ")
        .and_then(|rest| rest.trim_end().parse().ok())
        .unwrap_or_else(|| panic!("{run_now}"));
    assert_eq!(server.printed(&["peek", "--id", &id.to_string()]), "all");
    let nightly = &listed(&server)[0];
    assert_eq!(
        (&nightly["message"], &nightly["outcome"]),
        (&id.into(), &"put".into())
    );
    assert_eq!(nightly["paused"], true);
    assert!(server.number("cron_nightly_last_ms") > 0);
    let metrics = server.printed(&["metrics"]);
    assert!(
        metrics.contains("quintet_cron_paused{name=\"nightly\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("quintet_cron_last_run_timestamp_seconds{name=\"nightly\"}"));
    let next = "quintet_cron_next_run_timestamp_seconds{";
    assert!(!metrics.contains(next), "both are paused: {metrics}");

    let resumed = server.printed(&["cron", "resume", "nightly", "--json"]);
    let resumed: Value = serde_json::from_str(&resumed).unwrap();
    assert_eq!(resumed["name"], "nightly");
    assert_eq!(resumed["changed"], true);
    let again = server.printed(&["cron", "resume", "nightly"]);
    assert_eq!(again, "nightly was not paused\n");
    let metrics = server.printed(&["metrics"]);
    assert!(
        metrics.contains(&format!("{next}name=\"nightly\"}}")),
        "{metrics}"
    );
    assert!(
        !metrics.contains(&format!("{next}name=\"a b\"}}")),
        "{metrics}"
    );

    // A name that is none, and the one that was meant.
    let (out, why, code) = server.outputs(&["cron", "run", "nihgtly"]);
    assert_eq!((out.as_str(), code), ("", 1));
    assert!(
        why.contains("there is no schedule nihgtly; did you mean nightly?"),
        "{why}"
    );
    let (_, why, _) = server.outputs(&["cron", "pause", "something else"]);
    assert!(
        why.ends_with("there is no schedule something else\n"),
        "{why}"
    );
    let audit = server.printed(&["audit"]);
    for line in [
        " http POST /api/v1/schedules/nightly/pause 200",
        " http POST /api/v1/schedules/nightly/run 200",
        " http POST /api/v1/schedules/nightly/resume 200",
        " http POST /api/v1/schedules/nihgtly/run 404",
    ] {
        assert!(audit.contains(line), "{line}: {audit}");
    }
    assert!(!audit.contains("GET"), "a read is no act: {audit}");
}

#[test]
fn a_refused_run_has_a_reason_and_leaves_no_record() {
    let config = format!("{CONFIG}[[queue]]\nname = 'w'\nmessages_max = 1\n");
    let server = start(&config);
    server.client().put("w", b"first");
    let (_, why, code) = server.outputs(&["cron", "run", "a b"]);
    assert_eq!(code, 1);
    assert!(why.contains("full"), "{why}");
    let table = &listed(&server)[1];
    assert_eq!(table["outcome"], "refused");
    assert_eq!(table["last_ms"], Value::Null);
    let shown = server.printed(&["cron"]);
    assert!(shown.contains("refused: "), "{shown}");
    server.client().take("w", b"first");
    server.printed(&["cron", "run", "a b"]);
    let table = &listed(&server)[1];
    assert_eq!(
        (&table["outcome"], &table["error"]),
        (&"put".into(), &Value::Null)
    );
    assert_eq!(server.number("ready"), 1);
}

/// Options become the definition that the API is given, and the file of one is taken as it is.
#[test]
fn schedules_are_made_changed_and_removed_by_commands() {
    let server = start("");
    let put = |name: &str, args: &[&str]| {
        let mut words = vec!["schedule", "put", name];
        words.extend(args);
        server.outputs(&words)
    };
    let show = |name: &str| -> Value {
        let shown = server.printed(&["schedule", "show", name]);
        serde_json::from_str(&shown).expect("JSON")
    };
    let of = [
        "--cron",
        "30 2 29 2 *",
        "--zone",
        "Europe/Berlin",
        "--queue",
        "reports",
        "--body",
        "all",
        "--missed",
        "all",
        "--overlap",
        "skip",
        "--attr",
        "team=ops",
        "--priority",
        "7",
        "--count",
        "3",
        "--start",
        "2026-01-01T00:00:00+01:00",
    ];
    assert_eq!(put("nightly", &of).0, "nightly is scheduled\n");
    assert_eq!(put("nightly", &of).0, "nightly was so already\n");
    let expected = serde_json::json!({
        "cron": "30 2 29 2 *", "zone": "Europe/Berlin", "start_ms": 1_767_222_000_000_u64,
        "count": 3, "missed": "all", "overlap": "skip", "queue": "reports", "body": "all",
        "headers": { "team": "ops" }, "priority": 7,
    });
    assert_eq!(show("nightly")["definition"], expected);
    assert_eq!(
        show("nightly")["nexts_ms"].as_array().map(Vec::len),
        Some(3)
    );
    let shown = server.printed(&["schedule"]);
    assert!(shown.contains("-02-29 02:30:00 +01:00"), "{shown}");
    let poll = ["--every", "5h", "--phase", "30s", "--queue", "w"];
    assert_eq!(put("poll", &poll).0, "poll is scheduled\n");
    assert_eq!(show("poll")["schedule"], "every 5h, 30s later");
    let at = ["--at", "2999-01-01T00:00:00Z", "--queue", "w"];
    assert_eq!(put("once", &at).0, "once is scheduled\n");
    let (_, why, code) = put("past", &["--at", "2001-01-01T00:00:00Z", "--queue", "w"]);
    assert_eq!(code, 1);
    assert!(why.contains("never due"), "{why}");
    let (_, why, code) = put(
        "both",
        &["--every", "5h", "--cron", "0 * * * *", "--queue", "w"],
    );
    assert_eq!(code, 2, "{why}");
    // From one to another by a file.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy.json");
    std::fs::write(&file, expected.to_string()).unwrap();
    let file = file.display().to_string();
    assert_eq!(put("copy", &["--file", &file]).0, "copy is scheduled\n");
    assert_eq!(show("copy")["definition"], expected);
    let removed = server.printed(&["schedule", "remove", "copy", "poll"]);
    assert_eq!(removed, "copy removed\npoll removed\n");
    let names = listed(&server);
    let names: Vec<&str> = names
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["once", "nightly"]);
    let metrics = server.printed(&["metrics"]);
    assert!(metrics.contains("\nquintet_schedules 2\n"), "{metrics}");
}

#[test]
fn where_there_are_no_tables_the_list_is_empty() {
    let server = start("");
    assert_eq!(listed(&server), [] as [Value; 0]);
    let (_, why, code) = server.outputs(&["cron", "run", "a"]);
    assert_eq!(code, 1);
    assert!(why.contains("there is no schedule a"), "{why}");
}

/// A reload is refused for the same errors as a start: the configuration in force goes on, pauses
/// included.
#[test]
fn a_reload_of_a_table_that_makes_no_sense_changes_nothing() {
    let server = start(CONFIG);
    server.printed(&["cron", "pause", "nightly"]);
    let before = listed(&server);
    let wrong = [
        ("30 2 29 2 *", "30 2 30 2 *"),
        ("Europe/Berlin", "Mars/Base"),
        ("'a b'", "'nightly'"),
        ("'once'", "'twice'"),
        ("body = 'all'", "body_file = '/dev/zero'"),
    ];
    for (at, (right, wrong)) in wrong.into_iter().enumerate() {
        let text = CONFIG.replace(right, wrong);
        assert_ne!(text, CONFIG, "{right}");
        server.configure(&text);
        let (_, why, code) = server.outputs(&["reload"]);
        assert_eq!(code, 1, "{wrong}");
        assert!(why.contains("not reloaded"), "{wrong}: {why}");
        let audit = server.printed(&["audit"]);
        let failed = audit.matches(" reloaded - failed").count();
        assert_eq!(failed, at + 1, "{wrong}: {audit}");
        assert_eq!(listed(&server), before, "{wrong}");
    }
}

/// Taking out a paused table also ends its pause: the answer and the log say so.
#[test]
fn a_reload_without_a_paused_table_reports_the_lost_pause() {
    let data = Data::fresh();
    let log = data.with_extension("stderr");
    let with = Start::of(CONFIG);
    let mut command = Server::command(&data, &with);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = Server::await_ready(&data, command);
    let reload = |text: &str| {
        server.configure(text);
        server.printed(&["reload"])
    };
    server.printed(&["cron", "pause", "nightly"]);
    let renamed = CONFIG.replace("'nightly'", "'daily'");
    let response = reload(&renamed);
    assert!(
        response.contains("[[cron]] nightly was paused")
            && response.contains("the server forgets the pause"),
        "{response}"
    );
    // The list tells of the new tables, so the old one's mark was looked at.
    assert_eq!(listed(&server)[0]["paused"], false);
    // It is there again, and runs; nothing was paused, so nothing is said.
    let response = reload(CONFIG);
    assert!(!response.contains("[[cron]]"), "{response}");
    assert_eq!(listed(&server)[0]["paused"], false);
    assert!(server.stop().success());
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("[[cron]] nightly was paused"), "{log}");
}

#[test]
fn tables_of_schedules_put_at_intervals_and_are_listed_with_their_times() {
    let config = "[[schedule]]\nname = 'poll'\nevery = '1s'\nqueue = 'polls'\nbody = 'x'\ncount = 1\n\
                  [[schedule]]\nname = 'old'\nat = ['2020-01-01T00:00:00Z']\nqueue = 'polls'\n";
    let server = start(config);
    crate::common::await_that("a put by its interval", || server.number("ready") == 1);
    let all = listed(&server);
    let response = |at: usize, key: &str| all[at][key].as_str().unwrap().to_owned();
    assert_eq!(
        (response(0, "name"), response(1, "name")),
        ("poll".into(), "old".into())
    );
    assert_eq!(
        (response(0, "schedule"), response(1, "schedule")),
        ("every 1s".into(), "once".into())
    );
    assert!(
        all.iter()
            .all(|one| one["source"] == "file" && one["ended"] == true)
    );
}
