//! A client's socket of either kind.

use std::io::{self, Read, Write};
use std::net;
use std::os::unix::net as unix;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

use crate::target::Target;

/// A connection that does not block.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP, without delay.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Waits for the connection; no byte is sent.
    ///
    /// # Errors
    /// Nothing accepts there.
    pub fn connect(target: &Target) -> io::Result<Self> {
        match target {
            Target::Tcp(address) => {
                let stream = net::TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Tcp(TcpStream::from_std(stream)))
            }
            Target::Unix(path) => {
                let stream = unix::UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(UnixStream::from_std(stream)))
            }
        }
    }

    /// A connection that nothing was asked of is still open, and silent.
    pub fn is_open(&mut self) -> bool {
        let read = self.read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.source().register(registry, token, Interest::READABLE)
    }

    /// Watches for room to write too, or no longer.
    pub(crate) fn watch_writable(
        &mut self,
        registry: &Registry,
        token: Token,
        watch: bool,
    ) -> io::Result<()> {
        let interest = if watch {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        self.source().reregister(registry, token, interest)
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }
}
