//! `quintet check`, `repair` and `backup` where messages are in run files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Client, Data, Server, Start, quintet, text};
use crate::runs::runs_in;
use serde_json::Value;

/// The least memory that works, and a short log: nearly everything is in runs.
const LITTLE: &str = "memory = \"32MiB\"\nlog_bytes = \"8MiB\"\nsegment_bytes = \"4MiB\"\n";

fn start(data: &Path) -> Server {
    Start::of(LITTLE).sync("50ms").serve_at(data)
}

/// A kilobyte, so that few messages are more than memory holds.
fn body(number: u64) -> String {
    format!("{number:01000}")
}

/// Puts these, many at a time.
fn fill(client: &mut Client, numbers: std::ops::Range<u64>) {
    let all: Vec<u64> = numbers.collect();
    for some in all.chunks(500) {
        let put = |&number: &u64| format!("set work 0 0 1000\r\n{}\r\n", body(number));
        client.send(some.iter().map(put).collect::<String>().as_bytes());
        client.expect(&b"STORED\r\n".repeat(some.len()));
    }
}

/// Takes up to `count`, as they come.
fn take(client: &mut Client, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    client.send(&b"get work\r\n".repeat(count));
    for _ in 0..count {
        let head = text(&client.until(b"\r\n"));
        if head != "END\r\n" {
            let body = text(&client.exact(1000));
            client.expect(b"\r\nEND\r\n");
            numbers.push(body.parse().expect("a number"));
        }
    }
    numbers
}

/// Takes all that is there.
fn drain(client: &mut Client) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let some = take(client, 100);
        let end = some.len() < 100;
        numbers.extend(some);
        if end {
            return numbers;
        }
    }
}

/// Each number that does not follow the one before, behind that.
fn breaks(numbers: &[u64]) -> Vec<(u64, u64)> {
    let pairs = numbers.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|&(a, b)| a + 1 != b).collect()
}

/// The exit code of a command, and what it says.
fn tool(args: &[&str], data: &Path) -> (i32, String) {
    let output = quintet(args)
        .arg("--data")
        .arg(data)
        .output()
        .expect("runs");
    let says = text(&output.stdout) + &text(&output.stderr);
    (output.status.code().expect("an exit code"), says)
}

