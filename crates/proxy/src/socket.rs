//! Sockets of either kind, as a runtime drives them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::either::Either;

use crate::shared::Stream;

/// A listening socket. Its opener removes its file.
#[derive(Debug)]
pub enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// The same, part of the runtime it was made in.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A client's connection, or a node's: TCP, or a unix socket.
pub(crate) type Plain = Either<TcpStream, UnixStream>;

/// A connection that was accepted elsewhere, and where it is from.
pub(crate) fn plain(stream: Stream) -> io::Result<(Plain, Option<SocketAddr>)> {
    match stream {
        Stream::Tcp(stream) => {
            stream.set_nonblocking(true)?;
            let peer = stream.peer_addr()?;
            Ok((Plain::Left(TcpStream::from_std(stream)?), Some(peer)))
        }
        Stream::Unix(stream) => {
            stream.set_nonblocking(true)?;
            Ok((Plain::Right(UnixStream::from_std(stream)?), None))
        }
    }
}

/// Runs work that waits, in a thread of its own: those of a runtime would end the process where the
/// system has none to give. There are as many at a time as `turns` has permits.
///
/// # Errors
/// The system has no thread to give.
pub(crate) async fn in_thread<T: Send + 'static>(
    turns: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let turn = turns.acquire().await.map_err(io::Error::other)?;
    let (sender, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("proxy-work".to_owned());
    thread.spawn(move || {
        let _turn = turn;
        drop(sender.send(work()));
    })?;
    done.await.map_err(io::Error::other)
}

/// The same as it was before.
pub(crate) fn into_std(stream: Plain) -> io::Result<Stream> {
    Ok(match stream {
        Plain::Left(stream) => Stream::Tcp(stream.into_std()?),
        Plain::Right(stream) => Stream::Unix(stream.into_std()?),
    })
}

/// Waits until its client says something, or goes.
pub(crate) async fn readable(stream: &Plain) -> io::Result<()> {
    match stream {
        Plain::Left(stream) => stream.readable().await,
        Plain::Right(stream) => stream.readable().await,
    }
}

impl Listener {
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        match socket {
            Socket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(Self::Tcp)
            }
            Socket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(Self::Unix)
            }
        }
    }

    /// The next connection, and where it is from.
    pub(crate) async fn accept(&self) -> io::Result<(Plain, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // What passes through was gathered by its sender.
                stream.set_nodelay(true)?;
                Ok((Plain::Left(stream), Some(peer)))
            }
            Self::Unix(listener) => Ok((Plain::Right(listener.accept().await?.0), None)),
        }
    }
}

/// Silence of the other node's machine that ends a peer connection: three seconds.
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVE_TRIES: u32 = 2;

/// Settings of a peer connection's socket, at both ends: a machine that is gone sends no reset.
pub(crate) fn set_up_peer_socket(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TRIES)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_whose_caller_is_gone_keeps_its_turn_until_it_is_done() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let (go_on, held) = std::sync::mpsc::channel::<()>();
        runtime.expect("a runtime").block_on(async {
            let first = in_thread(&TURNS, move || held.recv().is_ok());
            tokio::select! {
                biased;
                done = first => panic!("it waits: {done:?}"),
                () = std::future::ready(()) => {}
            }
            assert_eq!(TURNS.available_permits(), 0);
            drop(go_on);
            let next = in_thread(&TURNS, || 7).await;
            assert_eq!(next.expect("a thread"), 7);
        });
    }
}
