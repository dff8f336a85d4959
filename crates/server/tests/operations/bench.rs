//! `quintet bench` against `quintet serve`.

use std::process::Output;

use crate::common::{Server, Start, quintet};

/// A server that syncs nothing, with one listener.
fn speaking(protocol: &str) -> Server {
    let listen = format!("{protocol}=0");
    Start::default().sync("never").listen(&[&listen]).serve()
}

fn start() -> Server {
    speaking("memcache")
}

fn bench(server: &Server, args: &[&str]) -> Output {
    let mut command = quintet(&["bench", "--time", "1m", "--target", server.address()]);
    command.args(args).output().unwrap()
}

/// Messages ready in all queues.
fn ready(server: &Server) -> u64 {
    let lines = server.printed(&["queues", "--json"]);
    let ready = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["ready"].as_u64();
    lines.lines().filter_map(ready).sum()
}

/// The report of a load that went well.
fn report(output: &Output) -> serde_json::Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    all["report"].clone()
}

#[test]
fn every_put_is_taken() {
    let server = start();
    for more in [
        &["--count", "1000"][..],
        &["--count", "1000", "--depth", "16", "--connections", "5"],
        &["--count", "1000", "--queues", "3", "--threads", "2"],
        &["--count", "1000", "--rate", "5000"],
        &["--count", "999", "--size", "100KiB", "--connections", "2"],
    ] {
        let report = report(&bench(&server, &[more, &["--json"]].concat()));
        let number = |key: &str| report[key].as_u64().unwrap();
        assert_eq!(
            number("puts") + number("takes"),
            more[1].parse::<u64>().unwrap(),
            "{more:?}"
        );
        assert_eq!((number("empty"), number("unanswered")), (0, 0), "{more:?}");
        assert_eq!(ready(&server), 0, "{more:?} left messages");
    }
}

#[test]
fn pinpriq_is_spoken() {
    let server = speaking("pinpriq");
    for more in [
        &["--count", "1000", "--queues", "3"][..],
        &["--count", "1000", "--depth", "16", "--size", "65535"],
        &["--count", "1000", "--mix", "put"],
        &["--count", "1000", "--mix", "take"],
    ] {
        let args = [
            &["--protocol", "pinpriq", "--connections", "5", "--json"],
            more,
        ]
        .concat();
        let report = report(&bench(&server, &args));
        assert_eq!(report["unanswered"], 0, "{more:?}");
        assert_eq!(report["empty"], 0, "{more:?}");
    }
    assert_eq!(ready(&server), 0);
    let too_long = bench(&server, &["--protocol", "pinpriq", "--size", "65536"]);
    assert!(!too_long.status.success());
}

#[test]
fn more_puts_than_takes_leave_the_rest() {
    let server = start();
    let args = [
        "--mix",
        "3:1",
        "--count",
        "400",
        "--connections",
        "1",
        "--json",
    ];
    let report = report(&bench(&server, &args));
    assert_eq!(
        (&report["puts"], &report["takes"]),
        (&300.into(), &100.into())
    );
    assert_eq!(ready(&server), 200);
}

#[test]
fn takes_find_only_messages_put_beforehand() {
    let server = start();
    let args = ["--mix", "take", "--fill", "100", "--count", "150", "--json"];
    let report = report(&bench(&server, &[&args[..], &["--queues", "1"]].concat()));
    assert_eq!(
        (&report["takes"], &report["empty"]),
        (&150.into(), &50.into())
    );
    assert_eq!(ready(&server), 0);
}

#[test]
fn it_prints_for_people_too() {
    let server = start();
    let output = bench(&server, &["--count", "100"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["put+take of 64 B over memcache", "requests/s", "p99.9"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn another_machine_needs_remote() {
    let output = quintet(&["bench", "--target", "192.0.2.1:22133"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && text.contains("--remote"),
        "{text}"
    );
}

#[test]
fn polls_wait_and_each_send_wakes_one() {
    let server = speaking("sqs");
    let pid = server.child.id().to_string();
    for (queues, sends) in [("40", "100"), ("7", "20"), ("1", "5")] {
        let args = [
            &["--protocol", "sqs", "--polls", "40", "--queues", queues][..],
            &["--count", sends, "--size", "1KiB", "--pid", &pid, "--json"],
        ];
        let report = report(&bench(&server, &args.concat()));
        assert_eq!(report["sends"].to_string(), sends, "{queues}");
        // Over two sockets: no machine is as fast.
        assert!(report["wake"]["p50_us"].as_f64().is_some_and(|us| us > 3.0));
        assert!(
            report["resident"]
                .as_u64()
                .is_some_and(|bytes| bytes > 1 << 20)
        );
        assert_eq!(ready(&server), 0, "{queues}: left messages");
    }
    let output = bench(
        &server,
        &["--protocol", "sqs", "--polls", "5", "--count", "5"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("5 polls over 5 queues"), "{text}");
    for wrong in [
        &["--polls", "5"][..],
        &["--protocol", "sqs", "--polls", "0"],
        &["--protocol", "sqs", "--polls", "5", "--queues", "6"],
        &["--protocol", "sqs", "--polls", "5", "--depth", "2"],
        &["--protocol", "sqs", "--pid", "1"],
    ] {
        assert!(!bench(&server, wrong).status.success(), "{wrong:?}");
    }
}