fn json(args: &[&str], data: &Path) -> Value {
    let output = quintet(args)
        .arg("--data")
        .arg(data)
        .output()
        .expect("runs");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A stopped server's directory with messages 0 to `count` of which the first
/// 1000 were taken.
fn backlog(data: &Path, count: u64) {
    let server = start(data);
    let mut client = server.client();
    fill(&mut client, 0..count);
    for number in 0..1000 {
        client.take("work", body(number).as_bytes());
    }
    assert!(server.stop().success());
    assert!(!runs_in(data).is_empty());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 0x40;
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn a_damaged_block_is_found_and_its_messages_are_named() {
    const COUNT: u64 = 30_000;
    let data = Data::fresh();
    backlog(&data, COUNT);
    std::fs::write(data.join("run-00000-4294967295.tmp"), b"unfinished").expect("written");
    let (code, says) = tool(&["check"], &data);
    assert_eq!(code, 0, "{says}");
    assert!(
        says.contains("no damage") && says.contains("runs, "),
        "{says}"
    );
    assert!(says.contains("1 unfinished files of runs"), "{says}");

    let run = runs_in(&data).pop().expect("a run");
    flip(&run, 5000);
    let name = run
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let (code, says) = tool(&["check"], &data);
    assert_eq!(code, 3, "{says}");
    let place = format!("{name} at byte 128, block 0");
    assert!(
        says.contains(&place) && says.contains("of the queue work"),
        "{says}"
    );
    let found = json(&["check", "--json"], &data);
    assert_eq!(found["runs"]["damaged"][0]["offset"], 128);

    let (code, says) = tool(&["repair"], &data);
    assert_eq!(code, 0, "{says}");
    assert!(says.contains("ids "), "{says}");
    assert!(run.exists(), "messages outside of the damage are served");
    let found = json(&["repair", "--json"], &data);
    let ids = found["runs"]["lost"][0]["ids"].as_array().expect("ids");
    let ids: BTreeSet<u64> = ids.iter().filter_map(Value::as_u64).collect();
    let reports = std::fs::read_dir(&data).expect("read");
    let reports = reports.filter(|file| {
        let name = file.as_ref().expect("a file").file_name();
        name.to_string_lossy().starts_with("repair-")
    });
    assert_eq!(reports.count(), 2);

    let server = start(&data);
    let served = drain(&mut server.client());
    // The first message has id 1.
    let missing: BTreeSet<u64> = (1000..COUNT)
        .filter(|number| served.binary_search(number).is_err())
        .map(|number| number + 1)
        .collect();
    assert!(!missing.is_empty());
    assert_eq!(missing, ids);
}

#[test]
fn a_missing_run_is_named_and_only_a_repair_continues_without_it() {
    const COUNT: u64 = 30_000;
    for kept in [false, true] {
        let data = Data::fresh();
        backlog(&data, COUNT);
        let runs = runs_in(&data);
        assert!(runs.len() > 1);
        let run = &runs[0];
        if kept {
            std::fs::write(run, vec![7; 100_000]).expect("written");
        } else {
            std::fs::remove_file(run).expect("removed");
        }
        let (code, says) = tool(&["check"], &data);
        assert_eq!(code, 3, "{says}");
        assert!(says.contains("missing: run-"), "{says}");
        let mut refused = Server::command(&data, &Start::of(LITTLE));
        let refused = refused.output().expect("runs");
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("quintet repair"));

        let found = json(&["repair", "--json"], &data);
        let lost = found["runs"]["lost"][0]["messages"]
            .as_u64()
            .expect("a count");
        let mut aside = run.as_os_str().to_owned();
        aside.push(".damaged");
        assert_eq!(Path::new(&aside).exists(), kept, "nothing is deleted");
        let (code, says) = tool(&["check"], &data);
        assert_eq!(code, 0, "{says}");
        let server = start(&data);
        let served = drain(&mut server.client());
        assert!(served.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(served.len() as u64 + lost, COUNT - 1000);
    }
}

#[test]
fn a_run_that_only_a_lost_part_of_the_log_may_have_named_is_set_aside_by_a_repair() {
    let data = Data::fresh();
    backlog(&data, 30_000);
    let run = runs_in(&data).pop().expect("a run");
    let name = "run-00000-4294960000.qrun";
    let unnamed = data.join(name);
    std::fs::copy(run, &unnamed).expect("copied");
    let lost = || -> Vec<String> {
        let found = json(&["repair", "--json"], &data);
        let lost = found["lost"].as_array().expect("losses").iter();
        lost.filter_map(|range| range["file"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(lost(), [""; 0]);
    assert!(unnamed.exists(), "the next start deletes it");

    let files = std::fs::read_dir(&data).expect("read");
    let files = files.map(|file| file.expect("a file").file_name().into_string());
    let segments = files.flatten().filter(|name| name.starts_with("segment-"));
    let oldest = segments.min().expect("a segment");
    std::fs::remove_file(data.join(oldest)).expect("removed");
    assert!(lost().contains(&name.to_owned()));
    assert!(!unnamed.exists() && data.join(format!("{name}.damaged")).exists());
    assert_eq!(tool(&["check"], &data).0, 0);
}

/// Ends the load, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_backup_of_a_busy_server_has_the_runs_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(&folder.path().join("data"));
    fill(&mut server.client(), 0..30_000);
    let (put, taken) = (AtomicU64::new(30_000), AtomicU64::new(0));
    // The load leaves the processors to the commands, too.
    let pause = || std::thread::sleep(Duration::from_millis(10));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::SeqCst) {
                pause();
                let from = put.load(Ordering::SeqCst);
                // A backlog that stays about as long, and ends some day.
                if from > taken.load(Ordering::SeqCst) + 36_000 {
                    continue;
                }
                if from > 3_000_000 {
                    return;
                }
                fill(&mut client, from..from + 2000);
                put.store(from + 2000, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            let mut client = server.client();
            while !stop.load(Ordering::SeqCst) {
                pause();
                let from = taken.load(Ordering::SeqCst);
                if from + 24_000 > put.load(Ordering::SeqCst) {
                    continue;
                }
                let numbers = take(&mut client, 500);
                assert_eq!((numbers.first(), numbers.len()), (Some(&from), 500));
                assert_eq!(breaks(&numbers), [], "behind {from}");
                taken.store(from + 500, Ordering::SeqCst);
            }
        });
        let _stop = Stop(&stop);
        let mut runs = 0;
        for attempt in 0..2 {
            let copy = folder.path().join(format!("copy-{attempt}"));
            let before = (taken.load(Ordering::SeqCst), put.load(Ordering::SeqCst));
            let (code, says) = tool(&["backup", copy.to_str().expect("a name")], &server.data);
            let after = (taken.load(Ordering::SeqCst), put.load(Ordering::SeqCst));
            assert_eq!(code, 0, "{says}");
            let (code, says) = tool(&["check"], &copy);
            assert_eq!(code, 0, "{says}");
            // Before a start, which clears away what is not needed.
            runs += runs_in(&copy).len();
            let restored = start(&copy);
            let numbers = drain(&mut restored.client());
            assert_eq!(breaks(&numbers), [], "{before:?} {after:?}");
            let first = *numbers.first().expect("messages");
            let behind = *numbers.last().expect("messages") + 1;
            assert!(
                (before.0..=after.0 + 500).contains(&first),
                "{first}: {before:?}"
            );
            assert!(
                (before.1..=after.1 + 2000).contains(&behind),
                "{behind}: {before:?}"
            );
        }
        assert!(runs > 0);
    });
    // One that runs may be checked too.
    let (code, says) = tool(&["check"], &server.data);
    assert_eq!(code, 0, "{says}");
}

#[test]
fn messages_in_runs_are_exported_and_not_selectable_ones_last() {
    const COUNT: u64 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(&folder.path().join("data"));
    let path = folder.path().join("hand.jsonl");
    let line = |number: u64| {
        let state = if number % 20 == 7 { "buried" } else { "ready" };
        let held = number.is_multiple_of(3);
        format!(
            "{{\"queue\":\"work\",\"state\":\"{state}\",\"priority\":{},\"not_selectable\":{held},\"body\":\
             \"{}\"}}\n",
            number % 5,
            body(number)
        )
    };
    std::fs::write(&path, (0..COUNT).map(line).collect::<String>()).expect("written");
    let (code, says) = tool(&["import", path.to_str().expect("a name")], &server.data);
    assert_eq!(code, 0, "{says}");
    assert!(!runs_in(&server.data).is_empty());
    let output = server.run(&["export", "work", "--quiet"]);
    assert!(output.status.success());
    let mut orders = Vec::new();
    for line in text(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).expect("JSON");
        let number = |field: &str| message[field].as_u64().unwrap_or(0);
        let id = number("id");
        assert_eq!(message["body"], body(id - 1));
        orders.push(match message["state"].as_str() {
            Some("ready") => (message["not_selectable"] == true, number("priority"), id, 0),
            _ => (true, u64::MAX, 0, number("bury_order")),
        });
    }
    assert_eq!(orders.len() as u64, COUNT);
    assert!(orders.windows(2).all(|pair| pair[0] < pair[1]));
}
