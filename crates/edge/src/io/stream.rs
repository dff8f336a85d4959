//! A connected socket of either kind, with TLS over it or not.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use either::{Either, for_both};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use quintet_http::Connected;
use quintet_tls::{Identity, Scratch, ServerChannel};

/// Reads of what nobody wants any more, at most.
const DRAIN_READS: usize = 16;

/// Bytes read at once of a client that is not served.
const LAST_WORD_READ: usize = 4096;

/// A connection that does not block.
pub struct Stream {
    socket: Socket,
    /// TLS, if it is spoken.
    channel: Option<Box<ServerChannel>>,
}

/// TCP, or a unix socket.
type Socket = Either<TcpStream, UnixStream>;

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::plain(Either::Left(stream))
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::plain(Either::Right(stream))
    }
}

impl From<std::net::TcpStream> for Stream {
    /// Of one that does not block.
    fn from(stream: std::net::TcpStream) -> Self {
        TcpStream::from_std(stream).into()
    }
}

impl From<std::os::unix::net::UnixStream> for Stream {
    /// Of one that does not block.
    fn from(stream: std::os::unix::net::UnixStream) -> Self {
        UnixStream::from_std(stream).into()
    }
}

impl Stream {
    fn plain(socket: Socket) -> Self {
        Self {
            socket,
            channel: None,
        }
    }

    /// From now on its bytes are those of TLS; its client begins.
    pub fn secure(&mut self, channel: ServerChannel) {
        self.channel = Some(Box::new(channel));
    }

    /// It turned out to be plain; answers the bytes that came. Nothing was
    /// said to it.
    pub fn strip(&mut self) -> Vec<u8> {
        let channel = self.channel.take();
        channel.map_or_else(Vec::new, |mut channel| channel.take_rest())
    }

    /// TLS has not come to an agreement yet.
    pub fn is_handshaking(&self) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|channel| channel.is_handshaking())
    }

    /// TLS has something to say that has not left.
    pub fn is_pending(&self) -> bool {
        let channel = self.channel.as_ref();
        channel.is_some_and(|channel| channel.is_pending())
    }

    /// The client's identity by its certificate, if it has shown one.
    pub fn identity(&self) -> Option<Identity> {
        self.channel.as_ref()?.identity()
    }

    /// Bytes of memory that TLS takes beyond what any connection does.
    pub fn footprint(&self) -> usize {
        let channel = self.channel.as_ref();
        channel.map_or(0, |channel| channel.footprint())
    }

    /// The client's address; a unix socket has none.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.as_ref().left()?.peer_addr().ok()
    }

    /// The account of this machine that a unix socket's peer runs under.
    pub fn account(&self) -> Option<u32> {
        let stream = self.socket.as_ref().right()?;
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        Some(peer.uid.as_raw())
    }

    /// The first byte that waits to be read, which it goes on doing; 0: there will be none.
    /// Nothing is spoken over it but plain bytes.
    pub fn first(&self) -> io::Result<u8> {
        let mut first = [0];
        rustix::net::recv(self.fd(), &mut first, rustix::net::RecvFlags::PEEK)?;
        Ok(first[0])
    }

    /// The socket once more, for the thread that serves it from now on.
    pub fn hand_on(&mut self, registry: &Registry) -> io::Result<Connected> {
        self.source().deregister(registry)?;
        let socket = self.fd().try_clone_to_owned()?;
        Ok(match &self.socket {
            Either::Left(_) => Connected::Tcp(socket.into()),
            Either::Right(_) => Connected::Unix(socket.into()),
        })
    }

    /// Reads about `room` bytes at most, as many as `buffer` has: under TLS
    /// what came is decrypted whole, so that none of it waits unseen.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        room: usize,
        records: &mut Scratch,
    ) -> io::Result<quintet_tls::Read> {
        if let Some(channel) = &mut self.channel {
            return channel.read(&mut self.socket, buffer, room, records);
        }
        let bytes = self.socket.read(&mut buffer[..room])?;
        Ok(quintet_tls::Read {
            bytes,
            // A plain socket gives all it has if there is room for it.
            drained: bytes < room,
            ended: bytes == 0,
        })
    }

    /// Writes as much as the socket takes; under TLS that much of it as has
    /// left in whole records. The rest is to be offered again.
    pub fn write(&mut self, bytes: &[u8], records: &mut Scratch) -> io::Result<usize> {
        match &mut self.channel {
            None => self.socket.write(bytes),
            Some(channel) => channel.write(&mut self.socket, bytes, records),
        }
    }

    /// Writes what TLS has to say, when nothing offered to
    /// [`Stream::write`] is left. True if all of it has left.
    pub fn flush(&mut self) -> io::Result<bool> {
        if let Some(channel) = &mut self.channel {
            channel.flush(&mut self.socket)?;
        }
        Ok(!self.is_pending())
    }

    /// Starts watching for bytes to read.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.source().register(registry, token, Interest::READABLE)
    }

    /// Watches for room to write too, or no longer. Room is only watched for
    /// while there is none: a unix socket would else report it with every
    /// message its peer reads.
    pub fn watch_writable(
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
    pub fn finish(&mut self, scratch: &mut [u8], records: &mut Scratch) {
        if let Some(channel) = &mut self.channel
            && let Err(error) = channel.close(&mut self.socket, records)
        {
            tracing::trace!("cannot close the TLS connection cleanly: {error}");
        }
        self.part(scratch);
    }

    /// Says a last word in the clear to a new client that is not served, as far
    /// as its socket has room, and reads what came meanwhile.
    pub fn last_word(&mut self, bytes: &[u8]) {
        if self.socket.write(bytes).is_ok() {
            self.part(&mut [0; LAST_WORD_READ]);
        }
    }

    fn part(&mut self, scratch: &mut [u8]) {
        let shut = for_both!(&self.socket, stream => stream.shutdown(Shutdown::Write));
        if shut.is_err() {
            // The client is gone already.
            return;
        }
        for _ in 0..DRAIN_READS {
            match self.socket.read(scratch) {
                Ok(bytes) if bytes == scratch.len() => {}
                _ => return,
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        for_both!(&self.socket, stream => stream.as_fd())
    }

    fn source(&mut self) -> &mut dyn Source {
        for_both!(&mut self.socket, stream => stream)
    }
}
