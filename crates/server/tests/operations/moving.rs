//! `quintet import --from`: another server's messages move here, and none is
//! lost when a process dies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::common::{Client, Server, Start, await_that, eventually, noise, quintet, text};

/// The real beanstalkd.
pub(crate) struct Beanstalkd {
    child: Child,
    address: String,
}

impl Beanstalkd {
    pub(crate) fn start(options: &[&str]) -> Self {
        // It cannot be asked for a free port, and somebody else may take this one before it does.
        for _ in 0..50 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = free.local_addr().expect("bound").port();
            drop(free);
            let mut child = Command::new("beanstalkd")
                .args(["-l", "127.0.0.1", "-p", &port.to_string()])
                .args(options)
                .stderr(Stdio::null())
                .spawn()
                .expect("beanstalkd is installed: cargo xtask test unit --yes does it");
            let address = format!("127.0.0.1:{port}");
            let listens = eventually("beanstalkd listens", || {
                let ended = child.try_wait().expect("waited").is_some();
                (ended || is_at(&address, child.id())).then_some(!ended)
            });
            if listens {
                return Self { child, address };
            }
        }
        panic!("beanstalkd does not start");
    }

    pub(crate) fn client(&self) -> Client {
        Client::tcp(&self.address)
    }

    fn from(&self) -> String {
        format!("beanstalk://{}", self.address)
    }

    /// Its statistics of a tube, or of itself.
    fn stats(&self, of: &str) -> BTreeMap<String, String> {
        let mut client = self.client();
        client.send(format!("{of}\r\nquit\r\n").as_bytes());
        let pairs = client.all();
        let pairs = pairs.lines().filter_map(|line| line.split_once(": "));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Jobs in all tubes, as `[ready, delayed, buried, reserved]`.
    fn jobs(&self) -> [u64; 4] {
        let stats = self.stats("stats");
        let count = |state| stats[&format!("current-jobs-{state}")].parse().unwrap();
        ["ready", "delayed", "buried", "reserved"].map(count)
    }
}

/// True if the beanstalkd of this process answers there.
fn is_at(address: &str, pid: u32) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"stats\r\nquit\r\n")?;
        let mut reported = String::new();
        stream.read_to_string(&mut reported)?;
        Ok(reported)
    };
    ask().is_ok_and(|reported| reported.contains(&format!("\npid: {pid}\n")))
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A put of beanstalk's protocol.
pub(crate) fn put(client: &mut Client, words: &str, body: &[u8]) {
    client.send(format!("put {words} {}\r\n", body.len()).as_bytes());
    client.send(body);
    client.ask(b"\r\n", b"INSERTED ");
    loop {
        if client.exact(1) == b"\n" {
            return;
        }
    }
}

/// `count` ready jobs of the tube `work`, whose bodies differ.
fn fill(client: &mut Client, count: usize) {
    client.ask(b"use work\r\n", b"USING work\r\n");
    for number in 0..count {
        put(client, "5 0 60", format!("job {number}").as_bytes());
    }
}

pub(crate) fn import(server: &Server, from: &str, more: &[&str]) -> Output {
    server.run(&[&["import", "--from", from], more].concat())
}

#[track_caller]
pub(crate) fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// All messages of a server, as an export tells them.
pub(crate) fn all(server: &Server) -> Vec<Value> {
    let text = done(&server.run(&["export", "--all-states"]));
    let line = |line: &str| serde_json::from_str(line).expect(line);
    text.lines().map(line).collect()
}

fn bodies(server: &Server) -> Vec<String> {
    let body = |message: &Value| message["body"].as_str().expect("a text").to_owned();
    all(server).iter().map(body).collect()
}

