//! Nodes, as processes, and a client.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use quintet_faults::Faults;
use quintet_jetstream::{JetStream, Names};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use tempfile::TempDir;

pub(crate) use crate::common::quintet;
use crate::common::{self, Server, Start, text};
use crate::servers::{Fleet, LONG, until};

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

    /// A command; the part of `more` behind `[cluster]` belongs there.
    pub(crate) fn command(&self, name: &str, data: &Path, more: &str) -> Command {
        let servers = self.fleet.addresses(0).addresses;
        let (more, inner) = more.split_once("[cluster]\n").unwrap_or((more, ""));
        let config = format!(
            "{more}[cluster]\n{inner}nats = {servers:?}\nname = {:?}\nnode = {name:?}\nlisten = '127.0.0.1:0'\n\
             [[listen]]\nprotocol = 'memcache'\naddress = '0'\n",
            self.name
        );
        Server::command_as_configured(data, &Start::of(&config))
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
        Self::begin(name, &data, self.command(name, &data, more))
    }

    /// Starts a node of an older build, whose configuration may call a protocol a `voice`.
    pub(crate) fn old_node(&self, program: &Path, name: &str) -> Node {
        let data = self.dir.path().join(name);
        let config = self.config(name, "");
        let help = Command::new(program).args(["serve", "--help"]).output();
        let help = text(&help.expect("the older binary starts").stdout);
        if help.contains("VOICE") {
            let told = std::fs::read_to_string(&config).expect("just written");
            let told = told.replace("protocol = ", "voice = ");
            std::fs::write(&config, told).expect("written");
        }
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(config);
        command.arg("--data").arg(&data).env_remove("NOTIFY_SOCKET");
        Self::begin(name, &data, command)
    }

    /// Starts a node under these faults.
    pub(crate) fn node_under(&self, name: &str, more: &str, faults: &Faults) -> Node {
        let data: PathBuf = self.dir.path().join(name);
        let mut command = self.command(name, &data, more);
        faults.attach(&mut command);
        Self::begin(name, &data, command)
    }

    fn begin(name: &str, data: &Path, command: Command) -> Node {
        let mut server = Server::spawn(data, command).expect("the binary starts");
        let address = server.wait_for("listening memcache ");
        Node {
            name: name.to_owned(),
            address: address["listening memcache ".len()..].to_owned(),
            server,
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

    /// Starts a NATS server that was killed.
    pub(crate) fn start_server(&mut self, at: usize) {
        self.fleet.begin(at);
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
    let command = Server::command_at(data, &path, &Start::of(config));
    let server = Server::await_ready(data, command);
    Node {
        name: "alone".to_owned(),
        address: server.address().to_owned(),
        server,
    }
}

/// A node: its process, and its address for clients.
pub(crate) struct Node {
    name: String,
    address: String,
    server: Server,
}

impl Deref for Node {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl Node {
    pub(crate) fn name(&self) -> &str {
        &self.name
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
        Client(common::Client::over(self.stream_from(from)))
    }
}

/// Which node says so first.
pub(crate) fn first_to_say(nodes: &mut [Node], start: &str) -> usize {
    until(start, || {
        let mut nodes = nodes.iter_mut();
        nodes.position(|node| match node.says(start, Duration::from_millis(10)) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "no {start:?}");
                false
            }
        })
    })
}

/// A connection that speaks memcache, about the queue `q`.
pub(crate) struct Client(common::Client);

impl Client {
    pub(crate) fn ask(&mut self, text: &str) {
        self.0.send(text.as_bytes());
    }

    /// Puts a message, which is acknowledged.
    pub(crate) fn put(&mut self, body: &str) {
        self.0.put("q", body.as_bytes());
    }

    /// Takes the next message away, if there is one.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.ask("get q\r\n");
        let body = self.0.value().expect("an answer");
        body.map(|body| text(&body))
    }

    /// Leases the next message, for as long as the connection is there.
    pub(crate) fn open(&mut self) {
        self.ask("get q/open\r\n");
        self.0.until(b"END\r\n");
    }

    /// Everything that still comes until the connection is closed.
    pub(crate) fn rest(self) -> String {
        self.0.all()
    }
}
