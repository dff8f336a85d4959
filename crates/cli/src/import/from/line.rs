//! A connection to a server that answers in lines and counted bytes.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// A server that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// No server of these protocols answers a longer line.
const LINE_MAX: u64 = 64 << 10;

/// The connection.
pub(super) struct Line {
    stream: BufReader<TcpStream>,
    address: String,
    /// The end of [`Line::strange`].
    does_not: &'static str,
}

impl Line {
    /// Connects to HOST:PORT. `does_not`: see [`Line::strange`].
    ///
    /// # Errors
    /// Nobody listens there.
    pub(super) fn connect(address: &str, does_not: &'static str) -> Result<Self> {
        let cannot = || format!("cannot connect to {address}");
        let mut last = None;
        for socket in address.to_socket_addrs().with_context(cannot)? {
            match TcpStream::connect_timeout(&socket, PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(Self {
                        stream: BufReader::with_capacity(1 << 18, stream),
                        address: address.to_owned(),
                        does_not,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) => Err(error).with_context(cannot),
            None => bail!("{address} has no IP address"),
        }
    }

    /// HOST:PORT as it was given.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// This end of it.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.get_ref().local_addr().ok()
    }

    /// Sends requests. The answers to all of them must fit where nobody reads them, or the
    /// requests into what the system takes at once.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) fn send(&mut self, requests: &[u8]) -> Result<()> {
        let sent = self.stream.get_mut().write_all(requests);
        sent.map_err(|error| self.gone(error))
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// The server is gone, or sends something else.
    pub(super) fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        let read = (&mut self.stream)
            .take(LINE_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(|error| self.gone(error))?;
        if line.pop() != Some(b'\n') {
            bail!("{} closed the connection", self.address);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// So many bytes, and the end of line behind them.
    ///
    /// # Errors
    /// The server is gone, or sends something else.
    pub(super) fn counted(&mut self, bytes: u64) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        let read = (&mut self.stream).take(bytes).read_to_end(&mut all);
        read.map_err(|error| self.gone(error))?;
        let mut end = [0; 2];
        if all.len() as u64 != bytes {
            bail!("{} closed the connection inside a message", self.address);
        }
        let read = self.stream.read_exact(&mut end);
        read.map_err(|error| self.gone(error))?;
        if end != *b"\r\n" {
            bail!("{}: a message does not end where it should", self.address);
        }
        Ok(all)
    }

    /// Reports a reply that no such server gives: "HOST:PORT answered ..., which beanstalkd does
    /// not".
    pub(super) fn strange(&self, reply: &str) -> String {
        let (address, does_not) = (&self.address, self.does_not);
        let reply: String = reply.chars().take(80).collect();
        format!("{address} answered {reply:?}, which {does_not}")
    }

    /// An error of the connection, as what it is: never the broken pipe of who reads our output.
    #[expect(clippy::wildcard_enum_match_arm, reason = "as the system says it")]
    fn gone(&self, error: std::io::Error) -> anyhow::Error {
        let address = &self.address;
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                anyhow::anyhow!("{address} sent nothing for {} s", PATIENCE.as_secs())
            }
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => {
                anyhow::anyhow!("{address} closed the connection")
            }
            _ => anyhow::anyhow!("{address}: {error}"),
        }
    }
}
