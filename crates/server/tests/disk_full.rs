//! A disk that is really full: a small file system of the server's own, in a
//! mount namespace that goes with it. Where the system forbids that, the
//! test fails unless it is told to stay out; the log's own tests cover full
//! disks on a simulated one.

mod common;

use std::process::Command;

use common::{Server, Start, noise};

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
    for sync in ["always", "never"] {
        let mount = dir.path().join(sync);
        std::fs::create_dir(&mount).unwrap();
        let data = mount.join("data");
        let config = dir.path().join("small.toml");
        std::fs::write(
            &config,
            "segment_bytes = '4MiB'\nspare_segments = 1\nlog_bytes = '8MiB'\n",
        )
        .unwrap();
        let script = "mount -t tmpfs -o size=24m tmpfs \"$1\" && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(&unshare)
            .args(["sh", "-c", script, "sh"])
            .arg(&mount);
        let start = Start {
            sync: Some(sync),
            listen: &["memcache=127.0.0.1:0", "http=127.0.0.1:0"],
            ..Start::default()
        };
        let serve = Server::command(&data, &start);
        command.arg(serve.get_program()).args(serve.get_args());
        command.arg("--config").arg(&config);
        let server = Server::await_ready(&data, command);

        let body = noise(50_000);
        let mut client = server.client();
        let mut stored = 0;
        loop {
            client.send(format!("set w 0 0 {}\r\n", body.len()).as_bytes());
            client.send(&body);
            client.send(b"\r\n");
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
            assert!(stored < 1000, "48 MB do not fit 24");
        }
        // Whoever sends work elsewhere when asked is told so; it lives.
        let ready = common::page(&server, "/readyz");
        assert_eq!(ready, (503, "503 - the disk is full".to_owned()));
        assert_eq!(common::page(&server, "/healthz"), (200, "ok".to_owned()));
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
        // Empty segments go, space returns, and with it the puts.
        let began = std::time::Instant::now();
        loop {
            let mut client = server.client();
            client.send(b"set w 0 0 2\r\nhi\r\n");
            if client.until(b"\r\n") == b"STORED\r\n" {
                client.take("w", b"hi");
                assert_eq!(common::page(&server, "/readyz"), (200, "ok".to_owned()));
                break;
            }
            assert!(
                began.elapsed() < common::PATIENCE,
                "{sync}: never recovered"
            );
        }
        assert!(server.stop().success());
    }
}
