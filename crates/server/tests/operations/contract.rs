//! The contract with supervisors: how the server starts, notifies, reloads and ends.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use crate::common::{Client, Data, PATIENCE, Server, Start, await_that, quintet, text};
use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::Signal;

#[test]
fn the_server_prints_its_listeners_then_ready() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("m.sock");
    let unix = format!("memcache=unix:{}", socket.display());
    let server = Start::default()
        .listen(&["memcache=0", &unix, "memcache=0"])
        .serve_at(&dir.path().join("data"));
    let [first, second, third, ready] = &server.lines[..] else {
        panic!("{:?}", server.lines);
    };
    assert!(
        first.starts_with("listening memcache 127.0.0.1:"),
        "{first}"
    );
    assert!(!first.ends_with(":0"), "{first}");
    assert_eq!(*second, format!("listening {unix}").replace('=', " "));
    assert_ne!(first, third);
    assert_eq!(ready, "quintet ready");
    let mut by_unix = Client::unix(&socket);
    by_unix.put("w", b"by unix");
    server.client().take("w", b"by unix");
    assert!(server.stop().success());
    assert!(!socket.exists(), "the socket file is removed");
}

#[test]
fn the_server_prints_its_console_and_that_it_is_open() {
    let printed = |config: &str, listen: &[&str]| {
        let server = Start::of(config).listen(listen).serve();
        let reported = |start: &str| {
            let lines = server.lines.iter();
            let reported = lines.filter_map(|line| line.strip_prefix(start));
            reported.map(str::to_owned).collect::<Vec<_>>()
        };
        (
            reported("console: "),
            reported("listening http "),
            reported("no users"),
        )
    };
    // Of several listeners the first one.
    let (console, http, open) = printed("", &["memcache=0", "http=0", "http=0"]);
    assert_eq!(console, [format!("http://{}/", http[0])]);
    assert_eq!(open.len(), 1);
    let users = "[[user]]\nname = 'ann'\n";
    let (console, http, open) = printed(users, &["http=0"]);
    assert_eq!(console, [format!("http://{}/", http[0])]);
    assert!(open.is_empty(), "{open:?}");
    let (console, _, open) = printed("", &["memcache=0"]);
    assert!(
        console.is_empty() && open.is_empty(),
        "{console:?} {open:?}"
    );
}

#[test]
fn messages_survive_stop_and_kill_in_every_sync_mode() {
    let threads = ["", "io_threads = 4\n"];
    let modes = ["always", "50ms", "never"].map(|sync| threads.map(|threads| (sync, threads)));
    for (sync, threads) in modes.into_iter().flatten() {
        let data = Data::fresh();
        let start = || Start::of(threads).sync(sync).serve_at(&data);
        let server = start();
        let mut client = server.client();
        client.put("w", b"one");
        client.put("w", b"two");
        client.put("w", b"three");
        client.take("w", b"one");
        assert!(server.stop().success(), "{sync}");
        client.expect_end();

        let server = start();
        server.client().take("w", b"two");
        server.kill();

        let server = start();
        let mut client = server.client();
        client.take("w", b"three");
        client.take_nothing("w");
        assert!(server.stop().success(), "{sync}");
    }
}

#[test]
fn an_open_read_comes_back_after_a_kill() {
    let data = Data::fresh();
    let server = Server::start(&data);
    let mut client = server.client();
    client.put("w", b"one");
    client.put("w", b"two");
    client.send(b"get w/open\r\n");
    client.expect_value("w", b"one");
    server.kill();
    let server = Server::start(&data);
    let mut client = server.client();
    client.take("w", b"one");
    client.take("w", b"two");
}

#[test]
fn a_directory_serves_one_server() {
    let data = Data::fresh();
    let server = Server::start(&data);
    let second = Start::default().output(&data);
    assert!(!second.status.success());
    let error = text(&second.stderr);
    assert!(
        error.contains(&server.child.id().to_string()),
        "names the process: {error}"
    );
    assert!(second.stdout.is_empty(), "never ready");
    server.client().put("w", b"still served");
}

#[test]
fn a_port_in_use_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("a"));
    let listen = format!("memcache={}", server.address());
    let second = Start::default()
        .listen(&[&listen])
        .output(&dir.path().join("b"));
    assert_eq!(second.status.code(), Some(1));
    let error = text(&second.stderr);
    assert!(
        error.contains(server.address()) && error.contains("--listen"),
        "{error}"
    );
}

