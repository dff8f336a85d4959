//! A client's socket of either kind, under TLS or not.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use quintet_tls::{ClientChannel, Scratch};

use crate::target::Target;
use crate::tls::Tls;

/// A connection that does not block.
pub struct Stream {
    /// Over TCP, without delay; or a unix socket, whose calls are the same.
    socket: TcpStream,
    channel: Option<Box<ClientChannel>>,
}

impl Stream {
    /// Waits for the connection, and for TLS if there is any; nothing else is
    /// sent.
    ///
    /// # Errors
    /// Nothing accepts there, or there is no agreement.
    pub fn connect(target: &Target, tls: Option<&Tls>) -> io::Result<Self> {
        let mut channel = None;
        let socket: net::TcpStream = match target {
            Target::Tcp(address) => {
                let mut stream = net::TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                if let Some(tls) = tls {
                    channel = Some(Box::new(tls.handshake(&mut stream)?));
                }
                stream
            }
            Target::Unix(path) => OwnedFd::from(UnixStream::connect(path)?).into(),
        };
        Self::of(socket, channel)
    }

    /// One that is open.
    ///
    /// # Errors
    /// The system cannot make it one that does not block.
    pub(crate) fn of(
        socket: net::TcpStream,
        channel: Option<Box<ClientChannel>>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = TcpStream::from_std(socket);
        Ok(Self { socket, channel })
    }

    /// A connection that nothing was asked of is still open, and silent but
    /// for what TLS says to itself.
    pub fn is_open(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(count) => count > 0 && self.channel.is_some(),
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Reads; answers how much, and whether there is more perhaps. 0: the
    /// server has closed.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        records: &mut Scratch,
    ) -> io::Result<(usize, bool)> {
        let Some(channel) = &mut self.channel else {
            let count = self.socket.read(buffer)?;
            // A read that did not fill the buffer emptied the socket.
            return Ok((count, count == buffer.len()));
        };
        loop {
            let read = channel.read(&mut self.socket, buffer, usize::MAX, records)?;
            if read.bytes > 0 || read.ended {
                return Ok((read.bytes, !read.drained));
            }
            if read.drained {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8], records: &mut Scratch) -> io::Result<usize> {
        match &mut self.channel {
            None => self.socket.write(bytes),
            Some(channel) => channel.write(&mut self.socket, bytes, records),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Watches for room to write too. Of a unix socket that costs a wake-up for each read of the
    /// server.
    pub(crate) fn watch_writable(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.reregister(&mut self.socket, token, interest)
    }
}
