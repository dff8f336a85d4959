//! A connected socket of either kind.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};

/// Reads of what nobody wants any more, at most.
const DRAIN_READS: usize = 16;

/// A TCP or unix connection, not blocking.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What a read brought.
pub(crate) struct Got {
    /// So many; 0: the client has closed its side.
    pub(crate) bytes: usize,
    /// There is no more until an event says so.
    pub(crate) drained: bool,
}

impl From<std::net::TcpStream> for Stream {
    /// Of one that does not block.
    fn from(stream: std::net::TcpStream) -> Self {
        Stream::Tcp(TcpStream::from_std(stream))
    }
}

impl From<std::os::unix::net::UnixStream> for Stream {
    /// Of one that does not block.
    fn from(stream: std::os::unix::net::UnixStream) -> Self {
        Stream::Unix(UnixStream::from_std(stream))
    }
}

impl Stream {
    /// The client's address; a unix socket has none.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// The account of this machine that a unix socket's peer runs under.
    pub(crate) fn account(&self) -> Option<u32> {
        match self {
            Stream::Tcp(_) => None,
            Stream::Unix(stream) => {
                let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
                Some(peer.uid.as_raw())
            }
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        let bytes = match self {
            Stream::Tcp(stream) => stream.read(buffer)?,
            Stream::Unix(stream) => stream.read(buffer)?,
        };
        // A plain socket gives all it has if there is room for it.
        let drained = bytes < buffer.len();
        Ok(Got { bytes, drained })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    /// Starts watching for bytes to read.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.source().register(registry, token, Interest::READABLE)
    }

    /// Watches for room to write too, or no longer. Room is only watched for
    /// while there is none: a unix socket would else report it with every
    /// message its peer reads.
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

    /// Before a close: says that no more will be sent, and reads what has come
    /// meanwhile, since closing a socket with unread bytes resets it, and the
    /// client might never see the last reply.
    pub(crate) fn finish(&mut self, scratch: &mut [u8]) {
        let shut = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
        if shut.is_err() {
            // The client is gone already.
            return;
        }
        for _ in 0..DRAIN_READS {
            match self.read(scratch) {
                Ok(got) if !got.drained => {}
                _ => return,
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }
}
