//! Nodes, as processes, and a client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use quintet_faults::Faults;
use quintet_jetstream::{JetStream, Names};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::servers::{Fleet, LONG, until};

/// A command of the binary.
pub(crate) fn quintet(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
    command.args(args).env_remove("NOTIFY_SOCKET");
    command
}

/// Three NATS servers, and where the nodes' directories are.
pub(crate) struct Cluster {
    name: String,
    fleet: Fleet,
    dir: TempDir,
}

impl Cluster {
    pub(crate) fn start(name: &str) -> Self {
        let fleet = Fleet::start(3);
        // A stream of another name: when it can be made, so can the cluster's.
        drop(fleet.stream("ready"));
        Self {
            name: name.to_owned(),
            fleet,
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What stands behind `[cluster]` in `more` belongs there.
    pub(crate) fn command(&self, name: &str, data: &Path, more: &str) -> Command {
        let servers = self.fleet.addresses(0).addresses;
        let (more, inner) = more.split_once("[cluster]\n").unwrap_or((more, ""));
        let config = format!(
            "{more}[cluster]\n{inner}nats = {servers:?}\nname = {:?}\nnode = {name:?}\nlisten = '127.0.0.1:0'\n\
             [[listen]]\nvoice = 'memcache'\naddress = '0'\n",
            self.name
        );
        let path = data.with_extension("toml");
        std::fs::write(&path, config).expect("written");
        let mut command = quintet(&["serve", "--config"]);
        command.arg(path).arg("--data").arg(data);
        command
    }

    /// Writes the configuration that a node would have; answers where it is.
    pub(crate) fn config(&self, name: &str, more: &str) -> PathBuf {
        let data = self.dir.path().join(name);
        self.command(name, &data, more);
        data.with_extension("toml")
    }

    /// The same servers for another cluster.
    pub(crate) fn rename(&mut self, name: String) {
        self.name = name;
    }

    /// The cluster's stream, which need not be there.
    pub(crate) fn stream(&self) -> JetStream {
        let names = Names::of(&self.name, 0);
        JetStream::connect(&self.fleet.addresses(0), names).expect("reached")
    }

    /// Deletes the cluster's stream, as a disaster would.
    pub(crate) fn lose_stream(&self) {
        self.stream().delete().expect("deleted");
    }

    /// Starts a node.
    pub(crate) fn node(&self, name: &str, more: &str) -> Node {
        let data: PathBuf = self.dir.path().join(name);
        Self::begin(name, self.command(name, &data, more))
    }

    /// Starts a node under these faults.
    pub(crate) fn node_under(&self, name: &str, more: &str, faults: &Faults) -> Node {
        let data: PathBuf = self.dir.path().join(name);
        let mut command = self.command(name, &data, more);
        faults.attach(&mut command);
        Self::begin(name, command)
    }

    fn begin(name: &str, mut command: Command) -> Node {
        let child = command.stdout(Stdio::piped()).spawn();
        let mut running = Running::new(child.expect("the binary starts"));
        let address = running.wait_for("listening memcache ");
        Node {
            name: name.to_owned(),
            address: address["listening memcache ".len()..].to_owned(),
            running,
        }
    }

    /// Publishes as anybody may who reaches a server.
    pub(crate) fn publish(&self, subject: &str, payload: &str) {
        self.fleet.publish(subject, payload);
    }

    /// `kill -9` of a NATS server.
    pub(crate) fn kill_server(&mut self, at: usize) {
        self.fleet.kill(at);
    }

    /// `quintet cluster`, asked of the node `at`: its exit code, and what it printed.
    pub(crate) fn order(&self, at: &str, words: &[&str]) -> (i32, String) {
        let mut command = quintet(&["cluster"]);
        run(command
            .args(words)
            .arg("--data")
            .arg(self.dir.path().join(at)))
    }

    /// A node that cannot start: how it ended, and what it said.
    pub(crate) fn fails(&self, name: &str, data: &Path, more: &str) -> (ExitStatus, String) {
        let output = self.command(name, data, more).output();
        let output = output.expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status, text)
    }
}

/// A process and the lines it prints.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    pub(crate) fn new(mut child: Child) -> Self {
        let (told, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            lines,
            seen: Vec::new(),
        }
    }

    /// Whether a line that begins so was printed; waits for the next one for so long.
    fn says(&mut self, start: &str, patience: Duration) -> Option<String> {
        let said = |seen: &[String]| seen.iter().find(|line| line.starts_with(start)).cloned();
        if let Some(line) = said(&self.seen) {
            return Some(line);
        }
        match self.lines.recv_timeout(patience) {
            Ok(line) => self.seen.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                panic!("it ended without {start:?}: {:?}", self.seen)
            }
        }
        said(&self.seen)
    }

    /// The first line that begins so.
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some(line) = self.says(start, Duration::from_secs(1)) {
                return line;
            }
            let seen = &self.seen;
            assert!(began.elapsed() < LONG, "in vain: {start:?}, only {seen:?}");
        }
    }

    /// Signals it; of a stop this returns when all of its threads stand still.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("ours");
        let began = Instant::now();
        while signal == Signal::STOP && !self.stands() {
            assert!(began.elapsed() < LONG, "it does not stop");
            std::thread::yield_now();
        }
    }

    fn stands(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        threads.expect("it runs").flatten().all(|thread| {
            // The state comes behind the name, which is in brackets. A thread may end meanwhile.
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
            state.is_none_or(|state| state == Some('T'))
        })
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("ours")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

/// Runs a command to its end: its exit code, and what it printed.
pub(crate) fn run(command: &mut Command) -> (i32, String) {
    let output = command.output().expect("the binary starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.code().expect("it ended by itself"), text)
}

/// A server that is alone.
pub(crate) fn alone(data: &Path, config: &str) -> Node {
    let path = data.with_extension("alone.toml");
    std::fs::write(&path, config).expect("written");
    let child = quintet(&["serve", "--listen", "memcache=127.0.0.1:0", "--config"])
        .arg(path)
        .arg("--data")
        .arg(data)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut running = Running::new(child);
    let address = running.wait_for("listening memcache ");
    running.wait_for("quintet ready");
    Node {
        name: "alone".to_owned(),
        address: address["listening memcache ".len()..].to_owned(),
        running,
    }
}

/// A node.
pub(crate) struct Node {
    name: String,
    address: String,
    running: Running,
}

impl Node {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn wait_for(&mut self, start: &str) {
        self.running.wait_for(start);
    }

    /// The first line that begins so.
    pub(crate) fn line(&mut self, start: &str) -> String {
        self.running.wait_for(start)
    }

    /// Lines printed so far do not count.
    pub(crate) fn forget_lines(&mut self) {
        while self.running.lines.try_recv().is_ok() {}
        self.running.seen.clear();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.running.wait()
    }

    /// `kill -9`.
    pub(crate) fn kill(self) {
        drop(self);
    }

    pub(crate) fn client(&self) -> Client {
        self.client_from(Ipv4Addr::LOCALHOST)
    }

    /// A connection from that address of this machine.
    pub(crate) fn stream_from(&self, from: Ipv4Addr) -> TcpStream {
        let to: SocketAddr = self.address.parse().expect("an address");
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &SocketAddr::from((from, 0))).expect("an address of this machine");
        connect(&socket, &to).expect("it listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).expect("set");
        stream
    }

    /// A client at that address of this machine.
    pub(crate) fn client_from(&self, from: Ipv4Addr) -> Client {
        let stream = self.stream_from(from);
        Client {
            from: BufReader::new(stream.try_clone().expect("another hold on it")),
            stream,
        }
    }
}

/// Which node says so first.
pub(crate) fn first_to_say(nodes: &mut [Node], start: &str) -> usize {
    until(start, || {
        let mut nodes = nodes.iter_mut();
        nodes.position(|node| {
            let patience = Duration::from_millis(10);
            node.running.says(start, patience).is_some()
        })
    })
}

/// A connection that speaks memcache.
pub(crate) struct Client {
    stream: TcpStream,
    from: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn ask(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    /// Puts a message, which is acknowledged.
    pub(crate) fn put(&mut self, body: &str) {
        self.ask(&format!("set q 0 0 {}\r\n{body}\r\n", body.len()));
        assert_eq!(self.line(), "STORED", "{body}");
    }

    /// Takes the next message away, if there is one.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.ask("get q\r\n");
        let line = self.line();
        if line == "END" {
            return None;
        }
        assert!(line.starts_with("VALUE q "), "{line:?}");
        let body = self.line();
        assert_eq!(self.line(), "END");
        Some(body)
    }

    /// Everything that still comes until the connection is closed.
    pub(crate) fn rest(mut self) -> String {
        let mut rest = Vec::new();
        match self.from.read_to_end(&mut rest) {
            Ok(_) => {}
            // Closed with requests unread.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        String::from_utf8_lossy(&rest).into_owned()
    }
}