/// Between an import and another server: lets so many bytes of answers pass and does something,
/// which says whether it goes on. Counts them.
fn between(
    to: &str,
    bytes: usize,
    then: impl FnOnce() -> bool + Send + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let to = to.to_owned();
    let passed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&passed);
    std::thread::spawn(move || {
        let (near, _) = listener.accept().expect("a connection");
        let far = TcpStream::connect(to).expect("connected");
        let (mut from, mut into) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        std::thread::spawn(move || {
            std::io::copy(&mut from, &mut into).ok();
            into.shutdown(Shutdown::Both).ok();
        });
        let (mut from, mut into) = (far, near);
        let mut left = bytes;
        let mut then = Some(then);
        let mut some = [0; 4096];
        loop {
            let want = if then.is_some() { left.min(4096) } else { 4096 };
            let Ok(read @ 1..) = from.read(&mut some[..want]) else {
                break;
            };
            if into.write_all(&some[..read]).is_err() {
                break;
            }
            left = left.saturating_sub(read);
            count.fetch_add(read, Ordering::SeqCst);
            if left == 0
                && let Some(then) = then.take()
                && !then()
            {
                break;
            }
        }
        into.shutdown(Shutdown::Both).ok();
        from.shutdown(Shutdown::Both).ok();
    });
    (address, passed)
}

#[test]
fn all_of_a_beanstalkd_moves_with_states_priorities_and_times() {
    let server = Server::fresh();
    let old = Beanstalkd::start(&["-z", "3000000"]);
    let mut client = old.client();
    put(&mut client, "7 0 60", b"second");
    put(&mut client, "0 0 0", b"first");
    put(&mut client, "7 0 60", b"third");
    put(&mut client, "9 3600 61", b"later");
    put(&mut client, "3 0 62", b"bad");
    put(&mut client, "4 0 62", b"worse");
    for (id, priority) in [(5, 11), (6, 12)] {
        client.send(format!("reserve-job {id}\r\n").as_bytes());
        client.expect(format!("RESERVED {id} ").as_bytes());
        client.expect(if id == 5 {
            b"3\r\nbad\r\n"
        } else {
            b"5\r\nworse\r\n"
        });
        client.ask(
            format!("bury {id} {priority}\r\n").as_bytes(),
            b"BURIED\r\n",
        );
    }
    client.ask(b"use a/b;c.$_()\r\n", b"USING a/b;c.$_()\r\n");
    let large = noise(2_500_000);
    put(&mut client, "1 0 60", &large);
    put(&mut client, "1 0 60", b"");
    put(&mut client, "1 0 60", b"a\r\nb\x00");
    client.ask(b"use paused\r\n", b"USING paused\r\n");
    put(&mut client, "1 0 60", b"waits");
    client.ask(b"pause-tube paused 3600\r\n", b"PAUSED\r\n");
    // A worker has this one, and keeps it.
    client.send(b"use busy\r\nwatch busy\r\nignore default\r\n");
    client.expect(b"USING busy\r\nWATCHING 2\r\nWATCHING 1\r\n");
    put(&mut client, "1 0 60", b"held");
    client.ask(b"reserve\r\n", b"RESERVED 11 4\r\nheld\r\n");

    let counted = done(&import(&server, &old.from(), &["--dry-run"]));
    assert_eq!(
        counted,
        "a/b;c.$_(): 3 ready\nbusy: 1 reserved\ndefault: 2 buried, 1 delayed, 3 ready\n\
         paused: 1 ready\n"
    );
    assert_eq!(old.jobs(), [7, 1, 2, 1], "a dry run takes nothing");
    assert_eq!(all(&server).len(), 0, "and puts nothing");

    let output = import(&server, &old.from(), &[]);
    done(&output);
    let printed = text(&output.stderr);
    assert!(
        printed
            .lines()
            .any(|line| line.starts_with("10 messages stored (")),
        "{printed}"
    );
    assert_eq!(
        old.jobs(),
        [0, 0, 0, 1],
        "messages without a lease are gone there"
    );

    let mut bodies: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for message in all(&server) {
        let queue = message["queue"].as_str().unwrap().to_owned();
        bodies.entry(queue).or_default().push(message);
    }
    let reported = |queue: &str, field: &str| -> Vec<Value> {
        let messages = bodies[queue].iter();
        messages.map(|message| message[field].clone()).collect()
    };
    assert_eq!(
        reported("default", "body"),
        ["first", "second", "third", "later", "bad", "worse"]
    );
    assert_eq!(reported("default", "priority"), [0, 7, 7, 9, 11, 12]);
    assert_eq!(
        reported("default", "ttr_ms"),
        [1000, 60_000, 60_000, 61_000, 62_000, 62_000]
    );
    assert_eq!(
        reported("default", "state"),
        ["ready", "ready", "ready", "delayed", "buried", "buried"]
    );
    let later = &bodies["default"][3];
    let rest = later["due_ms"].as_u64().unwrap() - later["created_ms"].as_u64().unwrap();
    assert!((3_500_000..=3_602_000).contains(&rest), "{later}");
    let bad = &bodies["default"][4];
    assert_eq!((&bad["reserves"], &bad["buries"]), (&1.into(), &1.into()));
    assert_eq!(bodies["default"][0]["reserves"], Value::Null);
    assert_eq!(reported("paused", "body"), ["waits"]);
    assert!(!bodies.contains_key("busy"));
    let queue = &bodies["a/b;c.$_()"];
    assert_eq!(queue[0]["bytes"], large.len());
    assert_eq!(
        (&queue[1]["body"], &queue[2]["body"]),
        (&"".into(), &"a\r\nb\0".into())
    );
    let taken = server.run(&["take", "a/b;c.$_()"]).stdout;
    assert!(taken.starts_with(&large), "the large one");
}

