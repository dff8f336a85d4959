//! Replays the protocols' transcripts over real sockets, each against a server of
//! its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quintet_sim::transcript::{Chunking, Link, Received, Setup, Transcript};

use crate::common::{PATIENCE, Server, Start};

/// Servers that run at the same time; most of them wait for time to pass.
const AT_ONCE: usize = 12;

/// A running server with one listener, and the connections to it.
struct Replayed {
    server: Server,
    connections: BTreeMap<u8, TcpStream>,
    _folder: tempfile::TempDir,
}

impl Replayed {
    fn start(protocol: &str, shards: u32, setup: &[Setup]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        let config = configuration(protocol, shards, setup);
        let start = Start::of(&config).sync("50ms");
        let mut command = Server::command_as_configured(&data, &start);
        command.stderr(Stdio::null());
        Self {
            server: Server::await_ready(&data, command),
            connections: BTreeMap::new(),
            _folder: folder,
        }
    }

    fn connection(&mut self, number: u8) -> &mut TcpStream {
        self.connections.entry(number).or_insert_with(|| {
            let stream = TcpStream::connect(self.server.address()).expect("the server accepts");
            stream.set_nodelay(true).expect("it is open");
            stream.set_read_timeout(Some(PATIENCE)).expect("it is open");
            stream
        })
    }
}

impl Link for Replayed {
    fn send(&mut self, connection: u8, bytes: &[u8]) {
        // A server that has hung up meanwhile shows in what is received.
        if let Err(error) = self.connection(connection).write_all(bytes) {
            assert!(hung_up(error.kind()), "{error}");
        }
    }

    fn receive(&mut self, connection: u8, into: &mut Vec<u8>) -> Received {
        let mut piece = vec![0; 1 << 16];
        match self.connection(connection).read(&mut piece) {
            Ok(0) => Received::End,
            Ok(len) => {
                into.extend_from_slice(&piece[..len]);
                Received::Some
            }
            Err(error) if hung_up(error.kind()) => Received::End,
            Err(error) => {
                let kind = error.kind();
                let late = matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(late, "{error}");
                Received::Nothing
            }
        }
    }

    fn advance(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn close(&mut self, connection: u8) {
        self.connections.remove(&connection);
    }

    fn shut(&mut self, connection: u8) {
        let stream = self.connection(connection);
        stream.shutdown(Shutdown::Write).expect("it is open");
    }

    fn now_s(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("the clock is past 1970").as_secs()
    }

    fn is_instant(&self) -> bool {
        false
    }
}

fn hung_up(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// The configuration a transcript asks for.
fn configuration(protocol: &str, shards: u32, setup: &[Setup]) -> String {
    let mut text = format!("shards = {shards}\n");
    let mut listen = format!("[[listen]]\nprotocol = \"{protocol}\"\naddress = \"127.0.0.1:0\"\n");
    for line in setup {
        match line {
            Setup::Option { name, value } => {
                writeln!(listen, "{name} = {}", toml_value(value)).expect("strings take all");
            }
            Setup::Queue { queue, key, value } => {
                let value = toml_value(value);
                writeln!(text, "[[queue]]\nname = \"{queue}\"\n{key} = {value}")
                    .expect("strings take all");
            }
        }
    }
    text + &listen
}

fn toml_value(text: &str) -> String {
    if text.parse::<u64>().is_ok() || matches!(text, "true" | "false") {
        text.to_owned()
    } else {
        format!("\"{text}\"")
    }
}

fn transcripts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("every protocol has transcripts");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_transcript_over_a_socket() {
    replay_all(1);
}

#[test]
fn every_transcript_with_several_shards() {
    replay_all(4);
}

fn replay_all(shards: u32) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/transcripts");
    let all = quintet_wire::PROTOCOLS.iter().flat_map(|protocol| {
        let paths = transcripts(&root.join(protocol.name));
        paths.into_iter().map(|path| (protocol.name, path))
    });
    let all = Mutex::new(all);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || all.lock().expect("no panic").next();
                while let Some((protocol, path)) = next() {
                    if let Err(error) = replay(protocol, shards, &path) {
                        let failure = format!("{}: {error}", path.display());
                        failures.lock().expect("no panic").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

fn replay(protocol: &str, shards: u32, path: &Path) -> Result<(), String> {
    let source = fs::read_to_string(path).expect("a readable transcript");
    let transcript = Transcript::parse(&source).expect("a well-formed transcript");
    if transcript.needs_instant() || shards > 1 && transcript.needs_one_shard() {
        return Ok(());
    }
    let mut server = Replayed::start(protocol, shards, transcript.setup());
    transcript.run(&mut server, Chunking::Whole)
}
