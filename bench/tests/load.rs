//! Loads against servers in this process.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use quintet_bench::{Load, Mix, Protocol, Report, Target, serve_echo};

/// Longer than any of these loads takes: their counts end them.
const LONG: Duration = Duration::from_secs(60);

fn echo() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It serves until the tests' process ends.
    thread::spawn(|| serve_echo(listener, None));
    Target::Tcp(address)
}

fn load(target: Target, count: u64) -> Load {
    let mut load = Load::new(target, Protocol::named("echo").unwrap());
    load.time = LONG;
    load.count = Some(count);
    load
}

fn run(load: &Load) -> Report {
    load.run(&mut |_| {}).unwrap()
}

#[test]
fn a_closed_loop_sends_the_configured_number_of_requests() {
    for (connections, depth, threads) in [(1, 1, 1), (10, 1, 2), (7, 16, 3)] {
        let mut load = load(echo(), 1000);
        (load.connections, load.depth, load.threads) = (connections, depth, threads);
        let report = run(&load);
        assert_eq!((report.requests, report.unanswered), (1000, 0));
        assert_eq!(report.puts + report.takes, 1000);
        assert!(report.seconds > 0.0 && report.latency.max_us >= report.latency.p50_us);
    }
}

/// The synced echo answers everything, and what it answered is in its file.
#[test]
fn the_synced_echo_answers_what_is_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("echo");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    let path = file.clone();
    thread::spawn(move || serve_echo(listener, Some(&path)));
    for (connections, depth) in [(1, 1), (10, 1), (7, 16)] {
        let mut load = load(target.clone(), 300);
        (load.connections, load.depth) = (connections, depth);
        let report = run(&load);
        assert_eq!((report.requests, report.unanswered), (300, 0));
    }
    let size = load(target, 1).size;
    let bytes = std::fs::read(&file).unwrap();
    let (written, rest) = bytes.split_at(900 * size);
    let body = &bytes[..size];
    assert!(written.chunks(size).all(|request| request == body));
    assert!(body.iter().any(|&byte| byte != 0) && rest.iter().all(|&byte| byte == 0));
}

#[test]
fn the_mix_is_kept() {
    let mut load = load(echo(), 400);
    (load.connections, load.mix) = (1, Mix::parse("3:1").unwrap());
    let report = run(&load);
    assert_eq!((report.puts, report.takes), (300, 100));
}

#[test]
fn a_fixed_rate_sends_every_request_and_no_faster() {
    let mut load = load(echo(), 300);
    (load.rate, load.threads, load.depth) = (Some(1000.0), 2, 4);
    let start = Instant::now();
    let report = run(&load);
    assert_eq!((report.requests, report.unanswered), (300, 0));
    // The last is due 299 ms after the first.
    assert!(start.elapsed() >= Duration::from_millis(299));
}

#[test]
fn messages_larger_than_any_buffer_go_and_come() {
    let mut load = load(echo(), 8);
    (load.connections, load.size) = (2, 8 << 20);
    assert_eq!(run(&load).requests, 8);
}

#[test]
fn idle_connections_stay_open_and_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        // Idle ones come first; then one that is echoed.
        let idle: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let (mut busy, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        while busy.read_exact(&mut bytes).is_ok() {
            busy.write_all(&bytes).unwrap();
        }
        let silent = |mut stream: std::net::TcpStream| stream.read(&mut bytes).unwrap() == 0;
        idle.into_iter().all(silent)
    });
    let mut load = load(target, 10);
    (load.connections, load.idle) = (1, 3);
    assert_eq!(run(&load).requests, 10);
    assert!(server.join().unwrap());
}

#[test]
fn another_machine_is_refused_before_anything_is_sent() {
    // 192.0.2.0/24 is for documentation; a connection to it would hang.
    let target = Target::parse("192.0.2.1:22133").unwrap();
    let error = load(target, 1).run(&mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("--remote"), "{error}");
}

#[test]
fn loads_out_of_range_are_refused() {
    let changes: [fn(&mut Load); 12] = [
        |load| load.connections = 0,
        |load| load.depth = 0,
        |load| load.size = 0,
        |load| load.size = (1 << 30) + 1,
        |load| (load.size, load.depth) = (1 << 20, 1 << 16),
        |load| load.threads = 65,
        |load| load.queues = Some(0),
        |load| load.keys = Some(2),
        |load| load.queue = "a b".into(),
        |load| load.time = Duration::ZERO,
        |load| load.rate = Some(0.0),
        |load| load.rate = Some(f64::NAN),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        // Nobody listens: it must not come to that.
        let mut load = load(Target::local(1), 1);
        change(&mut load);
        let error = load.run(&mut |_| {}).unwrap_err().to_string();
        assert!(
            !error.contains("cannot connect"),
            "change {number}: {error}"
        );
    }
}

#[test]
fn a_wrong_or_vanishing_server_ends_the_load() {
    for (answer, why) in [(&b"ERROR\r\n"[..], "wrong reply"), (b"", "closed")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 10]).unwrap();
            stream.write_all(answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the client hangs up: a reset could overtake the answer.
            stream.read_to_end(&mut Vec::new()).ok();
        });
        let mut load = Load::new(target, Protocol::named("memcache").unwrap());
        (load.connections, load.time) = (1, LONG);
        let error = load.run(&mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        server.join().unwrap();
    }
}