#[test]
fn one_tube_moves_into_a_queue_of_another_name() {
    let server = Server::fresh();
    let old = Beanstalkd::start(&[]);
    let mut client = old.client();
    put(&mut client, "1 0 1", b"stays");
    fill(&mut client, 700);
    let from = format!("{}/work", old.from());
    done(&import(&server, &from, &["--into", "new"]));
    assert_eq!(old.jobs(), [1, 0, 0, 0]);
    let messages = all(&server);
    let number = |message: &Value| message["body"].as_str().unwrap()[4..].parse().unwrap();
    let order: Vec<usize> = messages.iter().map(number).collect();
    assert_eq!(order, (0..700).collect::<Vec<usize>>());
    assert!(messages.iter().all(|message| message["queue"] == "new"));
    let none = import(&server, &format!("{}/none", old.from()), &[]);
    assert!(text(&none.stderr).contains("has no tube none"));
}

#[test]
fn a_beanstalkd_that_dies_half_way_loses_nothing_and_the_rest_comes_later() {
    const JOBS: usize = 900;
    let dir = tempfile::tempdir().unwrap();
    let whole = {
        let server = Server::start(&dir.path().join("data"));
        let old = Beanstalkd::start(&[]);
        fill(&mut old.client(), JOBS);
        let (address, passed) = between(&old.address, usize::MAX, || true);
        done(&import(&server, &format!("beanstalk://{address}"), &[]));
        passed.load(Ordering::SeqCst)
    };
    // In the list of tubes, among reserved jobs, among statistics, among deletes.
    // A second pass over the tubes follows those, of some 6,300 bytes.
    let deletes = whole - 10_000;
    for bytes in [3, 900, whole / 4, whole / 3, whole / 2, deletes] {
        let server = Server::start(&dir.path().join(format!("data-{bytes}")));
        let old = Beanstalkd::start(&[]);
        fill(&mut old.client(), JOBS);
        let (address, passed) = between(&old.address, bytes, || false);
        let output = import(&server, &format!("beanstalk://{address}"), &[]);
        assert_eq!(passed.load(Ordering::SeqCst), bytes);
        assert_eq!(output.status.code(), Some(1), "{bytes}");
        let printed = text(&output.stderr);
        assert!(printed.contains("closed the connection"), "{printed}");
        // What it held is ready again when its connection has ended.
        await_that(&format!("{bytes}: none is reserved"), || old.jobs()[3] == 0);
        let (here, there) = (bodies(&server).len(), old.jobs()[0]);
        assert!(
            here + usize::try_from(there).unwrap() >= JOBS,
            "{bytes}: lost"
        );
        if bytes == deletes {
            assert_eq!(here, JOBS);
            assert!(
                there > 0 && there < JOBS as u64,
                "among deletes: {there} left"
            );
        }
        if bytes > 900 {
            assert!(printed.contains(&format!("{here} message")), "{printed}");
        }
        done(&import(&server, &old.from(), &[]));
        let all = bodies(&server);
        let different: BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), JOBS, "{bytes}: each of them");
        let held = 8 * 256 + 2 * 256;
        assert!(
            all.len() <= JOBS + held,
            "{bytes}: twice are those on the way"
        );
        assert_eq!(old.jobs(), [0; 4]);
    }
}