#[test]
fn wrong_settings_are_refused_by_name() {
    let data = Data::fresh();
    for (config, listen, says) in [
        ("sinc = 'always'", "memcache=0", "did you mean \"sync\""),
        ("sync = 'soon'", "memcache=0", "sync takes"),
        (
            "[[listen]]\nprotocol = 'memcached'",
            "memcache=0",
            "did you mean \"memcache\"",
        ),
        (
            "[[listen]]\nprotocol = 'memcache'\nmax_item_sise = 1",
            "memcache=0",
            "did you mean",
        ),
        ("", "memcache", "PROTOCOL=ADDRESS"),
        ("", "memcache=nowhere", "HOST:PORT"),
        ("", "smtp=25", "unknown protocol"),
    ] {
        let output = Start::of(config).listen(&[listen]).output(&data);
        assert_eq!(output.status.code(), Some(1), "{config}");
        assert!(
            text(&output.stderr).contains(says),
            "{says}: {}",
            text(&output.stderr)
        );
        assert!(!data.exists(), "nothing was made");
    }
}

#[test]
fn the_printed_configuration_starts_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let printed = quintet(&["serve", "--print-config", "--listen", "memcache=0"])
        .output()
        .unwrap();
    assert!(printed.status.success());
    let data = dir.path().join("data");
    let server = Start::of(&text(&printed.stdout)).serve_at(&data);
    server.client().put("w", b"x");
}

#[test]
fn sighup_reloads_queue_settings_and_keeps_connections() {
    let data = Data::fresh();
    let server = Start::of("[[queue]]\nname = 'w'\nmessages_max = 1").serve_at(&data);
    let mut client = server.client();
    client.put("w", b"1");
    client.ask(b"set w 0 0 1\r\n2\r\n", b"NOT_STORED\r\n");
    server.configure("[[queue]]\nname = 'w'\nmessages_max = 2");
    server.signal(Signal::HUP);
    // The reload is an event of the server's own; asking is how a client sees it.
    await_that("never reloaded", || {
        client.send(b"set w 0 0 1\r\n2\r\n");
        client.until(b"\r\n") == b"STORED\r\n"
    });
    client.take("w", b"1");
    client.take("w", b"2");
}

#[test]
fn sigusr1_drains() {
    let server = Server::fresh();
    let mut client = server.client();
    let mut other = server.client();
    client.put("w", b"before");
    server.signal(Signal::USR1);
    await_that("never drained", || {
        let mut prober = server.client();
        prober.send(b"set v 0 0 1\r\nx\r\n");
        prober.until(b"\r\n") != b"STORED\r\n"
    });
    other.take("w", b"before");
    assert!(server.stop().success());
}

#[test]
fn a_stop_answers_decided_requests_and_ends_waits() {
    let server = Server::fresh();
    let mut waiting = server.client();
    waiting.send(b"version\r\nget w/t=3600000\r\n");
    waiting.until(b"\r\n");
    assert!(server.stop().success());
    // As if its time were over.
    waiting.expect(b"END\r\n");
    waiting.expect_end();
}

#[test]
fn systemd_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = Server::command(&dir.path().join("data"), &Start::default())
        .env("NOTIFY_SOCKET", &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let reported = || {
        let mut reported = [0; 64];
        loop {
            match socket.recv(&mut reported) {
                Ok(n) => return reported[..n].to_vec(),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("nothing was printed: {error}"),
            }
        }
    };
    assert_eq!(reported(), b"READY=1");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert_eq!(reported(), b"STOPPING=1");
    assert!(child.wait().unwrap().success());
}

/// A server to which these sockets are handed as systemd hands them.
fn activated(data: &Path, start: &Start<'_>, sockets: Vec<OwnedFd>) -> Command {
    let server = Server::command(data, start);
    let mut command = Command::new("sh");
    // The number of the process is known to itself alone.
    command
        .arg("-c")
        .arg("LISTEN_PID=$$ exec \"$@\"")
        .arg("sh")
        .arg(server.get_program())
        .args(server.get_args())
        .env_remove("NOTIFY_SOCKET")
        .env("LISTEN_FDS", sockets.len().to_string());
    let mappings = sockets.into_iter().zip(3..);
    let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping {
        parent_fd,
        child_fd,
    });
    command.fd_mappings(mappings.collect()).unwrap();
    command
}

