//! Connections that send and expect bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quintet_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::http::{self, Reply};
use crate::{PATIENCE, eventually, text};

trait Socket: Read + Write + Send {
    fn shut(&mut self) -> io::Result<()>;
    fn set_patience(&self, patience: Duration) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn shut(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(patience))?;
        self.set_read_timeout(Some(patience))
    }
}

impl Socket for StreamOwned<ClientConnection, TcpStream> {
    fn shut(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }

    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.sock.set_patience(patience)
    }
}

impl Socket for UnixStream {
    fn shut(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

/// A connection whose every failure is an error.
pub struct Connection {
    stream: Box<dyn Socket>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Waits for a reply no longer than `patience`.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn tcp(address: &str, patience: Duration) -> io::Result<Self> {
        Self::over(TcpStream::connect(address)?, patience)
    }

    /// # Errors
    /// The socket is closed.
    pub fn over(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Self::of(Box::new(stream), patience)
    }

    fn of(stream: Box<dyn Socket>, patience: Duration) -> io::Result<Self> {
        stream.set_patience(patience)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// # Errors
    /// The connection is closed.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_patience(patience)
    }

    /// # Errors
    /// The connection is closed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the bytes that come next; 0 at the end.
    ///
    /// # Errors
    /// Nothing comes in time, or the connection breaks.
    pub fn more(&mut self) -> io::Result<usize> {
        let mut chunk = [0; 65536];
        let n = loop {
            match self.stream.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                n => break n?,
            }
        };
        self.buffer.extend_from_slice(&chunk[..n]);
        Ok(n)
    }

    /// Whether bytes have come that nobody has read.
    pub fn has_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The bytes that have come and nobody has read.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    fn more_or_end(&mut self) -> io::Result<()> {
        match self.more()? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// # Errors
    /// Fewer come.
    pub fn exact(&mut self, n: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < n {
            self.more_or_end()?;
        }
        Ok(self.buffer.drain(..n).collect())
    }

    /// Everything up to `end`, which is taken off.
    ///
    /// # Errors
    /// It does not come.
    pub fn before(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut looked_at = 0;
        loop {
            let mut parts = self.buffer[looked_at..].windows(end.len());
            if let Some(at) = parts.position(|part| part == end) {
                let all = self.buffer.drain(..looked_at + at + end.len());
                return Ok(all.take(looked_at + at).collect());
            }
            looked_at = (self.buffer.len() + 1).saturating_sub(end.len());
            self.more_or_end()?;
        }
    }

    /// A line that ends with CR LF, without its end.
    ///
    /// # Errors
    /// It does not come.
    pub fn line(&mut self) -> io::Result<String> {
        self.before(b"\r\n").map(|line| text(&line))
    }

    /// A body whose length is `len`, and these bytes behind it.
    ///
    /// # Errors
    /// Other bytes come, or fewer.
    pub fn body(&mut self, len: &str, end: &[u8]) -> io::Result<Vec<u8>> {
        let len: usize = len.parse().map_err(|_| wrong(len))?;
        let body = self.exact(len)?;
        let tail = self.exact(end.len())?;
        match tail == end {
            true => Ok(body),
            false => Err(wrong(&text(&tail))),
        }
    }

    /// Memcache's reply to a get of one queue.
    ///
    /// # Errors
    /// Another reply comes, or none.
    pub fn value(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let value = line.strip_prefix("VALUE ");
        let len = value.and_then(|value| value.split(' ').nth(2));
        let len = len.ok_or_else(|| wrong(&line))?;
        self.body(len, b"\r\nEND\r\n").map(Some)
    }
}

/// An error that shows a reply.
pub(crate) fn wrong(reply: &str) -> io::Error {
    io::Error::other(format!("a reply of another kind: {reply:?}"))
}

/// A connection to a healthy server: panics where a reply is not as a test expects it.
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

    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("connected");
        Self(Connection::of(Box::new(stream), PATIENCE).expect("open"))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.send(bytes).expect("sent");
    }

    /// Sends as far as the server still listens.
    pub fn try_send(&mut self, bytes: &[u8]) {
        self.0.send(bytes).ok();
    }

    /// Closes the sending side.
    pub fn half_close(&mut self) {
        self.0.stream.shut().expect("shut");
    }

    /// All that comes until the server closes, as text.
    pub fn all(mut self) -> String {
        while self.more() > 0 {}
        text(&self.0.buffer)
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
        if self.0.buffer.is_empty() {
            self.more();
        }
        std::mem::take(&mut self.0.buffer)
    }

    /// The next `n` bytes; fewer at the end.
    pub fn exact(&mut self, n: usize) -> Vec<u8> {
        while self.0.buffer.len() < n && self.more() > 0 {}
        let n = n.min(self.0.buffer.len());
        self.0.buffer.drain(..n).collect()
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
        let left = text(&self.0.buffer);
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

    #[track_caller]
    pub fn expect_value(&mut self, queue: &str, body: &[u8]) {
        self.expect(format!("VALUE {queue} 0 {}\r\n", body.len()).as_bytes());
        self.expect(body);
        self.expect(b"\r\nEND\r\n");
    }

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

/// TLS on a connection to `localhost`, before the first byte is sent.
pub fn tls(address: &str, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let socket = TcpStream::connect(address).expect("connected");
    socket.set_nodelay(true).expect("open");
    socket.set_patience(PATIENCE).expect("open");
    let name = quintet_tls::server_name("localhost:1").expect("a name");
    StreamOwned::new(ClientConnection::new(config, name).expect("begun"), socket)
}
