//! A connection to a healthy server.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use quintet_tls::rustls::ClientConfig;

use crate::connection::{Connection, tls};
use crate::http::{self, Reply};
use crate::{PATIENCE, eventually, text};

/// Panics where a reply is not as a test expects it.
pub struct Client(Connection);

impl Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}

impl From<Connection> for Client {
    fn from(connection: Connection) -> Self {
        Self(connection)
    }
}

impl From<Client> for Connection {
    fn from(client: Client) -> Self {
        client.0
    }
}

impl Client {
    /// Of a listener at a port.
    pub fn tcp(address: &str) -> Self {
        Self(Connection::tcp(address, PATIENCE).expect("connected"))
    }

    /// A client on a socket of the test's own.
    pub fn over(stream: TcpStream) -> Self {
        Self(Connection::over(stream, PATIENCE).expect("open"))
    }

    /// Under TLS, to the server of the name `localhost`.
    pub fn tls(address: &str, config: Arc<ClientConfig>) -> Self {
        let stream = tls(address, config);
        Self(Connection::of(Box::new(stream), PATIENCE).expect("open"))
    }

    /// Of a listener at a path.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connected");
        Self(Connection::of(Box::new(stream), PATIENCE).expect("open"))
    }

    /// Sends all of it.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.send(bytes).expect("sent");
    }

    /// Sends as far as the server still listens.
    pub fn try_send(&mut self, bytes: &[u8]) {
        self.0.send(bytes).ok();
    }

    /// Closes the sending side.
    pub fn half_close(&mut self) {
        self.0.shut().expect("shut");
    }

    /// All that comes until the server closes, as text.
    pub fn all(mut self) -> String {
        while self.more() > 0 {}
        text(&self.0.rest())
    }

    /// Reads what comes next; 0 at the end.
    fn more(&mut self) -> usize {
        match self.0.more() {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            n => n.expect("an answer in time"),
        }
    }

    /// The bytes that have come, at least one; none at the end.
    pub fn some(&mut self) -> Vec<u8> {
        if self.0.unread() == 0 {
            self.more();
        }
        self.0.rest()
    }

    /// The next `n` bytes; fewer at the end.
    pub fn exact(&mut self, n: usize) -> Vec<u8> {
        while self.0.unread() < n && self.more() > 0 {}
        self.0.drain(n)
    }

    /// Exactly these bytes come next.
    #[track_caller]
    pub fn expect(&mut self, bytes: &[u8]) {
        let got = self.exact(bytes.len());
        if got != bytes {
            let start = |bytes: &[u8]| text(&bytes[..bytes.len().min(200)]);
            panic!("expected {:?}, got {:?}", start(bytes), start(&got));
        }
    }

    /// Sends a request; exactly this comes back.
    #[track_caller]
    pub fn ask(&mut self, request: &[u8], reply: &[u8]) {
        self.send(request);
        self.expect(reply);
    }

    /// The server closes, without another byte.
    #[track_caller]
    pub fn expect_end(&mut self) {
        self.more();
        let left = text(&self.0.rest());
        assert!(left.is_empty(), "more than expected: {left:?}");
    }

    /// Everything up to and with `end`.
    #[track_caller]
    pub fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let before = self.0.before(end).expect("the server goes on");
        [&before, end].concat()
    }

    /// A request like `GET /path` by HTTP; `headers` end in CR LF each.
    pub fn page(self, what: &str, headers: &str) -> Reply {
        http::ask(self.0, what, headers, b"").expect("a reply")
    }

    /// Puts by memcache and sees it stored.
    #[track_caller]
    pub fn put(&mut self, queue: &str, body: &[u8]) {
        self.send(format!("set {queue} 0 0 {}\r\n", body.len()).as_bytes());
        self.send(body);
        self.ask(b"\r\n", b"STORED\r\n");
    }

    /// Takes by memcache and sees this body.
    #[track_caller]
    pub fn take(&mut self, queue: &str, body: &[u8]) {
        self.send(format!("get {queue}\r\n").as_bytes());
        self.expect_value(queue, body);
    }

    /// This body comes, as memcache's reply to a get.
    #[track_caller]
    pub fn expect_value(&mut self, queue: &str, body: &[u8]) {
        self.expect(format!("VALUE {queue} 0 {}\r\n", body.len()).as_bytes());
        self.expect(body);
        self.expect(b"\r\nEND\r\n");
    }

    /// Takes by memcache, and there is nothing.
    #[track_caller]
    pub fn take_nothing(&mut self, queue: &str) {
        self.ask(format!("get {queue}\r\n").as_bytes(), b"END\r\n");
    }

    /// One number of memcache's `stats`; 0 if it is not among them (a queue nobody used).
    pub fn stat(&mut self, key: &str) -> u64 {
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
    pub fn await_stat(&mut self, key: &str, right: impl Fn(u64) -> bool) {
        eventually(key, || right(self.stat(key)).then_some(()));
    }
}
