//! A disk that is really full: a small file system of the server's own, in a
//! mount namespace that goes with it. Where the system forbids that, the
//! test fails unless it is left out by its filter; the log's own tests cover full
//! disks on a simulated one.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Server, Start, await_that, noise, quintet, text};

/// Set to leave these tests out where nothing can be mounted, knowingly.
const LEAVE_OUT: &str = "QUINTET_TEST_NO_MOUNT";

/// The options of `unshare` with which a file system can be mounted here: as
/// root, or as root of a user namespace of one's own.
fn unshare(dir: &std::path::Path) -> Vec<&'static str> {
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\"";
    for options in [vec!["--mount"], vec!["--map-root-user", "--mount"]] {
        let tried = Command::new("unshare")
            .args(&options)
            .args(["sh", "-c", script, "sh"])
            .arg(dir)
            .output();
        if tried.is_ok_and(|output| output.status.success()) {
            return options;
        }
    }
    panic!("no file system can be mounted here: run as root, or set {LEAVE_OUT}=1");
}

#[test]
fn a_full_disk_refuses_puts_and_recovers() {
    if std::env::var_os(LEAVE_OUT).is_some() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let unshare = unshare(dir.path());
    // The last one has the defaults of a server: its files of the log grow with what they hold.
    for (sync, mib, config) in [
        ("always", 24, "log_bytes = '8MiB'\n"),
        ("never", 24, "log_bytes = '8MiB'\n"),
        ("50ms", 64, "segment_bytes = '64MiB'\nspare_segments = 2\n"),
    ] {
        let mount = dir.path().join(sync);
        std::fs::create_dir(&mount).unwrap();
        let data = mount.join("data");
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs \"$1\" && shift && exec \"$@\"");
        let mut command = Command::new("unshare");
        command
            .args(&unshare)
            .args(["sh", "-c", &script, "sh"])
            .arg(&mount);
        let start = Start::of(config)
            .sync(sync)
            .listen(&["memcache=0", "http=0"]);
        let serve = Server::command_at(&data, &dir.path().join("small.toml"), &start);
        command.arg(serve.get_program()).args(serve.get_args());
        let server = Server::await_ready(&data, command);

        let body = noise(50_000);
        let mut stored = 0;
        let mut fill = || {
            // A body that is refused ends its connection.
            let mut client = server.client();
            loop {
                client.try_send(format!("set w 0 0 {}\r\n", body.len()).as_bytes());
                client.try_send(&body);
                client.try_send(b"\r\n");
                match &client.until(b"\r\n")[..] {
                    b"STORED\r\n" => stored += 1,
                    refused => {
                        assert_eq!(
                            refused, b"SERVER_ERROR disk full\r\n",
                            "{sync} after {stored}"
                        );
                        break;
                    }
                }
                assert!(stored < mib * 40, "twice as much as fits");
            }
        };
        // Whoever sends work elsewhere when asked is told so; it lives. Files that go later make
        // room, and it is ready until that is filled too.
        await_that("it is not ready", || {
            fill();
            let ready = crate::common::page(&server, "/readyz");
            ready == (503, "503 - the disk is full".to_owned())
        });
        assert_eq!(
            crate::common::page(&server, "/healthz"),
            (200, "ok".to_owned())
        );
        // A large body is refused too, and nothing is left of it.
        let mut large = server.client();
        large.try_send(b"set v 0 0 300000\r\n");
        large.try_send(&noise(300_000));
        large.try_send(b"\r\n");
        // What was acknowledged is all there, and can be taken.
        let mut client = server.client();
        for _ in 0..stored {
            client.take("w", &body);
        }
        client.take_nothing("w");
        // The server removes empty segments. The space returns, and the server takes puts again.
        await_that(&format!("{sync}: puts are refused"), || {
            let mut client = server.client();
            client.send(b"set w 0 0 2\r\nhi\r\n");
            let stored = client.until(b"\r\n") == b"STORED\r\n";
            if stored {
                client.take("w", b"hi");
            }
            stored
        });
        // The disk may be full once more until the next files go.
        await_that("it stays full", || {
            crate::common::page(&server, "/readyz") == (200, "ok".to_owned())
        });
        assert!(server.stop().success());
    }
}

/// A server on a file system of its own.
struct Small {
    server: Server,
    /// The file system, as others see it.
    mount: PathBuf,
    data: PathBuf,
}