#[test]
fn a_message_that_is_refused_here_stays_unchanged_there() {
    let config = "[[queue]]\nname = \"work\"\nmessages_max = 300\n[[queue]]\nname = \"cellar\"\n\
                  messages_max = 1\n";
    let server = Start::of(config).serve();
    let old = Beanstalkd::start(&[]);
    let mut client = old.client();
    fill(&mut client, 1000);
    let output = import(&server, &old.from(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    let here = all(&server).len();
    assert!(
        printed
            .lines()
            .any(|line| line.starts_with(&format!("{here} message"))),
        "{printed}"
    );
    assert!(printed.contains("are released there"), "{printed}");
    let jobs = old.jobs();
    assert_eq!((here as u64 + jobs[0], &jobs[1..]), (1000, &[0; 3][..]));

    // Delayed and buried ones are that again.
    let mut client = old.client();
    client.ask(b"use cellar\r\n", b"USING cellar\r\n");
    for number in 0..3 {
        put(
            &mut client,
            "7 3600 60",
            format!("later {number}").as_bytes(),
        );
    }
    let last = old.stats("stats")["total-jobs"].clone();
    let before = old.stats(&format!("stats-job {last}"));
    let output = import(&server, &format!("{}/cellar", old.from()), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let after = old.stats(&format!("stats-job {last}"));
    assert_eq!(
        (&after["state"], &after["pri"]),
        (&before["state"], &before["pri"])
    );
    let left = |stats: &BTreeMap<String, String>| stats["time-left"].parse::<i64>().unwrap();
    assert!((left(&before) - left(&after)).abs() < 120, "{after:?}");
    let mut client = old.client();
    // The first found room.
    client.send(b"use cellar\r\nkick 9\r\nwatch cellar\r\nreserve\r\n");
    let id = last.parse::<u64>().unwrap() - 1;
    let printed =
        format!("USING cellar\r\nKICKED 2\r\nWATCHING 2\r\nRESERVED {id} 7\r\nlater 1\r\n");
    client.expect(printed.as_bytes());
    client.ask(format!("bury {id} 70\r\n").as_bytes(), b"BURIED\r\n");
    let output = import(&server, &format!("{}/cellar", old.from()), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let after = old.stats(&format!("stats-job {id}"));
    assert_eq!(
        (after["state"].as_str(), after["pri"].as_str()),
        ("buried", "70")
    );
}

#[test]
fn an_interrupted_import_from_beanstalkd_gives_back_its_jobs() {
    const JOBS: usize = 3000;
    let server = Server::fresh();
    let old = Beanstalkd::start(&[]);
    fill(&mut old.client(), JOBS);
    let (known, pid) = std::sync::mpsc::channel::<i32>();
    // In the midst of it the answers stop until it was interrupted.
    let (address, _) = between(&old.address, 400_000, move || {
        let pid = pid.recv().ok().and_then(rustix::process::Pid::from_raw);
        let interrupt = rustix::process::Signal::INT;
        rustix::process::kill_process(pid.expect("a pid"), interrupt).expect("signalled");
        true
    });
    let mut command = quintet(&[
        "import",
        "--from",
        &format!("beanstalk://{address}"),
        "--data",
    ]);
    command.arg(&server.data).stderr(Stdio::piped());
    let child = command.spawn().expect("started");
    known.send(i32::try_from(child.id()).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    let here = all(&server).len();
    assert!(printed.contains(&format!("{here} message")), "{printed}");
    let there = old.jobs();
    assert_eq!(
        (here as u64 + there[0], &there[1..]),
        (JOBS as u64, &[0; 3][..])
    );
    assert!(here > 0 && here < JOBS, "{here}");
    done(&import(&server, &old.from(), &[]));
    assert_eq!(bodies(&server).iter().collect::<BTreeSet<_>>().len(), JOBS);
    assert_eq!(all(&server).len(), JOBS, "none came twice");
}

#[test]
fn a_job_of_one_second_is_stored_before_its_time_is_over() {
    let server = Server::fresh();
    let old = Beanstalkd::start(&[]);
    let mut client = old.client();
    // As long as one is held, beanstalkd says DEADLINE_SOON for an empty tube.
    for number in 0..40 {
        put(&mut client, "1 0 1", format!("short {number}").as_bytes());
    }
    done(&import(&server, &old.from(), &[]));
    let all = bodies(&server);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
    assert_eq!(old.jobs(), [0; 4]);
}

#[test]
fn a_server_of_another_kind_is_named_and_an_empty_one_is_no_error() {
    let server = Server::fresh();
    let old = Beanstalkd::start(&[]);
    let output = import(&server, &old.from(), &[]);
    done(&output);
    assert_eq!(text(&output.stderr), "nothing to import\n");
    // A memcache protocol is none.
    let from = format!("beanstalk://{}", server.address());
    let output = import(&server, &from, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("which beanstalkd does not"));
    // The port of a client: nobody listens there, and nobody else can take it.
    let client = TcpStream::connect(server.address()).unwrap();
    let from = format!("beanstalk://{}", client.local_addr().unwrap());
    let output = import(&server, &from, &[]);
    assert!(text(&output.stderr).contains("cannot connect"));
}

/// Between an import's many connections and another server, which dies after so many bytes of
/// answers.
pub(crate) fn dying(to: &str, bytes: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (to, left) = (to.to_owned(), Arc::new(AtomicUsize::new(bytes)));
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.expect("a connection");
            if left.load(Ordering::SeqCst) == 0 {
                return;
            }
            let far = TcpStream::connect(&to).expect("connected");
            let (mut from, mut into) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || {
                std::io::copy(&mut from, &mut into).ok();
                into.shutdown(Shutdown::Both).ok();
            });
            let (mut from, mut into, left) = (far, near, Arc::clone(&left));
            std::thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(read @ 1..) = from.read(&mut some) {
                    let take = |left: usize| Some(left.saturating_sub(read));
                    let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
                    let passes = taken.map_or(0, |left| left.min(read));
                    if into.write_all(&some[..passes]).is_err() || passes < read {
                        break;
                    }
                }
                into.shutdown(Shutdown::Both).ok();
                from.shutdown(Shutdown::Both).ok();
            });
        }
    });
    address
}

