//! The real binary on a directory of its own, and a client that speaks raw
//! memcache lines to it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quintet_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Longer than any healthy answer takes, even on a busy machine. Nothing
/// passes by reaching it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A running server.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// The lines it printed until it was ready.
    pub(crate) lines: Vec<String>,
    pub(crate) data: PathBuf,
}

/// Options of a start.
#[derive(Default)]
pub(crate) struct Start<'a> {
    pub(crate) sync: Option<&'a str>,
    /// Listeners; none: one memcache listener on a free port.
    pub(crate) listen: &'a [&'a str],
    /// Text of a configuration file.
    pub(crate) config: Option<&'a str>,
}

/// A command of the binary.
pub(crate) fn quintet(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quintet"));
    command.args(args).env_remove("NOTIFY_SOCKET");
    command
}

impl Server {
    /// Starts with defaults.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with(data, Start::default())
    }

    pub(crate) fn start_with(data: &Path, start: Start<'_>) -> Self {
        Self::await_ready(data, Self::command(data, &start))
    }

    /// Starts with the listeners of the configuration file only.
    pub(crate) fn start_as_configured(data: &Path, start: Start<'_>) -> Self {
        Self::await_ready(data, Self::command_as_configured(data, &start))
    }

    pub(crate) fn await_ready(data: &Path, command: Command) -> Self {
        Self::ready_or_ended(data, command)
            .unwrap_or_else(|(status, lines)| panic!("not ready: {status} after {lines:?}"))
    }

    /// The server, or how it ended before it was ready, and what it printed.
    pub(crate) fn ready_or_ended(
        data: &Path,
        mut command: Command,
    ) -> Result<Self, (ExitStatus, Vec<String>)> {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let line = line.expect("text");
            let ready = line == "quintet ready";
            lines.push(line);
            if ready {
                return Ok(Self {
                    child,
                    lines,
                    data: data.to_owned(),
                });
            }
        }
        Err((child.wait().expect("waited"), lines))
    }

    pub(crate) fn command(data: &Path, start: &Start<'_>) -> Command {
        let mut command = Self::command_as_configured(data, start);
        let listen = if start.listen.is_empty() {
            &["memcache=127.0.0.1:0"]
        } else {
            start.listen
        };
        for listen in listen {
            command.args(["--listen", listen]);
        }
        command
    }

    pub(crate) fn command_as_configured(data: &Path, start: &Start<'_>) -> Command {
        let mut command = quintet(&["serve", "--data"]);
        command.arg(data);
        if let Some(sync) = start.sync {
            command.args(["--sync", sync]);
        }
        if let Some(text) = start.config {
            let path = data.with_extension("toml");
            std::fs::write(&path, text).expect("configuration written");
            // It may hold hashes.
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, private).expect("protected");
            command.arg("--config").arg(path);
        }
        command
    }

    /// The address of the first listener.
    pub(crate) fn address(&self) -> &str {
        self.lines[0]
            .split(' ')
            .nth(2)
            .expect("listening VOICE ADDRESS")
    }

    pub(crate) fn client(&self) -> Client {
        Client::tcp(self.address())
    }

    /// The address of the listener of this voice.
    pub(crate) fn address_of(&self, voice: &str) -> &str {
        let start = format!("listening {voice} ");
        let mut lines = self.lines.iter();
        let address = lines.find_map(|line| line.strip_prefix(start.as_str()));
        address.expect("a listener of that voice")
    }

    /// A connection to the listener of this voice.
    pub(crate) fn client_of(&self, voice: &str) -> Client {
        Client::tcp(self.address_of(voice))
    }

    /// One number of `quintet stats`.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let stats = self.run(&["stats", "--json"]).stdout;
        let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
        stats[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} in {stats}"))
    }

    /// Asks until a number is as it should be.
    #[track_caller]
    pub(crate) fn await_number(&self, name: &str, right: impl Fn(u64) -> bool) {
        let began = Instant::now();
        loop {
            let value = self.number(name);
            if right(value) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{name} stays {value}");
        }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a pid"), signal).expect("signalled");
    }

    /// SIGTERM, and its exit.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().expect("reaped")
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }

    /// A command that talks to this server.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        quintet(args)
            .arg("--data")
            .arg(&self.data)
            .output()
            .expect("the binary runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves no server behind. Errors: it is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

enum Stream {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

/// A connection that waits for answers with patience.
pub(crate) struct Client {
    stream: Stream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn tcp(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self {
            stream: Stream::Tcp(stream),
            buffer: Vec::new(),
        }
    }

    /// Under TLS, to the server of this name.
    pub(crate) fn tls(address: &str, config: Arc<ClientConfig>) -> Self {
        let socket = TcpStream::connect(address).expect("connected");
        socket.set_nodelay(true).expect("no delay");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let name = quintet_tls::server_name("localhost:1").expect("a name");
        let connection = ClientConnection::new(config, name).expect("begun");
        Self {
            stream: Stream::Tls(Box::new(StreamOwned::new(connection, socket))),
            buffer: Vec::new(),
        }
    }

    pub(crate) fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self {
            stream: Stream::Unix(stream),
            buffer: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes).expect("sent"),
            Stream::Tls(stream) => stream.write_all(bytes).expect("sent"),
            Stream::Unix(stream) => stream.write_all(bytes).expect("sent"),
        }
    }

    /// Sends, as far as the server still listens.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let sent = match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        };
        sent.ok();
    }

    /// Closes the sending side.
    pub(crate) fn half_close(&mut self) {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write).expect("shut"),
            Stream::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush().expect("sent");
            }
            Stream::Unix(stream) => stream.shutdown(std::net::Shutdown::Write).expect("shut"),
        }
    }

    /// All that comes until the server closes, as text.
    pub(crate) fn all(mut self) -> String {
        while self.more() > 0 {}
        text(&self.buffer)
    }

    /// Reads what comes next; 0 at the end.
    fn more(&mut self) -> usize {
        let mut chunk = [0; 65536];
        let n = loop {
            let n = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut chunk),
                Stream::Tls(stream) => stream.read(&mut chunk),
                Stream::Unix(stream) => stream.read(&mut chunk),
            };
            match n {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break 0,
                n => break n.expect("an answer in time"),
            }
        };
        self.buffer.extend_from_slice(&chunk[..n]);
        n
    }

    /// What has come, at least a byte; nothing at the end.
    pub(crate) fn some(&mut self) -> Vec<u8> {
        if self.buffer.is_empty() {
            self.more();
        }
        std::mem::take(&mut self.buffer)
    }

    /// The next `n` bytes; fewer at the end.
    pub(crate) fn exact(&mut self, n: usize) -> Vec<u8> {
        while self.buffer.len() < n && self.more() > 0 {}
        self.buffer.drain(..n.min(self.buffer.len())).collect()
    }

    /// Exactly these bytes come next.
    #[track_caller]
    pub(crate) fn expect(&mut self, bytes: &[u8]) {
        let got = self.exact(bytes.len());
        if got != bytes {
            panic!(
                "expected {:?}, got {:?}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(200)]),
                String::from_utf8_lossy(&got[..got.len().min(200)])
            );
        }
    }

    /// The server closes, without another byte.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(
            self.more(),
            0,
            "more than expected: {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
        assert!(
            self.buffer.is_empty(),
            "left: {:?}",
            String::from_utf8_lossy(&self.buffer)
        );
    }

    /// Everything up to and with `end`.
    pub(crate) fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|part| part == end) {
                return self.buffer.drain(..at + end.len()).collect();
            }
            assert_ne!(self.more(), 0, "the server closed");
        }
    }

    /// Puts and sees it stored.
    #[track_caller]
    pub(crate) fn put(&mut self, queue: &str, body: &[u8]) {
        self.send(format!("set {queue} 0 0 {}\r\n", body.len()).as_bytes());
        self.send(body);
        self.send(b"\r\n");
        self.expect(b"STORED\r\n");
    }

    /// Takes and sees this body.
    #[track_caller]
    pub(crate) fn take(&mut self, queue: &str, body: &[u8]) {
        self.send(format!("get {queue}\r\n").as_bytes());
        self.expect_value(queue, body);
    }

    #[track_caller]
    pub(crate) fn expect_value(&mut self, queue: &str, body: &[u8]) {
        self.expect(format!("VALUE {queue} 0 {}\r\n", body.len()).as_bytes());
        self.expect(body);
        self.expect(b"\r\nEND\r\n");
    }

    #[track_caller]
    pub(crate) fn take_nothing(&mut self, queue: &str) {
        self.send(format!("get {queue}\r\n").as_bytes());
        self.expect(b"END\r\n");
    }

    /// One number of `stats`; 0 if it is not among them (a queue nobody used).
    pub(crate) fn stat(&mut self, key: &str) -> u64 {
        self.send(b"stats\r\n");
        let text = String::from_utf8(self.until(b"END\r\n")).expect("text");
        let start = format!("STAT {key} ");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(start.as_str()));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Asks until a number is as it should be.
    #[track_caller]
    pub(crate) fn await_stat(&mut self, key: &str, right: impl Fn(u64) -> bool) {
        let began = Instant::now();
        loop {
            let value = self.stat(key);
            if right(value) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{key} stays {value}");
        }
    }
}