#[test]
fn systemd_hands_over_sockets_and_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path = dir.path().join("socket");
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(&path, mode).unwrap();
    let address = tcp.local_addr().unwrap();
    let listen = [
        format!("memcache={address}"),
        format!("beanstalk=unix:{}", path.display()),
    ];
    let listen = [listen[0].as_str(), listen[1].as_str()];
    let start = Start::default().listen(&listen);
    let data = dir.path().join("data");
    // Who comes before the server does is served.
    let mut early = Client::tcp(&address.to_string());
    early.send(b"set q 0 0 1\r\nx\r\n");
    let sockets = vec![
        tcp.try_clone().unwrap().into(),
        unix.try_clone().unwrap().into(),
    ];
    let server = Server::await_ready(&data, activated(&data, &start, sockets));
    early.expect(b"STORED\r\n");
    let mut client = Client::unix(&path);
    client.send(b"list-tubes\r\n");
    client.until(b"- q\n");
    assert!(server.stop().success());
    // They are systemd's: the next one begins where this one ended.
    let mode = std::fs::metadata(&path).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o640
    );
    let mut between = Client::tcp(&address.to_string());
    between.send(b"get q\r\n");
    let sockets = vec![
        tcp.try_clone().unwrap().into(),
        unix.try_clone().unwrap().into(),
    ];
    let server = Server::await_ready(&data, activated(&data, &start, sockets));
    between.expect_value("q", b"x");
    assert!(server.stop().success());
    // One that nobody would serve.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let named = other.local_addr().unwrap().to_string();
    let sockets = vec![tcp.into(), unix.into(), other.into()];
    let out = activated(&data, &start, sockets).output().unwrap();
    let stderr = text(&out.stderr);
    assert!(!out.status.success() && stderr.contains(&named), "{stderr}");
}

#[test]
fn the_watchdog_of_systemd_is_notified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for (wanted, pid) in [(true, None), (false, Some("1"))] {
        let mut command = Server::command(&dir.path().join("data"), &Start::default());
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "300000");
        if let Some(pid) = pid {
            // Another process of the service is meant.
            command.env("WATCHDOG_PID", pid);
        }
        let server = Server::await_ready(&dir.path().join("data"), command);
        let reported = || {
            let mut reported = [0; 64];
            let n = socket.recv(&mut reported).expect("a notification");
            text(&reported[..n])
        };
        while reported() != "READY=1" {}
        if wanted {
            for _ in 0..3 {
                assert_eq!(reported(), "WATCHDOG=1");
            }
        }
        server.signal(Signal::INT);
        loop {
            match reported().as_str() {
                "STOPPING=1" => break,
                other => assert!(wanted && other == "WATCHDOG=1", "{other}"),
            }
        }
        assert!(server.ended().success());
        // What was told on the way out.
        socket.set_nonblocking(true).unwrap();
        while socket.recv(&mut [0; 64]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
    }
}

#[test]
fn damage_stops_the_start_and_repair_helps() {
    let data = Data::fresh();
    let server = Server::start(&data);
    let mut client = server.client();
    for n in 0..50 {
        client.put("w", format!("message <{n}>").as_bytes());
    }
    assert!(server.stop().success());
    // A second start says in its frames that the first one's were synced.
    assert!(Server::start(&data).stop().success());

    let segment = std::fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("segment-")
        })
        .min()
        .expect("a segment");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = bytes
        .windows(12)
        // Whole: without its end it is also where another stands before a byte of the file's own.
        .position(|part| part == b"message <25>")
        .expect("the message");
    bytes[at] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();

    let refused = Start::default().output(&data);
    assert_eq!(refused.status.code(), Some(1));
    let error = text(&refused.stderr);
    let name = segment.file_name().unwrap().to_string_lossy().into_owned();
    assert!(
        error.contains(&name) && error.contains("quintet repair"),
        "{error}"
    );

    let data_arg = data.to_str().unwrap();
    let check = quintet(&["check", "--data", data_arg]).output().unwrap();
    assert_eq!(check.status.code(), Some(3), "{}", text(&check.stdout));
    let repair = quintet(&["repair", "--data", data_arg]).output().unwrap();
    assert!(repair.status.success(), "{}", text(&repair.stderr));
    let server = Server::start(&data);
    let mut client = server.client();
    for n in (0..50).filter(|n| *n != 25) {
        client.take("w", format!("message <{n}>").as_bytes());
    }
    client.take_nothing("w");
}

#[test]
fn queues_divide_over_shards() {
    let data = Data::fresh();
    let start = || {
        let config = "shards = 3\nsync = '50ms'";
        Start::of(config).serve_at(&data)
    };
    let server = start();
    let mut client = server.client();
    let queues: Vec<String> = (0..20).map(|n| format!("queue{n}")).collect();
    for queue in &queues {
        client.put(queue, b"first");
        client.put(queue, &crate::common::noise(100_000));
        client.put(queue, b"third");
    }
    client.send(b"get queue7/open\r\n");
    client.expect_value("queue7", b"first");
    // A fan-out child lives with its parent.
    client.ask(b"get queue3+copy\r\n", b"END\r\n");
    client.put("queue3", b"fourth");
    server.kill();

    let server = start();
    let mut client = server.client();
    assert_eq!(client.stat("curr_items"), 62);
    client.take("queue3+copy", b"fourth");
    for queue in &queues {
        client.take(queue, b"first");
        client.take(queue, &crate::common::noise(100_000));
    }
    client.ask(b"flush_all\r\n", b"OK\r\n");
    assert_eq!(client.stat("curr_items"), 0);
    assert!(server.stop().success());

    let refused = Start::of("shards = 2").output(&data);
    let error = text(&refused.stderr);
    assert!(error.contains("shards = 3"), "{error}");
}

