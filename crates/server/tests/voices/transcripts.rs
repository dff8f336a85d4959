//! Replays the voices' transcripts over real sockets, each against a server of
//! its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quintet_sim::transcript::{Chunking, Link, Received, Setup, Transcript};

/// How long a reply may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server with one listener.
struct Server {
    child: Child,
    address: String,
    connections: BTreeMap<u8, TcpStream>,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(voice: &str, shards: u32, setup: &[Setup]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join("quintet.toml");
        fs::write(&config, configuration(voice, shards, setup))
            .expect("the configuration is written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_quintet"))
            .args(["serve", "--sync", "50ms", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(folder.path().join("data"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut address = None;
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        for line in output.lines() {
            let line = line.expect("its output is text");
            let mut words = line.split(' ');
            if words.next() == Some("listening") {
                address = words.nth(1).map(str::to_owned);
            }
            if line == "quintet ready" {
                break;
            }
        }
        Self {
            child,
            address: address.expect("it listens"),
            connections: BTreeMap::new(),
            _folder: folder,
        }
    }

    fn connection(&mut self, number: u8) -> &mut TcpStream {
        self.connections.entry(number).or_insert_with(|| {
            let stream = TcpStream::connect(&self.address).expect("the server accepts");
            stream.set_nodelay(true).expect("it is open");
            stream.set_read_timeout(Some(PATIENCE)).expect("it is open");
            stream
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a server that has ended; the test's own
        // verdict stands.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Link for Server {
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
fn configuration(voice: &str, shards: u32, setup: &[Setup]) -> String {
    let mut text = format!("shards = {shards}\n");
    let mut listen = format!("[[listen]]\nvoice = \"{voice}\"\naddress = \"127.0.0.1:0\"\n");
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
    let entries = fs::read_dir(folder).expect("every voice has transcripts");
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
    let mut failures = Vec::new();
    for voice in quintet_wire::VOICES {
        for path in transcripts(&root.join(voice.name)) {
            let source = fs::read_to_string(&path).expect("a readable transcript");
            let transcript = Transcript::parse(&source).expect("a well-formed transcript");
            if transcript.needs_instant() || shards > 1 && transcript.needs_one_shard() {
                continue;
            }
            let mut server = Server::start(voice.name, shards, transcript.setup());
            if let Err(error) = transcript.run(&mut server, Chunking::Whole) {
                failures.push(format!("{}: {error}", path.display()));
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}
