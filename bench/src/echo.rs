//! A bare echo server on the server's own runtime: one thread, one poll, and
//! per readiness one read and one write. The limit others are measured
//! against; it does nothing with what it reads.

use std::io::{ErrorKind, Read as _, Write as _};

use anyhow::{Context, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// Bytes read at once, as the server reads.
const READ_BYTES: usize = 64 << 10;
/// Connections that may wait to be accepted, as the server's.
const BACKLOG: i32 = 4096;
const LISTENER: Token = Token(usize::MAX);

struct Conn {
    stream: TcpStream,
    /// Read and not yet taken by the socket.
    rest: Vec<u8>,
}

/// Echoes whatever comes over `listener`, until the process ends.
///
/// # Errors
/// The poll is broken.
pub fn serve(listener: std::net::TcpListener) -> Result<()> {
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut conns: Vec<Option<Conn>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if let Err(error) = poll.poll(&mut events, None)
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error).context("cannot wait for connections");
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let slot = free.pop().unwrap_or(conns.len());
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    if stream.set_nodelay(true).is_err()
                        || poll
                            .registry()
                            .register(&mut stream, Token(slot), interest)
                            .is_err()
                    {
                        continue;
                    }
                    let rest = Vec::new();
                    let conn = Some(Conn { stream, rest });
                    if slot == conns.len() {
                        conns.push(conn);
                    } else {
                        conns[slot] = conn;
                    }
                }
                continue;
            }
            let Token(slot) = event.token();
            if let Some(conn) = &mut conns[slot]
                && conn.echo(&mut buffer).is_none()
            {
                conns[slot] = None;
                free.push(slot);
            }
        }
    }
}

impl Conn {
    /// `None` when the connection is over.
    fn echo(&mut self, buffer: &mut [u8]) -> Option<()> {
        loop {
            while !self.rest.is_empty() {
                match self.stream.write(&self.rest) {
                    Ok(count) => drop(self.rest.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(()),
                    Err(_) => return None,
                }
            }
            let count = match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(()),
                Err(_) => return None,
            };
            let sent = match self.stream.write(&buffer[..count]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => return None,
            };
            self.rest.extend_from_slice(&buffer[sent..count]);
            // A read that did not fill the buffer emptied the socket.
            if self.rest.is_empty() && count < buffer.len() {
                return Some(());
            }
        }
    }
}
