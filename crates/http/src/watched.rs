//! A socket whose client's end is known also while nobody reads what came before it.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

/// A connected socket.
pub(crate) struct Watched {
    read: Reading,
    write: Arc<Writing>,
}

enum Reading {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

enum Writing {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

/// The other end of a socket, as long as the socket is there.
pub(crate) struct FarEnd(Weak<Writing>);

impl From<TcpStream> for Watched {
    fn from(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read: Reading::Tcp(read),
            write: Arc::new(Writing::Tcp(write)),
        }
    }
}

impl From<UnixStream> for Watched {
    fn from(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read: Reading::Unix(read),
            write: Arc::new(Writing::Unix(write)),
        }
    }
}

impl Watched {
    pub(crate) fn far_end(&self) -> FarEnd {
        FarEnd(Arc::downgrade(&self.write))
    }
}

impl FarEnd {
    /// Returns when the client has ended its side of the connection, or reset it: bytes that came
    /// before may still be unread.
    pub(crate) async fn is_closed(&self) {
        if let Some(socket) = self.0.upgrade() {
            // Nothing but an end is waited for: no socket has priority data, as none asks for it.
            let closed = match &*socket {
                Writing::Tcp(half) => half.as_ref().ready(Interest::PRIORITY).await,
                Writing::Unix(half) => half.as_ref().ready(Interest::PRIORITY).await,
            };
            if let Err(error) = closed {
                tracing::debug!("http: a socket is not watched any more: {error}");
            }
        }
    }

    /// True if the client has done so.
    pub(crate) fn has_closed(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        pin!(self.is_closed()).poll(&mut nobody).is_ready()
    }
}

impl Writing {
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(half) => half.as_ref().poll_write_ready(cx),
            Self::Unix(half) => half.as_ref().poll_write_ready(cx),
        }
    }

    /// Writes once the socket takes something.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&Self) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_ready(cx))?;
            match write(self) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn shut(&self) -> io::Result<()> {
        let shut = match self {
            Self::Tcp(half) => rustix::net::shutdown(half.as_ref(), Shutdown::Write),
            Self::Unix(half) => rustix::net::shutdown(half.as_ref(), Shutdown::Write),
        };
        match shut {
            // The client has reset it.
            Err(rustix::io::Errno::NOTCONN) => Ok(()),
            shut => Ok(shut?),
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.read {
            Reading::Tcp(half) => Pin::new(half).poll_read(cx, into),
            Reading::Unix(half) => Pin::new(half).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write.poll(cx, |write| match write {
            Writing::Tcp(half) => half.try_write(from),
            Writing::Unix(half) => half.try_write(from),
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write.poll(cx, |write| match write {
            Writing::Tcp(half) => half.try_write_vectored(from),
            Writing::Unix(half) => half.try_write_vectored(from),
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.write.shut())
    }
}