/// With any umask nobody else reads messages. Scripts have the umask the operator gave.
#[test]
fn files_of_the_server_are_closed_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/bin/sh\numask\necho done >&3\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!(
        "[[queue]]\nname = 's'\nexec_prefix = ''\nscript = '{}'\n",
        script.display()
    );
    let start = Start::of(&config);
    let serve = Server::command(&data, &start);
    let mut loose = std::process::Command::new("sh");
    loose.args(["-c", "umask 013 && exec \"$@\"", "sh"]);
    loose.arg(serve.get_program()).args(serve.get_args());
    let server = Server::await_ready(&data, loose);
    server.client().put("w", b"secret");
    server.client().put("s", b"x");
    let backup = dir.path().join("backup");
    let export = dir.path().join("export");
    assert!(
        server
            .run(&["backup", backup.to_str().unwrap()])
            .status
            .success()
    );
    let to = ["export", "w", "--output", export.to_str().unwrap()];
    assert!(server.run(&to).status.success());
    let logs = || {
        walk(&data)
            .into_iter()
            .find(|path| path.ends_with("stdio.log"))
    };
    let log = crate::common::eventually("a log of the script", || {
        let text = logs().and_then(|path| std::fs::read_to_string(path).ok());
        text.filter(|text| text.contains("013"))
    });
    assert!(log.contains("0013\n"), "{log}");
    let mut seen = 0;
    for path in [walk(&data), walk(&backup), vec![export]].concat() {
        let about = std::fs::symlink_metadata(&path).unwrap();
        let mode = about.permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
        seen += 1;
    }
    assert!(seen > 10, "{seen} files");
}

/// A folder and all in it.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut at = 0;
    while at < all.len() {
        let entries = std::fs::read_dir(&all[at]).into_iter().flatten().flatten();
        all.extend(entries.map(|entry| entry.path()).collect::<Vec<_>>());
        at += 1;
    }
    all
}

#[test]
fn only_sockets_make_way_for_listeners() {
    let dir = tempfile::tempdir().unwrap();
    let precious = dir.path().join("precious");
    for (listen, config) in [
        (
            format!("memcache=unix:{}", precious.display()),
            String::new(),
        ),
        (
            "memcache=127.0.0.1:0".to_owned(),
            format!("admin_socket = '{}'\n", precious.display()),
        ),
    ] {
        std::fs::write(&precious, "mine").unwrap();
        let refused = Start::of(&config)
            .listen(&[&listen])
            .output(&dir.path().join("data"));
        let reported = text(&refused.stderr);
        assert!(
            !refused.status.success() && reported.contains("not a socket"),
            "{reported}"
        );
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
    }
    // A socket nobody listens on any more does.
    std::fs::remove_file(&precious).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&precious).unwrap());
    let listen = format!("memcache=unix:{}", precious.display());
    let server = Start::default()
        .listen(&[&listen])
        .serve_at(&dir.path().join("data"));
    Client::unix(&precious).put("w", b"x");
    // Nor is what somebody puts there meanwhile removed in the end.
    std::fs::remove_file(&precious).unwrap();
    std::fs::write(&precious, "mine").unwrap();
    assert!(server.stop().success());
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
}

#[test]
fn no_protocol_shows_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[[queue]]\nname = 's'\nscript = '/bin/true'\nenv_vars = { KEY = 'hush' }\n\
                  [[listen]]\nprotocol = 'memcache'\naddress = '127.0.0.1:0'\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nusers = 'ann:hush'\n";
    let server = Server::start_as_configured(&dir.path().join("data"), Start::of(config));
    let mut client = server.client();
    client.send(b"dump_config\r\n");
    let dumped = text(&client.until(b"END\r\n"));
    assert!(
        dumped.contains("ann:***") && !dumped.contains("hush"),
        "{dumped}"
    );
    let (status, page) = crate::common::page(&server, "/q/s/config.json");
    assert!(status == 200 && page.contains("KEY"), "{page}");
    assert!(!page.contains("hush"), "{page}");
    let path = dir.path().join("data.toml");
    let path = path.to_str().unwrap();
    let print = |more: &[&str]| {
        let args = [&["serve", "--config", path, "--print-config"], more].concat();
        text(&quintet(&args).output().unwrap().stdout)
    };
    assert!(!print(&[]).contains("hush"));
    assert!(print(&["--secrets"]).contains("ann:hush"));
}