/// Items `item N` of a queue.
fn fill_items(client: &mut Client, queue: &str, count: usize) {
    for number in 0..count {
        let body = format!("item {number}");
        client.send(format!("set {queue} {number} 0 {}\r\n{body}\r\n", body.len()).as_bytes());
        client.expect(b"STORED\r\n");
    }
}

#[test]
fn all_of_a_kestrel_moves_in_order_with_flags() {
    let dir = tempfile::tempdir().unwrap();
    let old = Server::start(&dir.path().join("old"));
    let server = Server::start(&dir.path().join("data"));
    let from = format!("kestrel://{}", old.address());
    let mut client = old.client();
    fill_items(&mut client, "work", 500);
    // Its name is as that of a number of the other.
    fill_items(&mut client, "work_mem", 2);
    let large = noise(2_000_000);
    client.send(format!("set large 0 0 {}\r\n", large.len()).as_bytes());
    client.send(&large);
    client.send(b"\r\nset empty 0 0 0\r\n\r\nset held 0 0 1\r\nx\r\nget held/open\r\n");
    client.expect(b"STORED\r\nSTORED\r\nSTORED\r\nVALUE held 0 1\r\nx\r\nEND\r\n");
    let counts = "empty: 1 ready\nheld: 1 reserved\nlarge: 1 ready\nwork: 500 ready\n\
                  work_mem: 2 ready\n";
    assert_eq!(done(&import(&server, &from, &["--dry-run"])), counts);

    let one = format!("{from}/work_mem");
    done(&import(&server, &one, &["--into", "other"]));
    assert_eq!(bodies(&server), ["item 0", "item 1"]);
    let output = import(&server, &from, &[]);
    done(&output);
    assert!(
        text(&output.stderr)
            .lines()
            .any(|line| line.starts_with("502 messages stored"))
    );
    let messages = all(&server);
    let work = messages.iter().filter(|message| message["queue"] == "work");
    let reported: Vec<(String, u64)> = work
        .map(|message| {
            let body = message["body"].as_str().unwrap().to_owned();
            (body, message["flags"].as_u64().unwrap_or(0))
        })
        .collect();
    let wanted: Vec<(String, u64)> = (0..500).map(|n| (format!("item {n}"), n)).collect();
    assert_eq!(reported, wanted);
    let taken = server.run(&["take", "large"]).stdout;
    assert!(taken == large, "the large one");
    let held: Vec<Value> = all(&old);
    assert_eq!(
        held.len(),
        1,
        "a message under a lease stays there: {held:?}"
    );
    let none = import(&server, &format!("{from}/none"), &[]);
    assert!(text(&none.stderr).contains("has no queue none"));
    // beanstalkd is none.
    let beanstalkd = Beanstalkd::start(&[]);
    let output = import(&server, &format!("kestrel://{}", beanstalkd.address), &[]);
    assert!(text(&output.stderr).contains("which Kestrel and Darner do not"));
}

