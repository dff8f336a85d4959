//! Real servers on loopback, each with a directory of its own.

use std::{
    collections::BTreeSet,
    fs,
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use quintet_jetstream::{Error, JetStream, Names, Servers};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server without JetStream that knows nobody; killed when it goes.
pub(crate) struct Lonely {
    pub(crate) address: String,
    child: Child,
}

impl Lonely {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let child = Command::new(program())
            .args(["-a", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let one = Self {
            address: format!("nats://127.0.0.1:{port}"),
            child: child.expect("it starts"),
        };
        until("a server listens", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        one
    }
}

impl Drop for Lonely {
    fn drop(&mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

/// The id of each stream that a test makes.
pub(crate) const ID: &str = "1";

/// Longer than anything takes but what will never happen.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Servers that know each other; killed when it goes.
pub(crate) struct Fleet {
    servers: Vec<One>,
    _dir: TempDir,
}

struct One {
    name: String,
    port: u16,
    config: PathBuf,
    child: Option<Child>,
}

/// The program; `cargo xtask test cluster` says where it is.
fn program() -> PathBuf {
    let configured = std::env::var_os("QUINTET_NATS_SERVER");
    configured.map_or_else(|| "nats-server".into(), PathBuf::from)
}

/// A port nobody has, below those that the system gives to clients: one of those could take it
/// before its server does, or while that is away.
pub(crate) fn free_port() -> u16 {
    /// Those before: nobody may listen there yet.
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    until("a port is free", || {
        // The standard library's hash keys are random.
        let random = RandomState::new().hash_one(0);
        let port = 11_000 + (random % 21_000) as u16;
        let free = TcpListener::bind(("127.0.0.1", port)).is_ok();
        let mut configured = GIVEN.lock().expect("nobody panics here");
        (free && configured.insert(port)).then_some(port)
    })
}

impl Fleet {
    /// Starts `count` of them.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_with(count, "always", "")
    }

    /// The same, which sync so often, and with more lines of configuration.
    pub(crate) fn start_with(count: usize, sync: &str, more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let routes: Vec<String> = ports
            .iter()
            .map(|(_, route)| format!("nats://127.0.0.1:{route}"))
            .collect();
        let servers = ports
            .iter()
            .enumerate()
            .map(|(at, (port, route))| {
                let name = format!("n{at}");
                let store = dir.path().join(&name);
                let mut config = format!(
                    "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\n{more}\
                     jetstream {{ store_dir: {store:?}, sync_interval: {sync} }}\n"
                );
                if count > 1 {
                    config += &format!(
                        "cluster {{ name: test, listen: \"127.0.0.1:{route}\", routes: {routes:?} }}\n"
                    );
                }
                let path = dir.path().join(format!("{name}.conf"));
                fs::write(&path, config).expect("written");
                One {
                    name,
                    port: *port,
                    config: path,
                    child: None,
                }
            })
            .collect();
        let mut fleet = Self { servers, _dir: dir };
        (0..count).for_each(|at| fleet.begin(at));
        fleet
    }

    /// Starts one that is not running.
    pub(crate) fn begin(&mut self, at: usize) {
        let one = &mut self.servers[at];
        let program = program();
        let child = Command::new(&program)
            .arg("-c")
            .arg(&one.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        one.child = Some(child.unwrap_or_else(|error| panic!("{}: {error}", program.display())));
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.servers[at].child.take() {
            child.kill().expect("ours");
            child.wait().expect("ours");
        }
    }

    /// Freezes one, or lets it go on.
    pub(crate) fn freeze(&self, at: usize, frozen: bool) {
        let child = self.servers[at].child.as_ref().expect("running");
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(child), signal).expect("ours");
    }

    /// Publishes as anybody may who reaches a server.
    pub(crate) fn publish(&self, subject: &str, payload: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.servers[0].port)).expect("it runs");
        stream.set_read_timeout(Some(LONG)).expect("set");
        let len = payload.len();
        let text = format!(
            "CONNECT {{\"verbose\":false}}\r\nPUB {subject} {len}\r\n{payload}\r\nPING\r\n"
        );
        stream.write_all(text.as_bytes()).expect("sent");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "PONG"), "it closed the connection");
    }

    pub(crate) fn named(&self, name: &str) -> usize {
        let found = self.servers.iter().position(|one| one.name == name);
        found.expect("one of them")
    }

    /// How to reach them, beginning with the one at `first`.
    pub(crate) fn addresses(&self, first: usize) -> Servers {
        let count = self.servers.len();
        let addresses = (0..count).map(|at| {
            let one = &self.servers[(first + at) % count];
            format!("nats://127.0.0.1:{}", one.port)
        });
        Servers {
            addresses: addresses.collect(),
            ..Servers::default()
        }
    }

    /// A stream on all of them, made as soon as they can.
    pub(crate) fn stream(&self, name: &str) -> JetStream {
        let names = Names::of(name, 0);
        until("the servers make a stream", || {
            let stream = match JetStream::connect(&self.addresses(0), names.clone()) {
                Ok(stream) => stream,
                Err(Error::Unreachable(..)) => return None,
                Err(error) => panic!("{error}"),
            };
            match stream.create(self.servers.len(), &[], ID) {
                Ok(_) => Some(stream),
                // They have not found each other, or no leader.
                Err(Error::Silent | Error::Refused(..)) => None,
                Err(error) => panic!("{error}"),
            }
        })
    }

    /// The number of the server that leads the stream.
    pub(crate) fn leader(&self, stream: &JetStream) -> usize {
        let name = until("the stream has a leader", || {
            stream.info().ok()??.cluster?.leader
        });
        self.named(&name)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        (0..self.servers.len()).for_each(|at| self.kill(at));
    }
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    until_or(what, || ask().ok_or_else(String::new))
}

/// The same, where an attempt without an answer says what it saw.
pub(crate) fn until_or<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        let seen = match ask() {
            Ok(answer) => return answer,
            Err(seen) => seen,
        };
        assert!(began.elapsed() < LONG, "in vain: {what} {seen}");
        // Nothing tells when a server is ready.
        std::thread::sleep(Duration::from_millis(50));
    }
}