/// The status and body of a page of the server's http listener.
pub(crate) fn page(server: &Server, path: &str) -> (u16, String) {
    let reply = whole_page(server, path, "");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.expect("a status"), body.to_owned())
}

/// A reply with its head; `headers` end in CRLF each.
pub(crate) fn whole_page(server: &Server, path: &str, headers: &str) -> String {
    let mut client = server.client_of("http");
    let head = "HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    client.send(format!("GET {path} {head}{headers}\r\n").as_bytes());
    client.all()
}

/// A file's or a reply's text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bytes that are the same in every run and do not repeat.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Faults for servers on `data`, which is absolute; the control file lies
/// beside it.
pub(crate) fn faults(data: &Path) -> quintet_faults::Faults {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR"));
    quintet_faults::Faults::new(build, &data.with_extension("faults"), data)
        .expect("a C compiler, and a folder to write to")
}

impl Server {
    /// Starts under these faults.
    pub(crate) fn start_under(
        faults: &quintet_faults::Faults,
        data: &Path,
        start: &Start<'_>,
    ) -> Self {
        let mut command = Self::command(data, start);
        faults.attach(&mut command);
        let server = Self::await_ready(data, command);
        assert!(faults.is_attached(), "the library was not loaded");
        server
    }

    /// It has ended by itself, or by a cut.
    pub(crate) fn ended(mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the server goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