#[test]
fn a_kestrel_that_dies_or_is_refused_loses_nothing_and_keeps_its_order() {
    const ITEMS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    for bytes in [700, 3_000, 6_000, 9_000] {
        let old = Server::start(&dir.path().join(format!("old-{bytes}")));
        let server = Server::start(&dir.path().join(format!("data-{bytes}")));
        fill_items(&mut old.client(), "work", ITEMS);
        let address = dying(old.address(), bytes);
        let output = import(&server, &format!("kestrel://{address}"), &[]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{bytes}: {printed}");
        // What it held is there again when its connections have ended.
        old.await_number("reserved", |reserved| reserved == 0);
        let (here, there) = (bodies(&server), bodies(&old));
        assert!(here.len() + there.len() >= ITEMS, "{bytes}: lost");
        assert!(here.len() + there.len() <= ITEMS + 64, "{bytes}: twice");
        assert!(!there.is_empty(), "{bytes}: it was not that long");
        done(&import(
            &server,
            &format!("kestrel://{}", old.address()),
            &[],
        ));
        let all = bodies(&server);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), ITEMS, "{bytes}");
    }

    let old = Server::start(&dir.path().join("old"));
    let config = "[[queue]]\nname = \"work\"\nmessages_max = 100\n";
    let server = Start::of(config).serve_at(&dir.path().join("data"));
    fill_items(&mut old.client(), "work", ITEMS);
    let from = format!("darner://{}", old.address());
    let output = import(&server, &from, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("are released there"));
    let both: Vec<String> = [bodies(&server), bodies(&old)].concat();
    let wanted: Vec<String> = (0..ITEMS).map(|number| format!("item {number}")).collect();
    assert_eq!(both, wanted, "each once, and in order");
}

#[test]
fn another_quintet_moves_by_its_beanstalk_listener() {
    let dir = tempfile::tempdir().unwrap();
    let start = Start::default().listen(&["beanstalk=0"]);
    let old = Server::start_with(&dir.path().join("old"), start);
    let server = Server::start(&dir.path().join("data"));
    let mut client = old.client();
    fill(&mut client, 600);
    put(&mut client, "9 3600 61", b"later");
    put(&mut client, "3 0 62", b"bad");
    client.ask(b"reserve-job 602\r\n", b"RESERVED 602 3\r\nbad\r\n");
    client.ask(b"bury 602 11\r\n", b"BURIED\r\n");
    let from = format!("beanstalk://{}", old.address());
    let counts = "work: 1 buried, 1 delayed, 600 ready\n";
    assert_eq!(done(&import(&server, &from, &["--dry-run"])), counts);
    done(&import(&server, &from, &[]));
    assert_eq!(all(&old).len(), 0);
    let messages = all(&server);
    assert_eq!(messages.len(), 602);
    let state = |at: usize| (&messages[at]["state"], &messages[at]["priority"]);
    assert_eq!(state(0), (&"ready".into(), &5.into()));
    assert_eq!(state(600), (&"delayed".into(), &9.into()));
    assert_eq!(state(601), (&"buried".into(), &11.into()));
}
