//! Connections: sockets, TLS or not, and replies cut out of their bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use quintet_tls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::{PATIENCE, text};

pub(crate) trait Socket: Read + Write + Send {
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
    /// Bytes at the front of the buffer that somebody has read.
    read: usize,
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

    pub(crate) fn of(stream: Box<dyn Socket>, patience: Duration) -> io::Result<Self> {
        stream.set_patience(patience)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
            read: 0,
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

    /// Closes the sending side.
    pub(crate) fn shut(&mut self) -> io::Result<()> {
        self.stream.shut()
    }

    /// How many bytes have come that nobody has read.
    pub(crate) fn unread(&self) -> usize {
        self.buffer.len() - self.read
    }

    /// The next `n` bytes that have come, at most.
    pub(crate) fn drain(&mut self, n: usize) -> Vec<u8> {
        let end = self.read + n.min(self.unread());
        let bytes = self.buffer[self.read..end].to_vec();
        self.read = end;
        bytes
    }

    /// Reads the bytes that come next; 0 at the end.
    ///
    /// # Errors
    /// Nothing comes in time, or the connection breaks.
    pub fn more(&mut self) -> io::Result<usize> {
        // Here and not at each read: it moves all bytes that are left.
        self.buffer.drain(..self.read);
        self.read = 0;
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

    /// The bytes that have come and nobody has read.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.drain(usize::MAX)
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
        while self.unread() < n {
            self.more_or_end()?;
        }
        Ok(self.drain(n))
    }

    /// Everything up to `end`, which is taken off.
    ///
    /// # Errors
    /// It does not come.
    pub fn before(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut looked_at = 0;
        loop {
            let mut parts = self.buffer[self.read + looked_at..].windows(end.len());
            if let Some(at) = parts.position(|part| part == end) {
                let all = self.drain(looked_at + at);
                self.read += end.len();
                return Ok(all);
            }
            looked_at = (self.unread() + 1).saturating_sub(end.len());
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

/// TLS on a connection to `localhost`, before the first byte is sent.
pub fn tls(address: &str, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
    let socket = TcpStream::connect(address).expect("connected");
    socket.set_nodelay(true).expect("open");
    socket.set_patience(PATIENCE).expect("open");
    let name = quintet_tls::server_name("localhost:1").expect("a name");
    StreamOwned::new(ClientConnection::new(config, name).expect("begun"), socket)
}