impl Small {
    fn start(dir: &Path, mib: u64, sync: &str, config: &str, listen: &[&str]) -> Self {
        let mount = dir.join(sync);
        std::fs::create_dir(&mount).unwrap();
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs \"$1\" && shift && exec \"$@\"");
        let mut command = Command::new("unshare");
        command
            .args(unshare(dir))
            .args(["sh", "-c", &script, "sh"])
            .arg(&mount);
        let start = Start::of(config).sync(sync).listen(listen);
        let data = mount.join("data");
        let serve = Server::command_at(&data, &dir.join("small.toml"), &start);
        command.arg(serve.get_program()).args(serve.get_args());
        let server = Server::await_ready(&data, command);
        let root = PathBuf::from(format!("/proc/{}/root", server.child.id()));
        let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap());
        Self {
            mount: inside(&mount),
            data: inside(&data),
            server,
        }
    }

    /// Takes all free space. Repeated, it also takes the space that the server has freed since.
    fn fill(&self) {
        let mut options = std::fs::File::options();
        let options = options.create(true).append(true);
        let mut filler = options.open(self.mount.join("filler")).unwrap();
        for len in [1 << 20, 4096] {
            while filler.write_all(&vec![0; len]).is_ok() {}
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.mount.join("filler")).unwrap();
    }

    fn stat(&self, of: &[&str], key: &str) -> u64 {
        let output = quintet(&["stats", "--json", "--data"])
            .arg(&self.data)
            .args(of)
            .output()
            .unwrap();
        let stats = text(&output.stdout);
        let start = format!("\"{key}\":");
        let (_, after) = stats.split_once(start.as_str()).expect("a number");
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    fn await_stat(&self, of: &[&str], key: &str, value: u64) {
        await_that(&format!("{key} is {value}"), || self.stat(of, key) == value);
    }
}

fn is_left_out() -> bool {
    std::env::var_os(LEAVE_OUT).is_some()
}

/// The first segment was the only one not made ahead: when the disk became
/// full in it puts and takes hung.
#[test]
fn a_disk_that_becomes_full_in_the_first_segment_refuses_puts_and_serves_takes() {
    if is_left_out() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for sync in ["always", "never"] {
        let config = "segment_bytes = '8MiB'\nspare_segments = 1\n";
        let small = Small::start(dir.path(), 48, sync, config, &[]);
        let mut client = small.server.client();
        for _ in 0..6 {
            client.put("w", b"kept");
        }
        small.fill();
        let body = noise(50_000);
        let mut stored = 0;
        loop {
            client.send(format!("set w 0 0 {}\r\n", body.len()).as_bytes());
            client.send(&body);
            client.send(b"\r\n");
            match &client.until(b"\r\n")[..] {
                b"STORED\r\n" => stored += 1,
                refused => {
                    assert_eq!(refused, b"SERVER_ERROR disk full\r\n");
                    break;
                }
            }
            assert!(stored < 1000, "50 MB do not fit 48");
        }
        let mut client = small.server.client();
        for _ in 0..6 {
            client.take("w", b"kept");
        }
        for _ in 0..stored {
            client.take("w", &body);
        }
        client.take_nothing("w");
        small.free();
        small.await_stat(&[], "log_shortage", 0);
        small.server.client().put("w", b"again");
        assert!(small.server.stop().success());
    }
}

/// A disk that is too small from the start: what can be served is, and nothing
/// hangs.
#[test]
fn a_disk_without_room_for_a_segment_takes_no_puts_until_there_is() {
    if is_left_out() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = "segment_bytes = '32MiB'\nspare_segments = 1\n";
    let small = Small::start(dir.path(), 1, "always", config, &[]);
    let mut client = small.server.client();
    client.ask(b"set w 0 0 1\r\nx\r\n", b"SERVER_ERROR disk full\r\n");
    small.server.client().take_nothing("w");
    assert_eq!(small.stat(&[], "log_shortage"), 1);
    assert!(small.server.stop().success());
}

/// Files of a process may be bounded (RLIMIT_FSIZE): that is a full disk, not
/// an end by a signal.
#[test]
fn a_limit_on_the_length_of_files_is_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    for (mib, serves) in [(1, false), (5, true)] {
        let data = dir.path().join(format!("{mib}"));
        let serve = Server::command(&data, &Start::of("log_bytes = '8MiB'\n"));
        let mut command = Command::new("bash");
        let limit = format!("ulimit -f {} && exec \"$@\"", mib * 1024);
        command.args(["-c", &limit, "bash"]);
        command.arg(serve.get_program()).args(serve.get_args());
        let server = Server::await_ready(&data, command);
        let mut client = server.client();
        let body = noise(40_000);
        for _ in 0..400 {
            if serves {
                client.put("w", &body);
                client.take("w", &body);
            }
        }
        if !serves {
            client.ask(b"set w 0 0 1\r\nx\r\n", b"SERVER_ERROR disk full\r\n");
            server.client().take_nothing("w");
        }
        assert!(server.stop().success(), "{mib} MiB");
    }
}

enum TakeResult {
    Got,
    Refused,
    GaveUp,
}

/// Takes, and hangs up if the server can write nothing and does not answer.
fn take_or_give_up(small: &Small) -> TakeResult {
    const ANSWER: &[u8] = b"VALUE w 0 4\r\nkept\r\nEND\r\n";
    const REFUSED: &[u8] = b"SERVER_ERROR disk full\r\n";
    let mut consumer = TcpStream::connect(small.server.address()).unwrap();
    let wait = Duration::from_millis(20);
    consumer.set_read_timeout(Some(wait)).unwrap();
    consumer.write_all(b"get w\r\n").unwrap();
    let mut got = Vec::new();
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "after {:?}", text(&got));
        let mut some = [0; 64];
        match consumer.read(&mut some) {
            Ok(0) => panic!("closed after {:?}", text(&got)),
            Ok(n) => got.extend_from_slice(&some[..n]),
            Err(error) => {
                let kind = error.kind();
                let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                assert!(late.contains(&kind), "{error}");
                if got.is_empty() && small.stat(&[], "log_shortage") == 2 {
                    return TakeResult::GaveUp;
                }
            }
        }
        if got == ANSWER {
            return TakeResult::Got;
        }
        if got == REFUSED {
            return TakeResult::Refused;
        }
    }
}

/// Where nothing can be written at all, a client that gives up does not take
/// its message along.
#[test]
fn a_message_returns_when_its_client_stopped_waiting() {
    if is_left_out() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for sync in ["always", "never"] {
        // Names that take more than a segment: it grows beyond what was made
        // ahead.
        let config = "segment_bytes = '4MiB'\nspare_segments = 1\nlog_bytes = '8MiB'\n\
                      snapshot_bytes_max = '32MiB'\n";
        let listen = ["memcache=127.0.0.1:0", "pinpriq=127.0.0.1:0"];
        let small = Small::start(dir.path(), 160, sync, config, &listen);
        let mut client = small.server.client_of("pinpriq");
        for number in 0..90 {
            let mut name = format!("{number:06}").into_bytes();
            name.resize(65_000, b'n');
            let head = [0x70, 0xfd, 0xe8, 0, 0, 1, 0, 0, 0, 1];
            client.send(&[&head[..], b"x", &name].concat());
        }
        client.ask(&[0x50, 0, 1, b'z'], &[0, 0]);
        let mut client = small.server.client();
        // Through what one segment has beside its snapshot, and into the next.
        let body = noise(50_000);
        for _ in 0..160 {
            client.send(format!("set w 0 0 {}\r\n", body.len()).as_bytes());
            client.send(&body);
            client.send(b"\r\n");
            assert_eq!(text(&client.until(b"\r\n")), "STORED\r\n");
            client.take("w", &body);
        }
        // Their takes need many pages of the file. A full disk leaves the rest of one.
        const COUNT: u64 = 600;
        for _ in 0..COUNT {
            client.put("w", b"kept");
        }
        // Take after take, until one cannot be written: its client gives up.
        let mut taken = 0;
        let mut given_up = 0;
        let began = Instant::now();
        loop {
            assert!(
                began.elapsed() < PATIENCE && taken < COUNT,
                "{sync}: {taken} taken, {given_up} given up, never refused"
            );
            // The server frees space in the background, when it retires segments: one fill before
            // all takes would leave room for all of them.
            small.fill();
            match take_or_give_up(&small) {
                TakeResult::Got => taken += 1,
                TakeResult::GaveUp => given_up += 1,
                // Only the first client whose take cannot be written waits in vain.
                TakeResult::Refused if given_up > 0 => break,
                // The server's own next segment found the disk full first: all over again.
                TakeResult::Refused => {
                    small.free();
                    small.await_stat(&[], "log_shortage", 0);
                }
            }
        }
        // All that nobody got is there again.
        small.await_stat(&["w"], "ready", COUNT - taken);
        small.free();
        small.await_stat(&[], "log_shortage", 0);
        let mut client = small.server.client();
        for _ in taken..COUNT {
            client.take("w", b"kept");
        }
        client.take_nothing("w");
        assert!(small.server.stop().success());
    }
}
